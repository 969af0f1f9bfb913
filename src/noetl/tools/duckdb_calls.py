"""Runs the calls of the kind `duckdb`: a connection for each, in a thread that can be interrupted.

Before any text runs, the connection is closed to every file outside the execution's folder and to the
network, and its configuration is locked. One call is one transaction, unless its text manages its own.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Final

import duckdb

from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.template.sql import without_quotes
from noetl.tools.call_failures import CallFailedError
from noetl.tools.duckdb import DESCRIPTION, DuckdbConfig
from noetl.tools.duckdb_paths import with_folder
from noetl.tools.outcomes import ok
from noetl.tools.paths import under
from noetl.tools.sql_calls import (
    ACCESS,
    CALL_FAILURES,
    CONFLICT,
    CONNECTION,
    CONSTRAINT,
    STATEMENT,
    failure,
    invalid,
    open_transaction,
    read_config,
    sql_text,
)
from noetl.tools.sql_files import MEMORY, FileJob
from noetl.tools.sql_statements import Positions
from noetl.tools.sql_tables import bound
from noetl.tools.threads import in_thread

MEMORY_LIMIT: Final = "1GB"
THREADS: Final = 4
ROWS_PER_INSERT: Final = 200
OPEN_WAIT_SECONDS: Final = 2.0
"""How long a file is waited for that another task has open in the other mode."""

_FREE_SETTINGS: Final = "['timezone', 'default_order', 'default_null_order', 'preserve_insertion_order']"
_SETTING_UP: Final = threading.Lock()
_TRANSACTION: Final = duckdb.StatementType.TRANSACTION
_CHANGES: Final = (
    duckdb.StatementType.INSERT,
    duckdb.StatementType.UPDATE,
    duckdb.StatementType.DELETE,
    duckdb.StatementType.COPY,
    duckdb.StatementType.CREATE,
)
_RETRYABLE: Final = (duckdb.TransactionException, duckdb.HTTPException, duckdb.ConnectionException)


async def run_duckdb(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    try:
        config = read_config(call, DuckdbConfig)
        job = DuckdbJob(config, call.args, context.folder.resolve())
        rows = await in_thread(job.work, job.interrupt, confined_to=job.places())
    except CALL_FAILURES as error:
        return failure(call, started, error, "duckdb", DESCRIPTION.outcome_fields)
    except duckdb.Error as error:
        return failure(call, started, translated_duckdb(error), "duckdb", DESCRIPTION.outcome_fields)
    return ok(call, started, rows, duckdb={"error_type": None})


def translated_duckdb(error: duckdb.Error) -> CallFailedError:
    kind, retryable = STATEMENT, False
    if isinstance(error, duckdb.ConstraintException):
        kind = CONSTRAINT
    elif isinstance(error, duckdb.PermissionException):
        kind = ACCESS
    elif isinstance(error, _RETRYABLE) or _is_locked(error):
        kind, retryable = (CONFLICT if isinstance(error, duckdb.TransactionException) else CONNECTION), True
    failed = CallFailedError(kind, str(error), retryable=retryable)
    failed.group = {"error_type": type(error).__name__}
    return failed


def _is_locked(error: duckdb.Error) -> bool:
    return isinstance(error, duckdb.IOException) and "lock" in str(error)


class DuckdbJob(FileJob[DuckdbConfig, duckdb.DuckDBPyConnection]):
    def __init__(self, config: DuckdbConfig, args: object, folder: Path) -> None:
        super().__init__(config, args, folder)
        self._text = "" if self.write is not None else with_folder(sql_text(config), folder)

    def connect(self) -> duckdb.DuckDBPyConnection:
        settings: dict[str, Any] = {
            "memory_limit": MEMORY_LIMIT,
            "threads": str(THREADS),
            "temp_directory": str(self.folder / ".duckdb"),
            "autoinstall_known_extensions": "false",
            "allow_community_extensions": "false",
            # Otherwise a name that is no table is looked up among the variables of this very code.
            "python_enable_replacements": "false",
        }
        if self.database == MEMORY:
            return duckdb.connect(MEMORY, config=settings)
        path = under(self.folder, self.database)
        read_only = self.config.read_only
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + OPEN_WAIT_SECONDS
        while True:
            try:
                return duckdb.connect(path, read_only=read_only, config=settings)
            except duckdb.ConnectionException:
                # Another task of the execution has the file open in the other mode.
                if time.monotonic() > until or self.stopped:
                    raise
                time.sleep(0.02)

    def interruption(self) -> Exception:
        return duckdb.InterruptException("interrupted")

    def _close_to_outside(self, connection: duckdb.DuckDBPyConnection) -> None:
        root = str(self.folder).replace("'", "''")
        with _SETTING_UP:
            # Connections to one file share these settings; the first of them has locked them already.
            locked = connection.execute("SELECT current_setting('lock_configuration')").fetchone()
            if locked is not None and locked[0]:
                return
            for statement in (
                f"SET allowed_directories = ['{root}']",
                f"SET allowed_configs = {_FREE_SETTINGS}",
                "SET enable_external_access = false",
                "SET lock_configuration = true",
            ):
                connection.execute(statement)

    def _load_extensions(self, connection: duckdb.DuckDBPyConnection) -> None:
        for name in self.config.extensions or ():
            if not name.isidentifier():
                raise invalid(f"`{name}` is not the name of a DuckDB extension")
            try:
                connection.execute(f"LOAD {name}")
            except duckdb.Error:
                message = f"the DuckDB extension `{name}` is not opened by the operator"
                raise CallFailedError(ACCESS, message) from None

    def run(self, connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
        self._close_to_outside(connection)
        self._load_extensions(connection)
        if self.write is not None:
            self._insert(connection)
            return []
        found = connection.extract_statements(self._text)
        own = any(statement.type == _TRANSACTION for statement in found)
        together = len(found) > 1 and not own
        if together:
            connection.execute("BEGIN")
        rows = self._run_statements(connection, found)
        if together:
            connection.execute("COMMIT")
        elif own and _in_transaction(connection):
            raise open_transaction()
        return rows

    def _run_statements(
        self, connection: duckdb.DuckDBPyConnection, found: list[duckdb.Statement]
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        positions = self.positions()
        for statement in found:
            self.check_stopped()
            connection.execute(statement, self._values(statement, positions))
            if _returns_rows(statement, connection):
                rows = self.rows_of(connection)
        if positions is not None:
            positions.check_all_taken()
        return rows

    def _values(self, statement: duckdb.Statement, positions: Positions | None) -> Any:  # noqa: ANN401
        wanted = statement.named_parameters
        if positions is not None:
            if "?" in without_quotes(statement.query, "duckdb"):
                return positions.take(len(wanted))
            return {name: positions.at(int(name)) for name in wanted if name.isdigit()}
        params = self.config.params
        given: dict[str, Any] = params if isinstance(params, dict) else {}
        missing = sorted(name for name in wanted if name not in given)
        if missing:
            raise invalid(f"`params` has no value named `{missing[0]}`")
        return {name: given[name] for name in wanted}

    def _insert(self, connection: duckdb.DuckDBPyConnection) -> None:
        assert self.write is not None
        connection.execute("BEGIN")
        for columns, rows in self.write.batches:
            marks = f"({', '.join('?' * len(columns))})"
            for start in range(0, len(rows), ROWS_PER_INSERT):
                self.check_stopped()
                chunk = rows[start : start + ROWS_PER_INSERT]
                text = self.write.insert(columns, f"VALUES {', '.join([marks] * len(chunk))}")
                connection.execute(text, [bound(row[name]) for row in chunk for name in columns])
        connection.execute("COMMIT")


def _returns_rows(statement: duckdb.Statement, connection: duckdb.DuckDBPyConnection) -> bool:
    if statement.expected_result_type == [duckdb.ExpectedResultType.QUERY_RESULT]:
        return True
    # What changes rows answers with their number, unless it is asked to return them.
    names = [column[0] for column in connection.description or ()]
    return bool(names) and not (statement.type in _CHANGES and names == ["Count"])


def _in_transaction(connection: duckdb.DuckDBPyConnection) -> bool:
    try:
        connection.execute("BEGIN")
    except duckdb.TransactionException:
        return True
    connection.execute("ROLLBACK")
    return False
