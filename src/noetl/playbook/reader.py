"""YAML text to a node tree with exact positions, safe against hostile input.

One pass over the C parser's events builds the tree; nothing is composed, constructed or recursed into.
Whatever is wrong with the text becomes a diagnostic: `read` raises for no input. What the keys and
values mean is not known here. Size, depth and node limits hold with aliases expanded, because an alias
costs nothing to write and everything to walk.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any

import msgspec
from yaml._yaml import CParser
from yaml.error import MarkedYAMLError
from yaml.events import ScalarEvent
from yaml.reader import ReaderError

from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.location import position_in
from noetl.playbook.nodes import Entry, Mapping, Node, Scalar, Sequence, plain
from noetl.playbook.syntax import control_character_diagnostic, syntax_diagnostic
from noetl.playbook.tree import TreeBuilder

__all__ = [
    "DEFAULT_LIMITS",
    "Document",
    "Entry",
    "Mapping",
    "Node",
    "ReadLimits",
    "Scalar",
    "Sequence",
    "plain",
    "read",
]

_WIDE_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
# libyaml compares each such directive with all before it: a megabyte of them takes it many seconds.
_MOST_TAG_DIRECTIVES = 16
_LEADING_LINE = re.compile(r"[ \t]*+(?:(#[^\r\n]*+)|---[ \t]*+|%[^\r\n]*+)?(?:\r\n|\r|\n|\Z)")
# libyaml ends a line at these, YAML 1.2 and editors do not. They are parsed under another name, one of
# the code points that Unicode guarantees never to assign.
_FALSE_LINE_BREAKS = "\x85\u2028\u2029"
_STAND_INS = [chr(plane << 16 | low) for plane in range(1, 17) for low in (0xFFFE, 0xFFFF)]


class ReadLimits(msgspec.Struct, frozen=True):
    max_bytes: int = 1_048_576
    max_depth: int = 64
    max_nodes: int = 100_000


DEFAULT_LIMITS = ReadLimits()


class Document(msgspec.Struct, eq=False):
    """`text` is the file without its byte order mark; `root` is None if the file is unusable."""

    text: str
    root: Mapping | None
    diagnostics: list[Diagnostic]

    @property
    def comments(self) -> str:
        """The comment block at the head of the file, verbatim, with the blank lines inside it."""
        kept: list[str] = []
        last_comment = position = 0
        while position < len(self.text):
            line = _LEADING_LINE.match(self.text, position)
            if line is None:
                break
            position = line.end()
            if line[1] is not None:
                kept.append(line[0])
                last_comment = len(kept)
            elif not line[0].strip():
                kept.append(line[0])
        return "".join(kept[:last_comment])


def read(data: bytes, limits: ReadLimits = DEFAULT_LIMITS) -> Document:
    """Parse a playbook file. A root, where there is one, is a mapping; see `Document.diagnostics`."""
    if len(data) > limits.max_bytes:
        return _refused(
            "yaml.too_large",
            f"The file has {len(data)} bytes, more than the limit of {limits.max_bytes} (max_bytes).",
            hint="Split the playbook, or keep large data outside it.",
        )
    if data.startswith(_WIDE_BOMS) or b"\0\0" in (data[0:4:2], data[1:4:2]):
        return _refused(
            "yaml.encoding", "The file is encoded as UTF-16 or UTF-32.", hint="Save the file as UTF-8."
        )
    while data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return _not_utf8(data, error.start)
    if text.count("\n%TAG") + text.count("\r%TAG") > _MOST_TAG_DIRECTIVES:
        message = f"The file has more than {_MOST_TAG_DIRECTIVES} %TAG directives."
        return _refused("yaml.tag", message, hint="Remove them; playbooks need none.")
    return _parse(text, data, limits)


def _parse(text: str, data: bytes, limits: ReadLimits) -> Document:
    tree = TreeBuilder(text, limits.max_depth, limits.max_nodes)
    root: Mapping | None = None
    try:
        root = tree.build(_event_source(text, data))
    except MarkedYAMLError as error:
        found = syntax_diagnostic(error, text)
        # An unquoted template has been named by then; what the parser stumbles over next is its echo.
        if ("yaml.key", found.line) not in ((known.code, known.line) for known in tree.diagnostics):
            tree.diagnostics.append(found)
    except ReaderError:
        tree.diagnostics.append(control_character_diagnostic(text))
    diagnostics = sorted(tree.diagnostics, key=lambda known: (known.line, known.column))
    return Document(text, root, diagnostics)


def _event_source(text: str, data: bytes) -> Callable[[], Any]:
    """The parser's events, with U+0085, U+2028 and U+2029 as the ordinary characters they are."""
    present = [character for character in _FALSE_LINE_BREAKS if character in text]
    if not present:
        return CParser(data).get_event
    free = [character for character in _STAND_INS if character not in text]
    hidden = dict(zip(map(ord, present), free, strict=False))
    shown = {ord(stand_in): chr(character) for character, stand_in in hidden.items()}
    get_event = CParser(text.translate(hidden).encode()).get_event

    def restored_event() -> Any:  # noqa: ANN401 - the parser's event classes have no common type
        event = get_event()
        if type(event) is ScalarEvent:
            event.value = event.value.translate(shown)
        return event

    return restored_event


def _not_utf8(data: bytes, start: int) -> Document:
    before = data[:start].decode()
    line, column = position_in(before, len(before))
    message = f"The byte 0x{data[start]:02X} here is not valid UTF-8."
    return _refused("yaml.encoding", message, line, column, hint="Save the file as UTF-8.")


def _refused(code: str, message: str, line: int = 1, column: int = 1, *, hint: str) -> Document:
    found = Diagnostic(severity="error", code=code, message=message, line=line, column=column, hint=hint)
    return Document("", None, [found])
