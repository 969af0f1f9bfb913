"""One value on its way from one side of a transfer to the other.

What both sides have a type for stays as it is. Everything else follows the rules of `sql_rows.py`: ISO text
for dates and times, seconds for intervals, base64 text for binary data, JSON text for what is nested. The
digits of a number are never changed silently: where the other side has no such number they become text.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from noetl.tools.call_failures import CallFailedError
from noetl.tools.sql_rows import plain
from noetl.tools.transfer_sides import ROW

WHOLE: Final = 2**63
"""How far the whole numbers of most databases go."""

ENCODER: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=plain)
"""Writes decimals with all their digits; what JSON has nothing for as everywhere else."""

_MICROSECOND: Final = timedelta(microseconds=1)
_BINARY: Final = (bytes, bytearray, memoryview)


class JsonText(str):
    """The text of a JSON value, as its database gave it."""

    __slots__ = ()


def json_text(value: Any) -> str:  # noqa: ANN401 - a mapping or a list of a database or a file
    return ENCODER.encode(value).decode()


def text_of(value: Any) -> str | None:  # noqa: ANN401 - any value of a database or a file
    """The value where only text can stand; every database reads its own types from this."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else _float_text(float(value))
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return repr(value.total_seconds())
    if isinstance(value, _BINARY):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict | list | tuple | set | frozenset):
        return json_text(value)
    return str(value)


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def interval_text(value: Any) -> str | None:  # noqa: ANN401 - any value of a database or a file
    """The value for a column of intervals."""
    return f"{value // _MICROSECOND} microseconds" if isinstance(value, timedelta) else text_of(value)


def for_sqlite(value: Any) -> Any:  # noqa: ANN401 - any value of a database or a file
    """The value as SQLite has it: null, a number of 64 bits, text or binary data."""
    kind = type(value)
    if value is None or kind is str or kind is float or isinstance(value, bool | bytes):
        return value
    if kind is int:
        return value if -WHOLE <= value < WHOLE else str(value)
    if isinstance(value, _BINARY):
        return bytes(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        number = plain(value)
        fits = isinstance(number, float) or (isinstance(number, int) and -WHOLE <= number < WHOLE)
        return number if fits or number is None else format(value, "f") if value.is_finite() else number
    return text_of(value)


def for_json(value: Any) -> Any:  # noqa: ANN401 - any value of a database or a file
    """The value in a line of JSON."""
    if type(value) is JsonText:
        # Line ends in JSON can only stand between its parts.
        return msgspec.Raw(value.replace("\n", " ").replace("\r", " ").encode())
    if isinstance(value, timedelta) or (isinstance(value, float | Decimal) and not math.isfinite(value)):
        return plain(value)
    return value


def array_text(value: Any) -> str:  # noqa: ANN401 - a list of any values
    """A list as PostgreSQL reads arrays; a quoted element is read by the array's own type."""
    elements = []
    for each in value:
        if each is None:
            elements.append("NULL")
        elif isinstance(each, list | tuple):
            elements.append(array_text(each))
        else:
            text = f"\\x{bytes(each).hex()}" if isinstance(each, _BINARY) else interval_text(each) or ""
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            elements.append(f'"{escaped}"')
    return f"{{{','.join(elements)}}}"


def binary_decoder(places: list[int], names: tuple[str, ...]) -> Callable[[list[Any]], list[Any]]:
    """What makes binary data of the base64 text in some places of a row."""

    def decoded(row: list[Any]) -> list[Any]:
        for place in places:
            value = row[place]
            if isinstance(value, str):
                try:
                    row[place] = base64.b64decode(value, validate=True)
                except (binascii.Error, ValueError):
                    message = f"`{names[place]}` is a binary column, and a text for it is not base64"
                    raise CallFailedError(ROW, message) from None
        return row

    return decoded
