"""Runs the calls of the kind `postgres` on a connection of the pool.

One call is one transaction, unless its text manages its own: a text without parameters goes to the server
as a whole, which sees to that itself. A call that is cancelled is cancelled on the server too.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, cast

import msgspec
import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus
from psycopg.types.json import Jsonb

from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.outcomes import ok
from noetl.tools.postgres import DESCRIPTION, PostgresConfig
from noetl.tools.postgres_pool import check_quoting, pool_for
from noetl.tools.sql_calls import (
    ACCESS,
    CALL_FAILURES,
    CONFLICT,
    CONNECTION,
    CONSTRAINT,
    STATEMENT,
    failure,
    open_transaction,
    read_config,
    sql_text,
)
from noetl.tools.sql_rows import Rows
from noetl.tools.sql_statements import (
    Positions,
    Statement,
    manages_transactions,
    postgres_params,
    statements,
)
from noetl.tools.sql_tables import TableWrite, table_write

_CONFLICT_STATES: Final = ("40001", "40P01", "55P03")
"""A failed serialisation, a deadlock, a lock that was not waited for."""
_REFUSED_STATES: Final = ("28", "42501", "3D000")
_REFUSED_TEXTS: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password")
"""Connecting fails without a code; these say that it always will."""
_CONNECTION_CLASSES: Final = ("08", "53300", "57P0")
"""A connection that broke, too many of them, a server that is going down or starting up."""
_CONSTRAINT_CLASS: Final = "23"
_TIMED_OUT: Final = "57014"
_READS: Final = frozenset(("select", "values", "table", "with"))
_MAY_CHANGE: Final = re.compile(r"\b(?:into|insert|update|delete|merge)\b", re.IGNORECASE)
_CHUNK: Final = 200
"""How many rows the client library hands over at a time."""
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


async def run_postgres(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    try:
        config = read_config(call, PostgresConfig)
        write = None if config.table is None else table_write(config, call.args)
        text = "" if write is not None else sql_text(config)
        pool = await pool_for(config, context)
        async with pool.connection() as connection:
            if write is not None:
                rows = await _insert(connection, write)
            else:
                rows = await _run_text(connection, text, config)
    except CALL_FAILURES as error:
        return failure(call, started, error, "pg", DESCRIPTION.outcome_fields)
    except psycopg.Error as error:
        return failure(call, started, translated_postgres(error), "pg", DESCRIPTION.outcome_fields)
    return ok(call, started, rows, pg={"code": None, "sqlstate": None})


def translated_postgres(error: psycopg.Error) -> CallFailedError:
    state = error.sqlstate
    details = {
        name: value
        for name in ("message_detail", "message_hint", "constraint_name", "table_name", "column_name")
        if (value := getattr(error.diag, name)) is not None
    }
    message = error.diag.message_primary or str(error) or type(error).__name__
    kind, retryable = _judged(error, state, message)
    failed = CallFailedError(kind, message, retryable=retryable, **details)
    code = None if state is None else _CAPITAL.sub("_", type(error).__name__).lower()
    failed.group = {"code": code, "sqlstate": state}
    return failed


def _judged(error: psycopg.Error, state: str | None, message: str) -> tuple[str, bool]:
    if state is None:
        if not isinstance(error, psycopg.OperationalError):
            return STATEMENT, False
        refused = any(text in message for text in _REFUSED_TEXTS)
        return (ACCESS, False) if refused else (CONNECTION, True)
    if state == _TIMED_OUT:
        return "timeout", True
    if state.startswith(_CONSTRAINT_CLASS):
        return CONSTRAINT, False
    if state.startswith(_REFUSED_STATES):
        return ACCESS, False
    if state.startswith(_CONNECTION_CLASSES):
        return CONNECTION, True
    return (CONFLICT, True) if state in _CONFLICT_STATES else (STATEMENT, False)


async def _run_text(connection: AsyncConnection, text: str, config: PostgresConfig) -> list[dict[str, Any]]:
    cursor = connection.cursor()
    if config.params is None:
        found = statements(text, "postgres")
        if len(found) == 1 and _only_reads(found[0]):
            rows = await _streamed(cursor, text.encode(), None)
        else:
            await cursor.execute(text.encode())
            rows = await _last_rows(cursor)
    else:
        rows = await _run_with_params(connection, cursor, text, config.params)
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise open_transaction()
    return rows


async def _run_with_params(
    connection: AsyncConnection, cursor: AsyncCursor[Any], text: str, params: dict[str, Any] | list[Any]
) -> list[dict[str, Any]]:
    """The server takes parameters with one statement at a time only."""
    found = statements(text, "postgres")
    given = Positions(params) if isinstance(params, list) else params
    written = [postgres_params(statement, given) for statement in found]
    if isinstance(given, Positions):
        given.check_all_taken()
    together = len(found) > 1 and not manages_transactions(found)
    rows: list[dict[str, Any]] = []
    if together:
        await connection.execute("BEGIN")
    for statement, (own_text, values) in zip(found, written, strict=True):
        check_quoting(connection)
        given_values = [bound(value) for value in values]
        if _only_reads(statement):
            rows = await _streamed(cursor, own_text.encode(), given_values)
            continue
        await cursor.execute(own_text.encode(), given_values)
        if cursor.description is not None:
            rows = await _last_rows(cursor)
    if together:
        await connection.execute("COMMIT")
    return rows


def _only_reads(statement: Statement) -> bool:
    """Whether it is sure to answer with rows, which a stream has to; where it is not, nothing is lost."""
    return statement.word in _READS and _MAY_CHANGE.search(statement.bare) is None


async def _streamed(cursor: AsyncCursor[Any], text: bytes, values: list[Any] | None) -> list[dict[str, Any]]:
    """The rows as the server sends them: the client library would hold all of them before it gave the first.

    A result that becomes too large is cancelled on the server.
    """
    rows: Rows | None = None
    size = _CHUNK if psycopg.capabilities.has_stream_chunked() else 1
    made = cast("AsyncGenerator[Any]", cursor.stream(text, values, size=size))
    async with aclosing(made) as stream:
        async for row in stream:
            if rows is None:
                rows = Rows(column.name for column in cursor.description or ())
            rows.add(row)
    return [] if rows is None else rows.data


async def _last_rows(cursor: AsyncCursor[Any]) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = []
    while True:
        if cursor.description is not None:
            rows = Rows(column.name for column in cursor.description)
            async for row in cursor:
                rows.add(row)
            data = rows.data
        if not cursor.nextset():
            return data


async def _insert(connection: AsyncConnection, write: TableWrite) -> list[dict[str, Any]]:
    """All rows of a batch are one parameter; the server gives each value its column's type."""
    await connection.execute("BEGIN")
    for columns, rows in write.batches:
        names = ", ".join(write.quoted(name) for name in columns)
        source = f"SELECT {names} FROM json_populate_recordset(NULL::{write.table}, $1::json)"
        body = msgspec.json.encode(rows).decode()
        await connection.execute(write.insert(columns, source).encode(), [body])
    await connection.execute("COMMIT")
    return []


def bound(value: object) -> object:
    return Jsonb(value) if isinstance(value, dict) else value
