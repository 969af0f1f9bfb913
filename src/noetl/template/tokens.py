"""Cuts a template into text and the tokens of its expressions, for the fast path.

It knows only what the fast grammar needs. On anything else, broken templates included, it refuses, and
Jinja has the last word; so it must accept nothing that Jinja would cut differently.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NAME: Final = 1
NUMBER: Final = 2
STRING: Final = 3
OPERATOR: Final = 4
END: Final = 5

_TOKEN = re.compile(
    r"[ \t\n]*(?:([A-Za-z_][A-Za-z0-9_]*)"
    r"|([0-9]+(?:\.[0-9]+)?)"
    r"|('[^'\\]*'|\"[^\"\\]*\")"
    r"|(\}\}|\*\*|//|==|!=|<=|>=|[-+*/%~<>()\[\]{},.:|]))"
)

_CLOSES: Final = {"(": ")", "[": "]", "{": "}"}
_MAX_NESTING: Final = 20


class Token(NamedTuple):
    kind: int
    value: str
    offset: int


class Refused(Exception):  # noqa: N818 - it is not an error: Jinja takes over
    """The template is outside the fast grammar."""


REFUSED: Final = Refused()


def cut(source: str) -> list[str | list[Token]]:
    """Text and expressions in turn, text first and last; an expression is its tokens up to END."""
    if "{%" in source or "{#" in source or "\r" in source:
        raise REFUSED
    parts: list[str | list[Token]] = []
    position = 0
    while True:
        start = source.find("{{", position)
        if start < 0:
            parts.append(source[position:])
            return parts
        parts.append(source[position:start])
        tokens, position = _expression(source, start + 2)
        parts.append(tokens)


def _expression(source: str, position: int) -> tuple[list[Token], int]:
    if source.startswith(("-", "+"), position):
        # Whitespace control.
        raise REFUSED
    tokens: list[Token] = []
    open_brackets: list[str] = []
    match = _TOKEN.match
    while True:
        found = match(source, position)
        if found is None:
            raise REFUSED
        kind = found.lastindex or 0
        value = found[kind]
        offset = found.start(kind)
        position = found.end()
        if kind == OPERATOR:
            if value == "}}":
                if not open_brackets:
                    tokens.append(Token(END, "", offset))
                    return tokens, position
                # Inside brackets each brace closes a mapping.
                value = "}"
                position = offset + 1
            if value in _CLOSES:
                open_brackets.append(_CLOSES[value])
                if len(open_brackets) > _MAX_NESTING:
                    raise REFUSED
            elif value in ")]}" and (not open_brackets or open_brackets.pop() != value):
                raise REFUSED
        tokens.append(Token(kind, value, offset))
