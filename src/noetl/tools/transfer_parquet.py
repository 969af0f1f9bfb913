"""Parquet files as sides of a transfer, through DuckDB.

A Parquet file has typed columns, and the type of a column is known only when its last value was seen. So the
rows go to a file of JSON lines first, all values as text, while the types are noted; then DuckDB makes the
Parquet file of it in one stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import UUID

import duckdb
import msgspec

from noetl.tools.call_failures import CallFailedError
from noetl.tools.duckdb import DuckdbConfig
from noetl.tools.sql_tables import TableWrite
from noetl.tools.threads import in_folder, in_thread, let_it_end
from noetl.tools.transfer_duckdb import Database, DuckdbSource, rows_of, translated
from noetl.tools.transfer_files import AsideFile
from noetl.tools.transfer_sides import COLUMNS, FILE, Row
from noetl.tools.transfer_values import WHOLE, text_of

_MOST_DIGITS: Final = 38
_CONVERTING: Final = "512MB"
_SMALLEST_BUFFER: Final = 4 * 1024 * 1024
_TYPES: Final[dict[type, str]] = {
    bool: "BOOLEAN",
    float: "DOUBLE",
    timedelta: "DOUBLE",
    date: "DATE",
    time: "TIME",
    UUID: "UUID",
    bytes: "BLOB",
}


def _told(error: duckdb.Error) -> CallFailedError:
    failed = translated(error)
    return CallFailedError(FILE, f"the Parquet file cannot be used: {error}", retryable=failed.retryable)


class _ParquetSource:
    only_text = False

    def __init__(self, rows: DuckdbSource) -> None:
        self._rows = rows
        self.names = rows.names

    async def fetch(self, size: int) -> list[Row]:
        try:
            return await self._rows.fetch(size)
        except duckdb.Error as error:
            raise _told(error) from None


@asynccontextmanager
async def parquet_source(path: Path, folder: Path) -> AsyncIterator[_ParquetSource]:
    config = DuckdbConfig(query="SELECT * FROM read_parquet($path)", params={"path": str(path)})
    async with AsyncExitStack() as opened:
        try:
            rows = await opened.enter_async_context(rows_of(config, folder))
        except duckdb.Error as error:
            raise _told(error) from None
        yield _ParquetSource(rows)


class _Column:
    """What the values of a column have in common."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._whole_digits = 0
        self._fraction_digits = 0

    def note(self, value: Any) -> None:  # noqa: ANN401 - any value of a database or a file
        kind = type(value)
        if kind is str:
            self._kinds.add("VARCHAR")
        elif kind is int:
            self._kinds.add("BIGINT" if -WHOLE <= value < WHOLE else "DECIMAL")
            self._whole_digits = max(self._whole_digits, len(str(abs(value))))
        elif kind is Decimal:
            self._note_decimal(value)
        elif kind is datetime:
            self._kinds.add("TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ")
        else:
            self._kinds.add(_TYPES.get(kind, "VARCHAR"))

    def _note_decimal(self, value: Decimal) -> None:
        if not value.is_finite():
            self._kinds.add("DOUBLE")
            return
        self._kinds.add("DECIMAL")
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        self._whole_digits = max(self._whole_digits, len(digits) + exponent)
        self._fraction_digits = max(self._fraction_digits, -exponent)

    @property
    def type(self) -> str:
        kinds = self._kinds
        if kinds and kinds <= {"BIGINT", "DECIMAL", "DOUBLE"}:
            if "DOUBLE" in kinds:
                return "DOUBLE"
            if kinds == {"BIGINT"}:
                return "BIGINT"
            digits = max(self._whole_digits, 1) + self._fraction_digits
            return f"DECIMAL({digits}, {self._fraction_digits})" if digits <= _MOST_DIGITS else "VARCHAR"
        return next(iter(kinds)) if len(kinds) == 1 else "VARCHAR"


class _Converter(Database):
    """A database that only turns one file into another, in the order of its lines."""

    def _close_to_outside(self, connection: duckdb.DuckDBPyConnection) -> None:
        # With more threads it would keep what comes before its turn.
        connection.execute("SET threads = 1")
        connection.execute(f"SET memory_limit = '{_CONVERTING}'")
        super()._close_to_outside(connection)


class _ParquetTarget:
    def __init__(self, place: AsideFile, folder: Path) -> None:
        self._place = place
        self._folder = folder.resolve()
        self._staged = place.aside.with_suffix(".rows")
        self._columns: tuple[str, ...] = ()
        self._seen: list[_Column] = []
        self._longest = 0
        self._encoder = msgspec.json.Encoder()
        self._file: BinaryIO | None = None

    async def begin(self, columns: tuple[str, ...]) -> frozenset[str]:
        if not columns:
            raise CallFailedError(COLUMNS, "a Parquet file needs columns, and the source has none")
        self._columns = columns
        self._seen = [_Column() for _ in columns]
        self._file = await in_folder(self._folder, self._begun)
        return frozenset()

    def _begun(self) -> BinaryIO:
        self._place.path.parent.mkdir(parents=True, exist_ok=True)
        return self._staged.open("xb")

    async def write(self, rows: list[Row]) -> None:
        await in_thread(lambda: self._stage(rows), let_it_end)

    def _stage(self, rows: list[Row]) -> None:
        assert self._file is not None
        for column, values in zip(self._seen, zip(*rows, strict=True), strict=True):
            for value in values:
                if value is not None:
                    column.note(value)
        for row in rows:
            line = self._encoder.encode({f"c{place}": text_of(value) for place, value in enumerate(row)})
            self._longest = max(self._longest, len(line))
            self._file.write(line)
            self._file.write(b"\n")

    async def commit(self) -> None:
        assert self._file is not None
        self._file.close()
        database = _Converter(DuckdbConfig(query="SELECT 1"), None, self._folder)
        try:
            async with database.opened() as connection:
                await database.doing(lambda: connection.execute(self._copy_text()))
        except duckdb.Error as error:
            raise _told(error) from None
        await in_folder(self._folder, lambda: self._place.into_place(unless_changed=False))

    def _copy_text(self) -> str:
        texts = ", ".join(f"c{place}: 'VARCHAR'" for place in range(len(self._columns)))
        staged = (
            f"read_json({_quoted(self._staged)}, format = 'newline_delimited', columns = {{{texts}}}, "
            f"maximum_object_size = {max(_SMALLEST_BUFFER, 2 * self._longest)})"
        )
        values = ", ".join(
            f"{_cast(f'c{place}', column.type)} AS {TableWrite.quoted(name)}"
            for place, (name, column) in enumerate(zip(self._columns, self._seen, strict=True))
        )
        return f"COPY (SELECT {values} FROM {staged}) TO {_quoted(self._place.aside)} (FORMAT parquet)"

    def close(self) -> None:
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
        with suppress(OSError):
            self._staged.unlink(missing_ok=True)
        self._place.remove()


@asynccontextmanager
async def parquet_target(place: AsideFile, folder: Path) -> AsyncIterator[_ParquetTarget]:
    written = _ParquetTarget(place, folder)
    try:
        yield written
    finally:
        written.close()


def _quoted(path: Path) -> str:
    doubled = str(path).replace("'", "''")
    return f"'{doubled}'"


def _cast(name: str, declared: str) -> str:
    return f"from_base64({name})" if declared == "BLOB" else f"CAST({name} AS {declared})"
