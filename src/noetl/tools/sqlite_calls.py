"""Runs the calls of the kind `sqlite`: a connection for each, in a thread that can be interrupted.

One call is one transaction, unless its text manages its own. Files outside the execution's folder are
closed to the text too, not only to `database`.
"""

from __future__ import annotations

import atexit
import sqlite3
import time
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Final

from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.outcomes import ok
from noetl.tools.paths import PathRefusedError, under
from noetl.tools.processes.folders import OwnFolder
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
from noetl.tools.sql_files import MEMORY, FileJob
from noetl.tools.sql_rows import TOO_LARGE
from noetl.tools.sql_statements import Statement, manages_transactions, statements
from noetl.tools.sql_tables import bound
from noetl.tools.sqlite import DESCRIPTION, SqliteConfig
from noetl.tools.threads import in_thread

BUSY_SECONDS: Final = 2.0
"""How long a statement waits for a lock before the call fails and may be retried."""

MAX_VALUE_BYTES: Final = 64 << 20
"""Of one text or blob: SQLite makes such a value in one go, and nothing can interrupt it."""

# These work outside transactions only, or mean something else inside.
_BEFORE_TRANSACTION: Final = frozenset(("pragma", "attach", "detach", "vacuum"))
_RETRYABLE: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")


async def run_sqlite(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    try:
        config = read_config(call, SqliteConfig)
        job = SqliteJob(config, call.args, context.folder)
        rows = await in_thread(job.work, job.interrupt, confined_to=job.places())
    except CALL_FAILURES as error:
        return failure(call, started, error, "sqlite", DESCRIPTION.outcome_fields)
    except sqlite3.Error as error:
        return failure(call, started, translated_sqlite(error), "sqlite", DESCRIPTION.outcome_fields)
    return ok(call, started, rows, sqlite={"code": None})


@cache
def _temporary_files() -> Path:
    """The folder for what SQLite keeps on the side: its usual ones lie outside of a thread's confinement."""
    folder = OwnFolder()
    atexit.register(folder.remove)
    with closing(sqlite3.connect(MEMORY)) as connection:  # the setting is the whole process's
        connection.execute("PRAGMA temp_store_directory = '" + str(folder.path).replace("'", "''") + "'")
    return folder.path


def translated_sqlite(error: sqlite3.Error) -> CallFailedError:
    code = getattr(error, "sqlite_errorname", None)
    retryable = code is not None and code.startswith(_RETRYABLE)
    kind = CONFLICT if retryable else CONSTRAINT if isinstance(error, sqlite3.IntegrityError) else STATEMENT
    if code == "SQLITE_AUTH":
        kind = ACCESS
    failed = CallFailedError(kind, str(error), retryable=retryable)
    if code == "SQLITE_TOOBIG":
        message = f"a value, or the SQL itself, has more than {MAX_VALUE_BYTES} bytes"
        failed = CallFailedError(TOO_LARGE, message, limit=MAX_VALUE_BYTES)
    failed.group = {"code": code}
    return failed


class SqliteJob(FileJob[SqliteConfig, sqlite3.Connection]):
    def __init__(self, config: SqliteConfig, args: object, folder: Path) -> None:
        super().__init__(config, args, folder)
        self._statements: list[Statement] = []
        if self.write is None:
            self._statements = statements(sql_text(config), "sqlite", sqlite3.complete_statement)

    def places(self) -> list[Path]:
        return [*super().places(), _temporary_files()]

    def connect(self) -> sqlite3.Connection:
        if self.database == MEMORY:
            return sqlite3.connect(MEMORY, isolation_level=None)
        path = under(self.folder, self.database)
        mode = "ro" if self.config.read_only else "rwc"
        if mode == "rwc":
            path.parent.mkdir(parents=True, exist_ok=True)
        uri = f"{path.as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)

    def interruption(self) -> Exception:
        return sqlite3.OperationalError("interrupted")

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
                    and Path(first) == under(self.folder, first)
                )
            except PathRefusedError:
                inside = False
            return sqlite3.SQLITE_OK if inside else sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and first in ("temp_store_directory", "data_store_directory"):
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def run(self, connection: sqlite3.Connection) -> list[dict[str, Any]]:
        connection.set_authorizer(self._authorize)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        if self.write is not None:
            self._begin(connection)
            for batch in self.write.batches:
                marks = ", ".join("?" * len(batch.columns))
                text = self.write.insert(batch.columns, f"VALUES ({marks})")
                self.check_stopped()
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
        positions, params = self.positions(), self.config.params
        given = params if isinstance(params, dict) else {}
        named = {name: self._bound(value) for name, value in given.items()}
        alone = len(self._statements) == 1
        for statement in self._statements:
            self.check_stopped()
            if not (own or alone or connection.in_transaction or statement.word in _BEFORE_TRANSACTION):
                self._begin(connection)
            values: Any = named
            if positions is not None:
                values = [self._bound(value) for value in positions.take(statement.bare.count("?"))]
            cursor = connection.execute(statement.text, values)
            if cursor.description is not None:
                rows = self.rows_of(cursor)
        if positions is not None:
            positions.check_all_taken()
        return rows

    def _begin(self, connection: sqlite3.Connection) -> None:
        # Taking the write lock at once spares two writers the deadlock of both upgrading.
        connection.execute("BEGIN" if self.config.read_only else "BEGIN IMMEDIATE")

    @staticmethod
    def _bound(value: object) -> object:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise invalid("SQLite has no whole number as large as one of the values")
        return bound(value)
