"""`duckdb`: SQL on DuckDB, in the worker; `duckdb_calls.py` runs it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.outcomes import failed
from noetl.tools.sql import SQL_FIELDS, SQL_ONE_OF, SQL_SYNONYMS, FileSqlConfig

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class DuckdbConfig(FileSqlConfig, frozen=True, kw_only=True):
    extensions: Annotated[
        list[str] | None, Meta(description="Extensions to load; the operator decides which may be used.")
    ] = None


DESCRIPTION = ToolDescription(
    kind="duckdb",
    summary="Runs SQL on DuckDB; the result is the list of rows of the last statement.",
    config=DuckdbConfig,
    one_of=SQL_ONE_OF,
    synonyms={**SQL_SYNONYMS, "dsn": "database"},
    outcome_group="duckdb",
    outcome_fields=("error_type",),
    sql_fields=SQL_FIELDS,
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    try:
        from noetl.tools.duckdb_calls import run_duckdb  # noqa: PLC0415 - imports the database's library
    except ModuleNotFoundError as missing:
        message = f"DuckDB's library is not installed (`{missing.name}`): install `noetl[duckdb]`"
        fields: dict[str, Any] = dict.fromkeys(DESCRIPTION.outcome_fields)
        return failed(call, time.monotonic(), "tool.not_installed", message, duckdb=fields)
    return await run_duckdb(call, context)
