"""`postgres`: SQL on PostgreSQL; `postgres_calls.py` runs it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.outcomes import failed
from noetl.tools.sql import SQL_FIELDS, SQL_ONE_OF, SQL_SYNONYMS, SqlConfig

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class PostgresConfig(SqlConfig, frozen=True, kw_only=True):
    dsn: Annotated[
        str | None, Meta(description="The connection as one text, where `auth` does not give it.")
    ] = None
    database: Annotated[
        str | None, Meta(description="The database, where it is another than the credential's.")
    ] = None


DESCRIPTION = ToolDescription(
    kind="postgres",
    summary="Runs SQL on PostgreSQL; the result is the list of rows of the last statement.",
    config=PostgresConfig,
    one_of=SQL_ONE_OF,
    synonyms=SQL_SYNONYMS,
    outcome_group="pg",
    outcome_fields=("code", "sqlstate"),
    sql_fields=SQL_FIELDS,
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    try:
        from noetl.tools.postgres_calls import run_postgres  # noqa: PLC0415 - imports the database's library
    except ModuleNotFoundError as missing:
        message = f"the PostgreSQL client is not installed (`{missing.name}`): install `noetl[postgres]`"
        fields: dict[str, Any] = dict.fromkeys(DESCRIPTION.outcome_fields)
        return failed(call, time.monotonic(), "tool.not_installed", message, pg=fields)
    return await run_postgres(call, context)
