"""Rows of a database as JSON data: one mapping by column name for each.

Dates and times become ISO text, intervals seconds, decimals numbers where a JSON number says the same digits
and text otherwise, binary data base64 text, UUIDs and whatever JSON has nothing for text. A NaN is null, an
infinite number the text `Infinity` or `-Infinity`. What the rows of one result take in memory is bounded:
they are weighed one by one as they come.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from sys import getsizeof
from typing import Any, Final

from noetl.tools.call_failures import CallFailedError

MAX_BYTES: Final = 256 << 20
"""Of memory that the rows of a result may take, by estimate."""

_ROW_BYTES: Final = 160
_VALUE_BYTES: Final = 64
_AS_IT_IS: Final = frozenset((str, int, bool, type(None)))
_SMALL: Final = frozenset((int, bool, type(None), float, datetime, date, time))
_WHOLE_DIGITS: Final = 40
TOO_LARGE: Final = "sql.too_large"


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


class Rows:
    """The rows of one result, as far as they have come."""

    def __init__(self, names: Iterable[str]) -> None:
        self.data: list[dict[str, Any]] = []
        self._names = column_names(names)
        self._left = MAX_BYTES
        self._least = _ROW_BYTES + _VALUE_BYTES * len(self._names)

    def add(self, row: Sequence[Any]) -> None:
        """CallFailedError where there are too many, or too large ones."""
        left = self._left - self._least
        for value in row:
            if type(value) is str:
                left -= len(value) if len(value) <= _VALUE_BYTES else getsizeof(value)
            elif type(value) not in _SMALL:
                left -= _weight(value)
        if left < 0:
            raise too_large()
        self._left = left
        self.data.append({
            name: value if type(value) in _AS_IT_IS else plain(value)
            for name, value in zip(self._names, row, strict=True)
        })  # fmt: skip


def too_large() -> CallFailedError:
    return CallFailedError(
        TOO_LARGE,
        f"the rows take more than {MAX_BYTES >> 20} MiB of memory: let the database do more of the work "
        "(`LIMIT`, an aggregate, `INSERT … SELECT`, `COPY`), or move them with a task of the kind `transfer`",
        limit=MAX_BYTES,
    )


def _weight(value: object) -> int:
    """About how many bytes a value takes beyond those that every one does."""
    if isinstance(value, str):
        return getsizeof(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value) * 4 // 3
    if isinstance(value, dict):
        return sum(2 * _VALUE_BYTES + _weight(key) + _weight(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(_VALUE_BYTES + _weight(item) for item in value)
    return 0


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
