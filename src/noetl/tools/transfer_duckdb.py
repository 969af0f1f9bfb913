"""DuckDB as a side of a transfer: a file in the execution's folder, read and written in threads.

A batch goes to the target as one list of texts for each column, which DuckDB turns into the column's type;
that is far faster than values one by one. The target's rows are one transaction, and closing a connection
that has not committed rolls back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb

from noetl.records.protocols import ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.duckdb import DuckdbConfig
from noetl.tools.duckdb_calls import DuckdbJob, translated_duckdb
from noetl.tools.sql_calls import STATEMENT, invalid
from noetl.tools.sql_files import MEMORY
from noetl.tools.sql_rows import column_names
from noetl.tools.sql_tables import TableWrite
from noetl.tools.threads import in_thread
from noetl.tools.transfer import TransferSource, TransferTarget
from noetl.tools.transfer_sides import Row, checked_target, key_of, source_text
from noetl.tools.transfer_values import JsonText, interval_text, text_of

Given = TypeVar("Given")

ERRORS: Final = (duckdb.Error, OSError)

_NESTED: Final = ("STRUCT(", "MAP(", "UNION(")


def translated(error: Exception) -> CallFailedError:
    if isinstance(error, duckdb.Error):
        return translated_duckdb(error)
    return CallFailedError(STATEMENT, f"the database file cannot be opened: {error}")


class Database(DuckdbJob):
    """A connection for as long as the transfer lasts, used by one thread at a time."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[duckdb.DuckDBPyConnection]:
        try:
            yield await self.doing(self._open)
        finally:
            # Opened, even if the task was cancelled before it was told.
            connection, self._connection = self._connection, None
            if connection is not None:
                await in_thread(connection.close, lambda: None, confined_to=self.places())

    def _open(self) -> duckdb.DuckDBPyConnection:
        connection = self.connect()
        try:
            self._close_to_outside(connection)
        except BaseException:  # nobody else will close it
            connection.close()
            raise
        with self._lock:
            self._connection = connection
        return connection

    async def doing(self, work: Callable[[], Given]) -> Given:
        return await in_thread(work, self.interrupt, confined_to=self.places())

    def query(self, connection: duckdb.DuckDBPyConnection) -> None:
        found = connection.extract_statements(self._text)
        if len(found) != 1:
            raise invalid("`query` must be one statement")
        [statement] = found
        if statement.expected_result_type != [duckdb.ExpectedResultType.QUERY_RESULT]:
            raise invalid("`query` gives no rows")
        positions = self.positions()
        values = self._values(statement, positions)
        if positions is not None:
            positions.check_all_taken()
        connection.execute(statement, values)


