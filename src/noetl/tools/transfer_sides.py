"""The two sides of a transfer, as the loop that moves the rows sees them.

A module of a side has the functions `source` and `target`, each an asynchronous context manager: leaving it
closes what it opened, and a target that was not committed is then as it was before. It also has the errors
of its library (`ERRORS`) and what they mean (`translated`). A row in between is a sequence of Python values,
not of JSON data, so that dates, decimals and binary data stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeAlias

from noetl.records.protocols import ToolContext
from noetl.template.sql_literals import quoted_name
from noetl.tools.call_failures import CallFailedError
from noetl.tools.sql_calls import invalid
from noetl.tools.transfer import TransferSource, TransferTarget

Row: TypeAlias = Sequence[Any]

FILE: Final = "transfer.file"
"""A file cannot be read or written."""
ROW: Final = "transfer.row"
"""A row of a file is not what its format says, or a value of it has no place in the target."""
COLUMNS: Final = "transfer.columns"
"""The columns of the two sides do not go together."""
CONFLICT: Final = "transfer.conflict"
"""Another task wrote the target's file meanwhile."""


class RowSource(Protocol):
    @property
    def names(self) -> list[str]:
        """The columns, in the order of a row's values."""
        ...

    @property
    def only_text(self) -> bool:
        """Whether binary data can only come as text, which is base64 then."""
        ...

    async def fetch(self, size: int) -> list[Row]:
        """The next rows; none at the end."""
        ...


class RowTarget(Protocol):
    async def begin(self, columns: tuple[str, ...]) -> frozenset[str]:
        """Opens the transaction, empties what is to be replaced; which of the columns are binary."""
        ...

    async def write(self, rows: list[Row]) -> None: ...

    async def commit(self) -> None: ...


class SideModule(Protocol):
    """What a module has that can be a side of a transfer."""

    ERRORS: tuple[type[Exception], ...]

    def translated(self, error: Exception) -> CallFailedError: ...

    def source(
        self, side: TransferSource, wanted: list[str] | None, context: ToolContext
    ) -> AbstractAsyncContextManager[RowSource]: ...

    def target(
        self, side: TransferTarget, context: ToolContext
    ) -> AbstractAsyncContextManager[RowTarget]: ...


def source_text(side: TransferSource) -> str:
    """The SQL that gives the rows of a database."""
    if side.url is not None or side.format is not None:
        raise invalid(f"`{side.kind}` takes no `url` and no `format`")
    if (side.query is None) == (side.table is None):
        raise invalid("either a `query` or a `table` is needed")
    if side.table is not None:
        if side.params is not None:
            raise invalid("`params` are those of a `query`")
        return f"SELECT * FROM {quoted_name(side.table)}"
    assert side.query is not None
    if not side.query.strip():
        raise invalid("`query` is empty")
    return side.query


def checked_target(side: TransferTarget) -> str:
    """The name of a database's table, as it was written."""
    if side.url is not None or side.format is not None:
        raise invalid(f"`{side.kind}` takes no `url` and no `format`")
    if not side.table:
        raise invalid("a `table` is needed")
    return side.table


def key_of(side: TransferTarget) -> list[str]:
    return [side.key] if isinstance(side.key, str) else side.key or []
