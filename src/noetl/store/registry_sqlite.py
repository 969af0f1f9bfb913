"""The registry's tables in the SQLite database of the embedded stack.

They lie in the file of the executions, but need not be asked for through its owner: any process may read
and write them, each change in a transaction of its own. Only bringing the schema up to date takes the
owner's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from noetl.private_folders import begin_private, make_private
from noetl.store.codec import decode_json
from noetl.store.protocol import StoreError
from noetl.store.queries import migrations, queries
from noetl.store.registry_queries import JSON_COLUMNS, Found, QueryRegistry, Statement
from noetl.store.sqlite_connection import (
    check_schema,
    connect,
    database_path,
    driver_errors,
    keep_log_ahead,
    migrate,
)
from noetl.store.sqlite_lock import OwnerLock

BUSY_SECONDS: Final = 5.0

_QUERIES: Final = queries("sqlite", "registry")


def open_sqlite_registry(
    url: str, *, create: bool = True, busy_seconds: float = BUSY_SECONDS
) -> QueryRegistry:
    """The registry at `sqlite:///path`; StoreError where there is none, or it cannot be used."""
    path = database_path(url)
    if path is not None:
        _prepare(path, create=create, busy_seconds=busy_seconds)
    with driver_errors(path):
        connection = connect(path, busy_seconds=busy_seconds)
        try:
            if path is None:
                migrate(connection, path)
        except (sqlite3.Error, StoreError):
            connection.close()
            raise
    return QueryRegistry(SqliteRunner(connection, path))


def _prepare(path: Path, *, create: bool, busy_seconds: float) -> None:
    """Makes the database and its tables, unless they are there."""
    if not path.exists():
        if not create:
            raise StoreError(f"There is no database at {path}. Name another with --store.")
        try:
            make_private(path.parent)
        except OSError as refused:
            raise StoreError(
                f"There can be no database at {path} ({refused.strerror}). Choose another place for it."
            ) from refused
    elif _is_current(path, busy_seconds):
        return
    lock = OwnerLock(path)
    try:
        begin_private(path)  # the journals beside it get its mode
        with driver_errors(path), contextlib.closing(connect(path, busy_seconds=busy_seconds)) as connection:
            check_schema(connection, path)
            keep_log_ahead(connection, path)
            migrate(connection, path)
    finally:
        lock.release()


def _is_current(path: Path, busy_seconds: float) -> bool:
    known = max(each.version for each in migrations("sqlite"))
    with driver_errors(path), contextlib.closing(connect(path, busy_seconds=busy_seconds)) as connection:
        return check_schema(connection, path) == known


class SqliteRunner:
    """One connection in one thread, so that no event loop waits for a disk."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        connection.row_factory = sqlite3.Row
        self._connection = connection
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="noetl-sqlite-registry")
        self._closed = False

    async def run(self, statements: Sequence[Statement]) -> list[Found]:
        if self._closed:
            raise StoreError("The registry is closed. Open it again to go on.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, statements)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._thread.shutdown)
            self._connection.close()

    def _run(self, statements: Sequence[Statement]) -> list[Found]:
        with driver_errors(self._path):
            self._connection.execute("BEGIN" if _only_reads(statements) else "BEGIN IMMEDIATE")
            try:
                found = [
                    [_decoded(row) for row in self._connection.execute(_QUERIES[name], dict(values))]
                    for name, values in statements
                ]
                self._connection.execute("COMMIT")
            except (sqlite3.Error, StoreError):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            except (OverflowError, UnicodeEncodeError) as refused:
                self._connection.execute("ROLLBACK")
                raise StoreError(f"A value cannot be stored ({refused}).") from refused
            return found


def _only_reads(statements: Sequence[Statement]) -> bool:
    """Whether nothing is written: then nobody who writes has to be waited for."""
    return all(_QUERIES[name].startswith("SELECT") for name, _ in statements)


def _decoded(row: sqlite3.Row) -> dict[str, Any]:
    found = dict(row)
    for column in JSON_COLUMNS:
        if column in found:
            found[column] = decode_json(found[column].encode("utf-8"))
    return found
