"""Changes the names that templates read, token by token, and takes guards apart at their `and`s.

Only names are changed: never an attribute, a filter, a test, a keyword argument or anything in a
string. A template that cannot be changed with certainty (it has statements, or a name has no
counterpart) is given back as None, and the caller reports it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from noetl.playbook.model import Guard, Record, Value
from noetl.template import Template

_OPEN: Final = frozenset("([{")
_CLOSE: Final = frozenset(")]}")
COMPARISONS: Final = frozenset({"==", "!=", "<", ">", "<=", ">="})


_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<number>\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][-+]?\d[\d_]*)?)"
    r"|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<operator>\*\*|//|==|!=|<=|>=|[-+*/%~<>=()\[\]{},.:|])",
    re.DOTALL,
)


class Token(NamedTuple):
    """`kind` is `text` outside of braces, `begin` and `end` for those, and else a group of `_TOKEN`."""

    kind: str
    value: str


class Chain(NamedTuple):
    """A name with the constant attributes behind it, and how it is used."""

    name: str
    attributes: tuple[str, ...]
    defined: bool | None
    """`is defined` (True) or `is not defined` (False) stands behind the bare name."""
    alone: bool
    """It is a whole operand of `and`, `or`, `not`, or the whole expression."""


class Replacement(NamedTuple):
    """What stands for the name and the first `attributes` behind it, and the test if `test`."""

    text: str
    attributes: int = 0
    test: bool = False


Rename: TypeAlias = Callable[[Chain], Replacement | None]
"""None: there is nothing that stands for it."""
Names: TypeAlias = Mapping[str, Rename]


def to(name: str) -> Rename:
    """The plain renaming of one name."""
    return lambda _: Replacement(name)


def refused(_: Chain) -> None:
    """The renaming of a name that nothing stands for."""


# --- tokens -------------------------------------------------------------------------------------------


def tokens(source: str) -> list[Token] | None:
    """All tokens of a template that is known to parse, white space included; None if it has statements."""
    if "{%" in source or "{#" in source:
        return None
    found: list[Token] = []
    position = 0
    while (start := source.find("{{", position)) >= 0:
        found.append(Token("text", source[position:start]))
        position = _begin(source, start, found)
        depth = 0
        while not (depth == 0 and source.startswith(("}}", "-}}", "+}}"), position)):
            match = _TOKEN.match(source, position)
            if match is None or match.lastgroup is None:
                return None
            found.append(Token(match.lastgroup, match[0]))
            depth += _depth(found[-1])
            position = match.end()
        end = position + (2 if source[position] == "}" else 3)
        found.append(Token("end", source[position:end]))
        position = end
    return [*found, Token("text", source[position:])]


def _begin(source: str, start: int, found: list[Token]) -> int:
    end = start + (3 if source[start + 2 : start + 3] in ("-", "+") else 2)
    found.append(Token("begin", source[start:end]))
    return end


def _depth(token: Token) -> int:
    return (token.value in _OPEN) - (token.value in _CLOSE) if token.kind == "operator" else 0


def expression(guard: Guard) -> str:
    """The bare expression of a guard, which the checks know to be exactly one."""
    if isinstance(guard, bool):
        return "true" if guard else "false"
    source = guard.source.strip()
    if not Template(source).sole:
        raise TypeError(f"not one expression: {source}")
    # A sign right behind the braces is white space control, anywhere else a sign.
    begin = 3 if source[2] in "-+" else 2
    end = -3 if source[-3] in "-+" else -2
    return source[begin:end].strip()


def conjuncts(text: str) -> list[str]:
    """The parts of an expression that must all hold; the whole where it is no conjunction."""
    cut = _inside(text)
    depth = 0
    parts: list[list[Token]] = [[]]
    for token in cut:
        depth += _depth(token)
        if depth == 0 and token.kind == "name" and token.value in ("or", "if"):
            return [text]
        if depth == 0 and token == Token("name", "and"):
            parts.append([])
        else:
            parts[-1].append(token)
    return ["".join(token.value for token in part).strip() for part in parts]


def words(text: str) -> list[Token]:
    """The tokens of an expression without white space and without brackets around the whole."""
    found = [token for token in _inside(text) if token.kind != "space"]
    while len(found) > 2 and found[0].value == "(" and _closing(found, 0) == len(found) - 1:
        found = found[1:-1]
    return found


def conjunction(parts: list[str]) -> str:
    """One expression that holds when all parts do."""
    return " and ".join(_bracketed(part) if len(parts) > 1 else part for part in parts)


def negation(text: str) -> str:
    return f"not ({text})"


def as_guard(parts: list[str]) -> Template:
    return Template("{{ " + conjunction(parts) + " }}")


def operand(text: str) -> str:
    """The expression as something that any operator can stand beside."""
    found = words(text)
    operators = {"not", "and", "or", "if", "is", "in"}
    simple = all(
        token.value == "." or (token.kind == "name" and token.value not in operators) for token in found
    )
    whole = len(found) < len([token for token in _inside(text) if token.kind != "space"])
    return text if simple or whole or len(found) == 1 else f"({text})"


def _bracketed(text: str) -> str:
    """Brackets around what binds looser than `and`."""
    depth = 0
    for token in _inside(text):
        depth += _depth(token)
        if depth == 0 and token.kind == "name" and token.value in ("or", "if"):
            return f"({text})"
    return text


def _inside(text: str) -> list[Token]:
    found = tokens("{{ " + text + " }}") or []
    return [token for token in found if token.kind not in ("text", "begin", "end")]


def _closing(found: list[Token], start: int) -> int:
    depth = 0
    for index in range(start, len(found)):
        depth += _depth(found[index])
        if depth == 0:
            return index
    return -1


# --- changing names -----------------------------------------------------------------------------------


class Rewriter:
    """Changes names in templates and keeps what could not be changed in `failed`."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.failed: list[str] = []

    def value(self, value: Value) -> Value:
        """The same data with the names in its templates changed."""
        if isinstance(value, Template):
            return self.template(value)
        if isinstance(value, dict):
            return {name: self.value(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if type(value) is tuple:  # not a position
            return tuple(self.value(item) for item in value)
        if isinstance(value, Record):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return type(value)(**{name: self.value(item) for name, item in fields.items()})
        return value

    def template(self, template: Template) -> Template:
        if not any(read.path[0] in self.names for read in template.reads):
            return template
        cut = tokens(template.source)
        if cut is None:
            self.failed += [read.path[0] for read in template.reads if read.path[0] in self.names]
            return template
        return Template(self._changed(cut), template.at)

    def expression(self, text: str) -> str:
        """The same expression, which stands without its `{{ }}`, with its names changed."""
        return self.template(Template("{{ " + text + " }}")).source[3:-3]

    def _changed(self, cut: list[Token]) -> str:
        out: list[str] = []
        index = 0
        while index < len(cut):
            token = cut[index]
            if token.kind == "name" and token.value in self.names and _is_read(cut, index):
                text, index = self._replaced(cut, index)
                out.append(text)
            else:
                out.append(token.value)
                index += 1
        return "".join(out)

    def _replaced(self, cut: list[Token], index: int) -> tuple[str, int]:
        name = cut[index].value
        attributes, ends = _attributes(cut, index + 1)
        test_end, defined = _test(cut, ends[-1]) if not attributes else (ends[-1], None)
        alone = _is_operand(cut, index, ends[-1])
        found = self.names[name](Chain(name, tuple(attributes), defined, alone))
        if found is None:
            self.failed.append(".".join((name, *attributes)))
            return name, index + 1
        return found.text, test_end if found.test else ends[found.attributes]


def _is_read(cut: list[Token], index: int) -> bool:
    """Is this name token a name of the scope, not an attribute, filter, test or keyword?"""
    before = _neighbour(cut, index, -1)
    after = _neighbour(cut, index, 1)
    if before.value in (".", "|") and before.kind == "operator":
        return False
    if before == Token("name", "is") or (
        before == Token("name", "not") and _before_that(cut, index) == Token("name", "is")
    ):
        return False
    return not (after == Token("operator", "=") and before.value in ("(", ","))


def _before_that(cut: list[Token], index: int) -> Token:
    seen = [token for token in cut[:index] if token.kind != "space"]
    return seen[-2] if len(seen) > 1 else Token("", "")


def _neighbour(cut: list[Token], index: int, step: int) -> Token:
    index += step
    while 0 <= index < len(cut):
        if cut[index].kind != "space":
            return cut[index]
        index += step
    return Token("", "")


def _attributes(cut: list[Token], index: int) -> tuple[list[str], list[int]]:
    """The constant attributes from here on, and the index behind each; the first is behind none."""
    names: list[str] = []
    ends = [index]
    while index + 1 < len(cut):
        if cut[index].value == "." and cut[index + 1].kind == "name":
            names.append(cut[index + 1].value)
            index += 2
        elif (
            index + 2 < len(cut)
            and cut[index].value == "["
            and cut[index + 1].kind == "string"
            and cut[index + 2].value == "]"
        ):
            names.append(cut[index + 1].value[1:-1])
            index += 3
        else:
            break
        ends.append(index)
    if index < len(cut) and cut[index].value == "(":
        # The last name is a method, no attribute of the data.
        names, ends = names[:-1], ends[:-1] or [index]
    return names, ends


def _test(cut: list[Token], index: int) -> tuple[int, bool | None]:
    """The index behind `is [not] defined` if that follows, and which of the two it is."""
    found: list[str] = []
    while index < len(cut) and len(found) < 3:
        if cut[index].kind != "space":
            found.append(cut[index].value)
            if found == ["is", "defined"]:
                return index + 1, True
            if found == ["is", "not", "defined"] or found == ["is", "undefined"]:
                return index + 1, False
        index += 1
    return index, None


def _is_operand(cut: list[Token], index: int, end: int) -> bool:
    before = _neighbour(cut, index, -1)
    after = _neighbour(cut, end - 1, 1)
    left = before.kind == "begin" or before.value in ("(", "and", "or", "not")
    return left and (after.kind == "end" or after.value in (")", "and", "or"))


# --- literals -----------------------------------------------------------------------------------------


def literal(value: Value) -> str | None:
    """The expression that gives this data; None where a template in it is more than one expression."""
    if isinstance(value, Template):
        return operand(expression(value)) if value.sole else None
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, str):
        # Jinja reads the escapes of JSON text, `\/` and surrogates aside, which are not written.
        return json.dumps(value, ensure_ascii=False) if value.isprintable() and "\\" not in value else None
    if isinstance(value, list):
        items = [literal(item) for item in value]
        return None if None in items else f"[{', '.join(str(item) for item in items)}]"
    if isinstance(value, dict):
        pairs = [(json.dumps(name), literal(item)) for name, item in value.items()]
        if any(item is None for _, item in pairs):
            return None
        return "{" + ", ".join(f"{name}: {item}" for name, item in pairs) + "}"
    return repr(value)
