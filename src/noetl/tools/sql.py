"""The fields that all SQL kinds share: a text with its parameters, or rows for a table."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from noetl.tools.auth import Auth


class SqlConfig(msgspec.Struct, frozen=True, kw_only=True):
    query: Annotated[
        str | None,
        Meta(description="SQL of one or more statements; a `{{ value }}` in it becomes a quoted literal."),
    ] = None
    command: Annotated[str | None, Meta(description="The same as `query`.")] = None
    params: Annotated[
        dict[str, Any] | list[Any] | None,
        Meta(description="Bind parameters, by name or by position, sent apart from the text."),
    ] = None
    table: Annotated[
        str | None, Meta(description="The table that takes the row, or the list of rows, in `args`.")
    ] = None
    mode: Annotated[
        Literal["insert", "upsert"],
        Meta(description="With `table`: `insert` rows, or `upsert` them by `key`."),
    ] = "insert"
    key: Annotated[
        str | list[str] | None, Meta(description="With `mode: upsert`: the columns that identify a row.")
    ] = None
    auth: Auth = None


SQL_ONE_OF: Final = (("query", "command", "table"),)
SQL_SYNONYMS: Final = {"command": "query"}
SQL_FIELDS: Final = ("query", "command")


class FileSqlConfig(SqlConfig, frozen=True, kw_only=True):
    """Of a kind whose database is a file."""

    database: Annotated[
        str | None,
        Meta(description="The database file, under the execution's folder; by default one in memory."),
    ] = None
    dsn: Annotated[str | None, Meta(description="The same as `database`.")] = None
    read_only: Annotated[bool, Meta(description="Whether the file is opened without the right to write.")] = (
        False
    )
