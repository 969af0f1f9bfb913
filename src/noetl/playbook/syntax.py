"""Parser errors in plain words.

libyaml reports what its state machine missed; people need to know what to change. Each of its problems
has a sentence here, a place (sometimes where the construct began tells more than where the parser gave
up) and a hint. A problem that is not listed is passed on in libyaml's words rather than hidden.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from yaml.error import MarkedYAMLError

from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.location import position_in

_QUOTE_TEMPLATE = 'Put a value that begins with {{ in quotes: "{{ ... }}".'
_UNQUOTED_TEMPLATE = re.compile(r"(?:^|[:\-,\[]) *\{\{")
# What libyaml accepts, turned around; compiled when needed, because so wide a class is slow to compile.
_FORBIDDEN = r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


class _Wording(NamedTuple):
    message: str
    hint: str | None = None
    at_context: bool = False


_REFERENCE_WITHOUT_NAME = "did not find expected alphabetic or numeric character"
_NO_CONTENT = "did not find expected node content"
_CANNOT_START = "found character that cannot start any token"

_WORDINGS = {
    "mapping values are not allowed in this context": _Wording(
        "No mapping value may begin here, yet there is a `:`.",
        "Check the indentation of this line and the one above; text that contains `: ` needs quotes.",
    ),
    "mapping keys are not allowed in this context": _Wording(
        "No mapping key may begin here.", "Check the indentation of this line."
    ),
    "block sequence entries are not allowed in this context": _Wording(
        "No list item may begin here, yet there is a `- `.",
        "Begin the list on a line of its own below its key.",
    ),
    "could not find expected ':'": _Wording(
        "This line is neither a `key: value` pair nor part of the value above it.",
        "Add the missing `:`, or check the indentation and the quotes.",
        at_context=True,
    ),
    "did not find expected key": _Wording(
        "This does not fit the mapping that begins on line {line}: a key in column {column} was expected.",
        "Check the indentation, and that quotes enclose the whole value.",
    ),
    "did not find expected '-' indicator": _Wording(
        "This does not fit the list that begins on line {line}: a `- ` in column {column} was expected.",
        "Check the indentation of this line.",
    ),
    "did not find expected ',' or ']'": _Wording(
        "The list that `[` opens here is not closed, or lacks a comma before the next item.",
        "Add the missing `]` or `,`.",
        at_context=True,
    ),
    "did not find expected ',' or '}'": _Wording(
        "The mapping that `{{` opens here is not closed, or lacks a comma before the next key.",
        "Add the missing `}` or `,`.",
        at_context=True,
    ),
    _NO_CONTENT: _Wording("A value was expected here.", "Check the brackets and commas before this place."),
    "found unexpected end of stream": _Wording(
        "The quoted string that begins here is never closed.", "Add the closing quote.", at_context=True
    ),
    "found unexpected document indicator": _Wording(
        "The quoted string that begins here runs into a document marker (`---` or `...`).",
        "Add the closing quote.",
        at_context=True,
    ),
    "found unknown escape character": _Wording(
        "A double-quoted string has no escape `{characters}`.",
        "Double the backslash, or use single quotes, in which a backslash is a plain character.",
    ),
    "did not find expected hexdecimal number": _Wording(
        "This escape lacks hexadecimal digits.", "`\\x` takes two of them, `\\u` four and `\\U` eight."
    ),
    "found invalid Unicode character escape code": _Wording(
        "This escape names no Unicode character.",
        "Write a character beyond U+FFFF as itself or with `\\U`, not as a pair of `\\u` escapes.",
    ),
    "did not find expected comment or line break": _Wording(
        "Only a comment may follow on the line of a block scalar's `|` or `>`.",
        "Begin the text on the next line.",
    ),
    "found an indentation indicator equal to 0": _Wording(
        "A block scalar cannot be indented by 0 columns.", "Leave the digit out, or use 1 to 9."
    ),
    "found undefined tag handle": _Wording(
        "The prefix of this tag is not defined.", "Remove the tag; playbooks need none."
    ),
    "did not find expected <document start>": _Wording(
        "The document is already complete before this line.", "Check the indentation of this line."
    ),
    "found incompatible YAML document": _Wording(
        "This version of YAML is not supported.", "Remove the %YAML line, or make it `%YAML 1.2`."
    ),
    "found unexpected ':'": _Wording("There is a `:` in the middle of a plain value.", "Quote the value."),
}


def syntax_diagnostic(error: MarkedYAMLError, text: str) -> Diagnostic:
    """The one diagnostic for the place where the parser gave up."""
    problem = error.problem or "unreadable"
    mark = error.problem_mark or error.context_mark
    offset = min(mark.index, len(text)) if mark else 0
    tab = _tab_in_indentation(text, offset)
    if tab is not None:
        return _error(
            "yaml.tab", text, tab, "A tab is used for indentation, which YAML forbids.", "Use spaces."
        )
    wording = _wording(problem, text[offset : offset + 1])
    if wording.at_context and error.context_mark:
        offset = min(error.context_mark.index, len(text))
    context = position_in(text, error.context_mark.index if error.context_mark else offset)
    message = wording.message.format(
        line=context.line, column=context.column, characters=text[offset : offset + 2]
    )
    hint = _QUOTE_TEMPLATE if _UNQUOTED_TEMPLATE.search(_line_around(text, offset)) else wording.hint
    code = "yaml.tag" if problem == "found undefined tag handle" else "yaml.syntax"
    return _error(code, text, offset, message, hint)


def control_character_diagnostic(text: str) -> Diagnostic:
    """For the parser's refusal of a character: it is found again in the text, whose offsets are exact."""
    found = re.search(_FORBIDDEN, text)
    offset = found.start() if found else 0
    name = f"U+{ord(text[offset]):04X}" if found else "unknown"
    message = f"The control character {name} may not stand in a YAML file."
    hint = 'Remove it, or write it as an escape in a double-quoted string, such as "\\x1b".'
    return _error("yaml.encoding", text, offset, message, hint)


def _wording(problem: str, character: str) -> _Wording:
    if problem == _CANNOT_START:
        return _Wording(f"A plain value cannot begin with {character!r}.", "Put the value in quotes.")
    if problem == _NO_CONTENT and not character.strip():
        return _Wording(
            "The file ends inside a `[` or `{{` that is not closed.", "Add the missing `]` or `}`."
        )
    if problem == _REFERENCE_WITHOUT_NAME:
        return _Wording(
            "A `*` or `&` at the start of a value must be followed by the name of an anchor.",
            "Put the value in quotes if the character is meant as itself.",
            at_context=True,
        )
    unknown = problem.replace("{", "{{").replace("}", "}}")
    return _WORDINGS.get(problem, _Wording(f"The YAML parser cannot go on here: {unknown}."))


def _tab_in_indentation(text: str, offset: int) -> int | None:
    line = _line_around(text, offset)
    indentation = line[: len(line) - len(line.lstrip(" \t"))]
    tab = indentation.find("\t")
    return None if tab < 0 else _line_start(text, offset) + tab


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def _line_around(text: str, offset: int) -> str:
    return re.split(r"[\r\n]", text[_line_start(text, offset) : offset + 1000], maxsplit=1)[0]


def _error(code: str, text: str, offset: int, message: str, hint: str | None) -> Diagnostic:
    line, column = position_in(text, offset)
    return Diagnostic(severity="error", code=code, message=message, line=line, column=column, hint=hint)
