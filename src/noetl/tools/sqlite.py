"""`sqlite`: SQL on an SQLite file."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.sql import SQL_FIELDS, SQL_ONE_OF, SQL_SYNONYMS, SqlConfig


class SqliteConfig(SqlConfig, frozen=True, kw_only=True):
    database: Annotated[
        str | None,
        Meta(description="The database file, under the execution's folder; by default one in memory."),
    ] = None
    dsn: Annotated[str | None, Meta(description="The same as `database`.")] = None
    read_only: Annotated[bool, Meta(description="Whether the file is opened without the right to write.")] = (
        False
    )


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
