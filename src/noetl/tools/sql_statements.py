"""The statements of a SQL text and the parameters each of them takes.

Only what stands outside quotes and comments is looked at, so a value in the text is never taken for a
placeholder or for the end of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from noetl.template.sql import Dialect, without_quotes
from noetl.tools.sql_calls import invalid

Params: TypeAlias = Mapping[str, Any] | Sequence[Any]

OWN_TRANSACTION: Final = frozenset(("begin", "start", "commit", "end", "rollback", "abort"))
"""A statement that begins with one of these says that the text manages its transactions itself."""

_FIRST_WORD: Final = re.compile(r"\s*([A-Za-z]+)")
_POSTGRES_PLACEHOLDER: Final = re.compile(
    r"%\((?P<percent>\w+)\)s|(?P<next>%s)(?!\w)|\$(?P<number>[0-9]+)|(?<![:\w]):(?P<colon>[A-Za-z_]\w*)"
)


class Statement(NamedTuple):
    text: str
    bare: str
    """The same without what is quoted and without comments."""

    @property
    def word(self) -> str:
        found = _FIRST_WORD.match(self.bare)
        return "" if found is None else found[1].lower()


def statements(
    text: str, dialect: Dialect, is_complete: Callable[[str], bool] | None = None
) -> list[Statement]:
    """The text cut at its semicolons; `is_complete` may say that a statement goes on behind one."""
    bare = without_quotes(text, dialect)
    found: list[Statement] = []
    start = 0
    for semicolon in re.finditer(";", bare):
        end = semicolon.end()
        if is_complete is None or is_complete(text[start:end]):
            found.append(Statement(text[start:end], bare[start:end]))
            start = end
    found.append(Statement(text[start:], bare[start:]))
    return [statement for statement in found if statement.bare.strip("; \t\n\r\f\v")]


def manages_transactions(found: Sequence[Statement]) -> bool:
    return any(statement.word in OWN_TRANSACTION for statement in found)


class Positions:
    """Hands out parameters by position, in the order in which the statements of a text take them."""

    def __init__(self, params: Sequence[Any]) -> None:
        self._params = params
        self._taken = 0
        self._highest = 0

    def take(self, count: int) -> list[Any]:
        self._taken += count
        if self._taken > len(self._params):
            raise invalid(f"the SQL has more placeholders than `params` has values ({len(self._params)})")
        return list(self._params[self._taken - count : self._taken])

    def at(self, number: int) -> Any:  # noqa: ANN401 - a parameter is any value
        if not 1 <= number <= len(self._params):
            raise invalid(f"`params` has no value number {number}")
        self._highest = max(self._highest, number)
        return self._params[number - 1]

    def check_all_taken(self) -> None:
        if max(self._taken, self._highest) < len(self._params):
            raise invalid("`params` has more values than the SQL has placeholders")


def postgres_params(statement: Statement, params: Mapping[str, Any] | Positions) -> tuple[str, list[Any]]:
    """The statement with PostgreSQL's own placeholders, and the values they stand for in order."""
    values: list[Any] = []
    numbers: dict[str, int] = {}
    pieces: list[str] = []
    position = 0
    for found in _POSTGRES_PLACEHOLDER.finditer(statement.bare):
        name = found["percent"] or found["colon"]
        if isinstance(params, Positions):
            if name is not None:
                continue
            key = found["number"] or f"next {len(values)}"
        else:
            # `a[1:n]` and `x::int` are no parameters.
            if name is None or (found["colon"] and name not in params):
                continue
            key = name
        if key not in numbers:
            numbers[key] = len(values) + 1
            values.append(_value_of(found, name, params))
        pieces += (statement.text[position : found.start()], f"${numbers[key]}")
        position = found.end()
    return "".join((*pieces, statement.text[position:])), values


def _value_of(found: re.Match[str], name: str | None, params: Mapping[str, Any] | Positions) -> Any:  # noqa: ANN401
    if isinstance(params, Positions):
        return params.at(int(found["number"])) if found["number"] else params.take(1)[0]
    if name is None or name not in params:
        raise invalid(f"`params` has no value named `{name}`")
    return params[name]
