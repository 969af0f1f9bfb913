"""Rows of a database as JSON data: one mapping by column name for each.

Dates and times become ISO text, intervals seconds, decimals numbers where a JSON number says the same digits
and text otherwise, binary data base64 text, UUIDs and whatever JSON has nothing for text. A NaN is null, an
infinite number the text `Infinity` or `-Infinity`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

BATCH: Final = 1000
"""How many rows are fetched and turned into data at a time."""

_AS_IT_IS: Final = frozenset((str, int, bool, type(None)))
_WHOLE_DIGITS: Final = 40


def column_names(names: Iterable[str]) -> list[str]:
    """The names of a result's columns; one that comes again is numbered, so that no value is lost."""
    found: dict[str, None] = {}
    for name in names:
        number, unique = 0, name
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        found[unique] = None
    return list(found)


def add_rows(rows: list[dict[str, Any]], names: Sequence[str], fetched: Iterable[Sequence[Any]]) -> None:
    for row in fetched:
        rows.append({
            name: value if type(value) in _AS_IT_IS else plain(value)
            for name, value in zip(names, row, strict=True)
        })  # fmt: skip


def plain(value: Any) -> Any:  # noqa: ANN401 - any value of a database
    """One value as JSON data."""
    if type(value) in _AS_IT_IS:
        return value
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


def _float(value: float) -> float | str | None:
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal) -> int | float | str | None:
    if not value.is_finite():
        return _float(float(value))
    if value == value.to_integral_value() and value.adjusted() < _WHOLE_DIGITS:
        return int(value)
    number = float(value)
    return number if math.isfinite(number) and Decimal(repr(number)) == value else str(value)
