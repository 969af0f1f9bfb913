"""SQLite as a side of a transfer: a file in the execution's folder, read and written in threads.

The target's rows are one transaction, which takes the write lock at its beginning; closing a connection that
has not committed rolls back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from noetl.records.protocols import ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.paths import under
from noetl.tools.sql_calls import STATEMENT, invalid
from noetl.tools.sql_files import MEMORY
from noetl.tools.sql_rows import column_names
from noetl.tools.sqlite import SqliteConfig
from noetl.tools.sqlite_calls import BUSY_SECONDS, SqliteJob, translated_sqlite
from noetl.tools.threads import in_thread
from noetl.tools.transfer import TransferSource, TransferTarget
from noetl.tools.transfer_sides import Row, checked_target, source_text
from noetl.tools.transfer_values import for_sqlite

Given = TypeVar("Given")

ERRORS: Final = (sqlite3.Error, OSError)


def translated(error: Exception) -> CallFailedError:
    if isinstance(error, sqlite3.Error):
        return translated_sqlite(error)
    return CallFailedError(STATEMENT, f"the database file cannot be opened: {error}")


class _Database(SqliteJob):
    """A connection for as long as the transfer lasts, used by one thread at a time."""

    def connect(self) -> sqlite3.Connection:
        read_only = self.config.read_only
        if self.database == MEMORY:
            return sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
        path = under(self.folder, self.database)
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        uri = f"{path.as_uri()}?mode={'ro' if read_only else 'rwc'}"
        return sqlite3.connect(
            uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[sqlite3.Connection]:
        try:
            yield await self.doing(self._open)
        finally:
            # Opened, even if the task was cancelled before it was told.
            connection, self._connection = self._connection, None
            if connection is not None:
                await in_thread(connection.close, lambda: None, confined_to=self.places())

    def _open(self) -> sqlite3.Connection:
        connection = self.connect()
        connection.set_authorizer(self._authorize)
        with self._lock:
            self._connection = connection
        return connection

    async def doing(self, work: Callable[[], Given]) -> Given:
        return await in_thread(work, self.interrupt, confined_to=self.places())

    def query(self, connection: sqlite3.Connection) -> sqlite3.Cursor:
        if len(self._statements) != 1:
            raise invalid("`query` must be one statement")
        [statement] = self._statements
        positions, params = self.positions(), self.config.params
        values: Any = (
            {name: self._bound(each) for name, each in params.items()} if isinstance(params, dict) else ()
        )
        if positions is not None:
            values = [self._bound(each) for each in positions.take(statement.bare.count("?"))]
            positions.check_all_taken()
        cursor = connection.execute(statement.text, values)
        if cursor.description is None:
            raise invalid("`query` gives no rows")
        return cursor


class _Source:
    only_text = False

    def __init__(self, database: _Database, cursor: sqlite3.Cursor) -> None:
        self._database = database
        self._cursor = cursor
        self.names = column_names(column[0] for column in cursor.description)

    async def fetch(self, size: int) -> list[Row]:
        return await self._database.doing(lambda: self._cursor.fetchmany(size))


class _Target:
    def __init__(self, database: _Database, connection: sqlite3.Connection, side: TransferTarget) -> None:
        self._database = database
        self._connection = connection
        self._side = side
        self._insert = ""

    async def begin(self, columns: tuple[str, ...]) -> frozenset[str]:
        write = self._database.write
        assert write is not None
        if columns:
            self._insert = write.insert(columns, f"VALUES ({', '.join('?' * len(columns))})")

        def work() -> frozenset[str]:
            self._connection.execute("BEGIN IMMEDIATE")
            if self._side.mode == "replace":
                self._connection.execute(f"DELETE FROM {write.table}")
            return self._binary()

        return await self._database.doing(work)

    def _binary(self) -> frozenset[str]:
        *schema, table = checked_target(self._side).split(".")
        found = self._connection.execute(
            "SELECT name, type FROM pragma_table_info(?, ?)", [table, schema[0] if schema else "main"]
        )
        return frozenset(name for name, declared in found if "BLOB" in declared.upper())

    async def write(self, rows: list[Row]) -> None:
        def work() -> None:
            self._connection.executemany(self._insert, ([for_sqlite(value) for value in row] for row in rows))

        await self._database.doing(work)

    async def commit(self) -> None:
        await self._database.doing(lambda: self._connection.execute("COMMIT"))


@asynccontextmanager
async def source(
    side: TransferSource, wanted: list[str] | None, context: ToolContext
) -> AsyncIterator[_Source]:
    config = SqliteConfig(
        query=source_text(side), params=side.params, database=side.database, dsn=side.dsn, read_only=True
    )
    database = _Database(config, None, context.folder)
    async with database.opened() as connection:
        cursor = await database.doing(lambda: database.query(connection))
        yield _Source(database, cursor)


@asynccontextmanager
async def target(side: TransferTarget, context: ToolContext) -> AsyncIterator[_Target]:
    if (side.database or side.dsn or MEMORY) == MEMORY:
        raise invalid("a `database` is needed: one in memory would be gone with the task")
    config = SqliteConfig(
        table=checked_target(side),
        mode="upsert" if side.mode == "upsert" else "insert",
        key=side.key,
        database=side.database,
        dsn=side.dsn,
    )
    database = _Database(config, [], context.folder)
    async with database.opened() as connection:
        yield _Target(database, connection, side)
