"""Text and ids as PostgreSQL takes them: no NUL in text, and executions are numbers.

A NUL becomes two characters that PostgreSQL keeps, and comes back as it was; the sign that stands for it is
doubled where it is itself meant.
"""

from __future__ import annotations

import re
from typing import Any, Final

from noetl.store.protocol import StoreError

MARK: Final = "␀"
MARK_IN_JSON: Final = MARK.encode()
NUL_IN_JSON: Final = b"\\u0000"
_MARKED = re.compile(f"{MARK}(.)", re.DOTALL)
_LARGEST: Final = (1 << 63) - 1


def escaped(value: Any) -> Any:  # noqa: ANN401 - plain data
    """The value with every text in it, names of fields too, in a form that PostgreSQL takes."""
    if isinstance(value, str):
        if "\0" not in value and MARK not in value:
            return value
        return value.replace(MARK, MARK + MARK).replace("\0", MARK + "0")
    if isinstance(value, list):
        return [escaped(each) for each in value]
    if isinstance(value, dict):
        return {escaped(name): escaped(each) for name, each in value.items()}
    return value


def unescaped(value: Any) -> Any:  # noqa: ANN401 - a column
    if isinstance(value, str) and MARK in value:
        return _MARKED.sub(lambda found: "\0" if found[1] == "0" else MARK, value)
    return value


def number_or_none(execution_id: str | None) -> int | None:
    """The number of an execution; None where no execution can have that id."""
    if execution_id is None or not execution_id.isascii() or not execution_id.isdecimal():
        return None
    number = int(execution_id)
    return number if number <= _LARGEST and str(number) == execution_id else None


def number_of(execution_id: str) -> int:
    number = number_or_none(execution_id)
    if number is None:
        raise StoreError(
            f"`{execution_id}` cannot be the id of an execution in PostgreSQL: ids are numbers of 63 bits."
        )
    return number
