"""`snowflake`: SQL on Snowflake."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.sql import SQL_FIELDS, SQL_ONE_OF, SQL_SYNONYMS, SqlConfig


class SnowflakeConfig(SqlConfig, frozen=True, kw_only=True):
    account: Annotated[
        str | None, Meta(description="The account, where it is another than the credential's.")
    ] = None
    warehouse: Annotated[str | None, Meta(description="The warehouse that computes.")] = None
    role: Annotated[str | None, Meta(description="The role to take.")] = None
    database: Annotated[str | None, Meta(description="The database of unqualified names.")] = None
    schema: Annotated[str | None, Meta(description="The schema of unqualified names.")] = None
    dsn: Annotated[
        str | None, Meta(description="The connection as one text, where `auth` does not give it.")
    ] = None


DESCRIPTION = ToolDescription(
    kind="snowflake",
    summary="Runs SQL on Snowflake; the result is the list of rows of the last statement.",
    config=SnowflakeConfig,
    one_of=SQL_ONE_OF,
    synonyms=SQL_SYNONYMS,
    outcome_group="snowflake",
    outcome_fields=("code", "sqlstate", "query_id"),
    sql_fields=SQL_FIELDS,
)
