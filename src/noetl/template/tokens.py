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
    r"|(\*\*|//|==|!=|<=|>=|[-+*/%~<>()\[\]{},.:|]))"
)

_CLOSES: Final = {"(": ")", "[": "]", "{": "}"}
_BRACKETS: Final = frozenset("()[]{}")
_MAX_NESTING: Final = 20


class Token(NamedTuple):
    kind: int
    value: str
    offset: int


# A large playbook has tens of thousands of tokens; this skips the checks of the named constructor.
_made_token = tuple.__new__


class Refused(Exception):  # noqa: N818 - it is not an error: Jinja takes over
    """The template is outside the fast grammar."""


def cut(source: str) -> list[str | list[Token]]:
    """Text and expressions in turn, text first and last; an expression is its tokens up to END."""
    if "{%" in source or "{#" in source or "\r" in source:
        raise Refused
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
        raise Refused
    tokens: list[Token] = []
    open_brackets: list[str] = []
    for found in _TOKEN.finditer(source, position):
        if found.start() != position:
            raise Refused
        position = found.end()
        kind = found.lastindex or 0
        value = found[kind]
        offset = position - len(value)
        if kind == OPERATOR and value in _BRACKETS:
            if value in _CLOSES:
                open_brackets.append(_CLOSES[value])
                if len(open_brackets) > _MAX_NESTING:
                    raise Refused
            elif open_brackets:
                if open_brackets.pop() != value:
                    raise Refused
            elif value == "}" and source.startswith("}", position):
                # Inside brackets each brace closes a mapping; outside, two end the expression.
                tokens.append(_made_token(Token, (END, "", offset)))
                return tokens, position + 1
            else:
                raise Refused
        tokens.append(_made_token(Token, (kind, value, offset)))
    raise Refused
