"""Runs the calls of the kind `sqlite`: a connection for each, in a thread that can be interrupted.

One call is one transaction, unless its text manages its own. Files outside the execution's folder are
closed to the text too, not only to `database`.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any, Final

from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.outcomes import ok
from noetl.tools.paths import PathRefusedError, under
from noetl.tools.sql_calls import (
    ACCESS,
    CALL_FAILURES,
    CONFLICT,
    CONSTRAINT,
    STATEMENT,
    failure,
    invalid,
    open_transaction,
    read_config,
    sql_text,
)
from noetl.tools.sql_rows import BATCH, add_rows, column_names
from noetl.tools.sql_statements import Positions, Statement, manages_transactions, statements
from noetl.tools.sql_tables import bound, table_write
from noetl.tools.sqlite import DESCRIPTION, SqliteConfig
from noetl.tools.threads import in_thread

BUSY_SECONDS: Final = 2.0
"""How long a statement waits for a lock before the call fails and may be retried."""
MEMORY: Final = ":memory:"

# These work outside transactions only, or mean something else inside.
_BEFORE_TRANSACTION: Final = frozenset(("pragma", "attach", "detach", "vacuum"))
_RETRYABLE: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")


async def run_sqlite(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    try:
        config = read_config(call, SqliteConfig)
        job = _Job(config, call.args, context.folder)
        rows = await in_thread(job.work, job.interrupt)
    except CALL_FAILURES as error:
        return failure(call, started, error, "sqlite", DESCRIPTION.outcome_fields)
    except sqlite3.Error as error:
        return failure(call, started, _translated(error), "sqlite", DESCRIPTION.outcome_fields)
    return ok(call, started, rows, sqlite={"code": None})


def _translated(error: sqlite3.Error) -> CallFailedError:
    code = getattr(error, "sqlite_errorname", None)
    retryable = code is not None and code.startswith(_RETRYABLE)
    kind = CONFLICT if retryable else CONSTRAINT if isinstance(error, sqlite3.IntegrityError) else STATEMENT
    if code == "SQLITE_AUTH":
        kind = ACCESS
    failed = CallFailedError(kind, str(error), retryable=retryable)
    failed.group = {"code": code}
    return failed


class _Job:
    """One call's work; everything but `interrupt` happens in its thread."""

    def __init__(self, config: SqliteConfig, args: object, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._stopped = False
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._write = None if config.table is None else table_write(config, args)
        self._statements: list[Statement] = []
        if self._write is None:
            self._statements = statements(sql_text(config), "sqlite", sqlite3.complete_statement)

    def interrupt(self) -> None:
        with self._lock:
            self._stopped = True
            if self._connection is not None:
                self._connection.interrupt()

    def work(self) -> list[dict[str, Any]]:
        connection = self._connect()
        try:
            with self._lock:
                self._connection = connection
            connection.set_authorizer(self._authorize)
            return self._run(connection)
        finally:
            with self._lock:
                self._connection = None
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        database = self._config.database or self._config.dsn or MEMORY
        if database == MEMORY:
            return sqlite3.connect(MEMORY, isolation_level=None)
        path = under(self._folder, database)
        mode = "ro" if self._config.read_only else "rwc"
        if mode == "rwc":
            path.parent.mkdir(parents=True, exist_ok=True)
        uri = f"{path.as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
    ) -> int:
        if action == sqlite3.SQLITE_ATTACH:
            # A file that the statement computes is not known here, and an empty name is a temporary one.
            if first in ("", MEMORY):
                return sqlite3.SQLITE_OK
            try:
                inside = (
                    first is not None
                    and not first.startswith("file:")
                    and Path(first) == under(self._folder, first)
                )
            except PathRefusedError:
                inside = False
            return sqlite3.SQLITE_OK if inside else sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and first in ("temp_store_directory", "data_store_directory"):
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _run(self, connection: sqlite3.Connection) -> list[dict[str, Any]]:
        if self._write is not None:
            self._begin(connection)
            for batch in self._write.batches:
                marks = ", ".join("?" * len(batch.columns))
                text = self._write.insert(batch.columns, f"VALUES ({marks})")
                self._check_stopped()
                connection.executemany(
                    text, ([self._bound(row[name]) for name in batch.columns] for row in batch.rows)
                )
            connection.execute("COMMIT")
            return []
        own = manages_transactions(self._statements)
        rows = self._run_statements(connection, own)
        if connection.in_transaction:
            if own:
                raise open_transaction()
            connection.execute("COMMIT")
        return rows

    def _run_statements(self, connection: sqlite3.Connection, own: bool) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        params = self._config.params
        positions = Positions(params) if isinstance(params, list) else None
        given = params if isinstance(params, dict) else {}
        named = {name: self._bound(value) for name, value in given.items()}
        alone = len(self._statements) == 1
        for statement in self._statements:
            self._check_stopped()
            if not (own or alone or connection.in_transaction or statement.word in _BEFORE_TRANSACTION):
                self._begin(connection)
            values: Any = named
            if positions is not None:
                values = [self._bound(value) for value in positions.take(statement.bare.count("?"))]
            cursor = connection.execute(statement.text, values)
            if cursor.description is not None:
                rows = self._fetch(cursor)
        if positions is not None:
            positions.check_all_taken()
        return rows

    def _begin(self, connection: sqlite3.Connection) -> None:
        # Taking the write lock at once spares two writers the deadlock of both upgrading.
        connection.execute("BEGIN" if self._config.read_only else "BEGIN IMMEDIATE")

    def _fetch(self, cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        names = column_names(column[0] for column in cursor.description)
        while fetched := cursor.fetchmany(BATCH):
            self._check_stopped()
            add_rows(rows, names, fetched)
        return rows

    def _check_stopped(self) -> None:
        if self._stopped:
            raise sqlite3.OperationalError("interrupted")

    @staticmethod
    def _bound(value: object) -> object:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise invalid("SQLite has no whole number as large as one of the values")
        return bound(value)
