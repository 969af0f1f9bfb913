"""`sqlite`: SQL on an SQLite file; `sqlite_calls.py` runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.records.tool import ToolDescription
from noetl.tools.sql import SQL_FIELDS, SQL_ONE_OF, SQL_SYNONYMS, FileSqlConfig

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class SqliteConfig(FileSqlConfig, frozen=True, kw_only=True):
    pass


DESCRIPTION = ToolDescription(
    kind="sqlite",
    summary="Runs SQL on an SQLite file; the result is the list of rows of the last statement.",
    config=SqliteConfig,
    one_of=SQL_ONE_OF,
    synonyms={**SQL_SYNONYMS, "dsn": "database"},
    outcome_group="sqlite",
    outcome_fields=("code",),
    sql_fields=SQL_FIELDS,
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    from noetl.tools.sqlite_calls import run_sqlite  # noqa: PLC0415 - imports the database's library

    return await run_sqlite(call, context)