class DuckdbSource:
    only_text = False

    def __init__(self, database: Database, connection: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self._connection = connection
        columns = connection.description or ()
        self.names = column_names(column[0] for column in columns)
        self._json = [place for place, column in enumerate(columns) if str(column[1]) == "JSON"]

    async def fetch(self, size: int) -> list[Row]:
        return await self._database.doing(lambda: self._fetched(size))

    def _fetched(self, size: int) -> list[Row]:
        rows = [list(row) for row in self._connection.fetchmany(size)]
        for place in self._json:
            for row in rows:
                if row[place] is not None:
                    row[place] = JsonText(row[place])
        return list(rows)


@asynccontextmanager
async def source(
    side: TransferSource, wanted: list[str] | None, context: ToolContext
) -> AsyncIterator[DuckdbSource]:
    config = DuckdbConfig(
        query=source_text(side), params=side.params, database=side.database, dsn=side.dsn, read_only=True
    )
    async with rows_of(config, context.folder) as rows:
        yield rows


@asynccontextmanager
async def rows_of(config: DuckdbConfig, folder: Path) -> AsyncIterator[DuckdbSource]:
    database = Database(config, None, folder.resolve())
    async with database.opened() as connection:
        await database.doing(lambda: database.query(connection))
        yield DuckdbSource(database, connection)


class _Target:
    def __init__(
        self, database: Database, connection: duckdb.DuckDBPyConnection, side: TransferTarget
    ) -> None:
        self._database = database
        self._connection = connection
        self._side = side
        self._types: list[str] = []
        self._insert = ""
        self._key: list[int] = []
        """With `upsert`: the places of the key's columns."""
        self._upsert = ""

    async def begin(self, columns: tuple[str, ...]) -> frozenset[str]:
        write = self._database.write
        assert write is not None

        def work() -> frozenset[str]:
            self._connection.execute("BEGIN")
            described = self._connection.execute(f"DESCRIBE {write.table}").fetchall()
            types = {name: declared for name, declared, *_ in described}
            if self._side.mode == "replace":
                self._connection.execute(f"DELETE FROM {write.table}")
            # A column that is not there is DuckDB's to tell.
            self._types = [types.get(name, "VARCHAR") for name in columns]
            if columns:
                self._prepare(write, columns)
            return frozenset(name for name, declared in types.items() if declared == "BLOB")

        return await self._database.doing(work)

    def _prepare(self, write: TableWrite, columns: tuple[str, ...]) -> None:
        lists = [
            f"unnest(CAST(? AS {_sent_as(each)}[])) AS c{place}" for place, each in enumerate(self._types)
        ]
        values = [_typed(f"c{place}", each) for place, each in enumerate(self._types)]
        rows = f"SELECT {', '.join(values)} FROM (SELECT {', '.join(lists)}, unnest(?) AS place)"
        names = ", ".join(write.quoted(name) for name in columns)
        self._insert = f"INSERT INTO {write.table} ({names}) {rows}"
        if self._side.mode == "upsert":
            self._key = [columns.index(name) for name in key_of(self._side) if name in columns]
            # Of several rows with one key the last; DuckDB alone would take the first.
            alike = ", ".join(values[place] for place in self._key)
            last = f"QUALIFY row_number() OVER (PARTITION BY {alike} ORDER BY place DESC) = 1"
            self._upsert = write.insert(columns, f"{rows} {last}")

    async def write(self, rows: list[Row]) -> None:
        def work() -> None:
            if not self._key:
                self._send(self._insert, rows)
                return
            # A key that is null is like no other, but DuckDB takes two in one statement for the same.
            without = [row for row in rows if any(row[place] is None for place in self._key)]
            with_key = rows
            if without:
                with_key = [row for row in rows if all(row[place] is not None for place in self._key)]
            self._send(self._upsert, with_key)
            self._send(self._insert, without)

        await self._database.doing(work)

    def _send(self, statement: str, rows: list[Row]) -> None:
        if rows:
            lists: list[list[Any]] = [
                [convert(value) for value in values]
                for convert, values in zip(map(_sent, self._types), zip(*rows, strict=True), strict=True)
            ]
            self._connection.execute(statement, [*lists, list(range(len(rows)))])

    async def commit(self) -> None:
        await self._database.doing(lambda: self._connection.execute("COMMIT"))


@asynccontextmanager
async def target(side: TransferTarget, context: ToolContext) -> AsyncIterator[_Target]:
    if (side.database or side.dsn or MEMORY) == MEMORY:
        raise invalid("a `database` is needed: one in memory would be gone with the task")
    config = DuckdbConfig(
        table=checked_target(side),
        mode="upsert" if side.mode == "upsert" else "insert",
        key=side.key,
        database=side.database,
        dsn=side.dsn,
    )
    database = Database(config, [], context.folder.resolve())
    async with database.opened() as connection:
        yield _Target(database, connection, side)


def _sent_as(declared: str) -> str:
    return "BLOB" if declared == "BLOB" else "VARCHAR"


def _sent(declared: str) -> Callable[[Any], Any]:
    if declared == "BLOB":
        return _bytes_of
    return interval_text if declared == "INTERVAL" else text_of


def _bytes_of(value: Any) -> bytes | None:  # noqa: ANN401 - any value of a database or a file
    if value is None or isinstance(value, bytes):
        return value
    return bytes(value) if isinstance(value, bytearray | memoryview) else (text_of(value) or "").encode()


def _typed(name: str, declared: str) -> str:
    """Lists and mappings come as JSON, whose strings are quoted in another way than those in a cast."""
    if declared.endswith("]") or declared.startswith(_NESTED):
        return f"CAST(CAST({name} AS JSON) AS {declared})"
    return f"CAST({name} AS {declared})"
