"""`transfer`: rows from one database or store to another, in batches; `transfer_calls.py` runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class TransferSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where rows come from: a query or table of a database, or an object."""

    kind: Annotated[str, Meta(description="The kind of the database or store, such as `postgres` or `s3`.")]
    query: Annotated[str | None, Meta(description="SQL that gives the rows.")] = None
    params: Annotated[
        dict[str, Any] | list[Any] | None, Meta(description="Bind parameters of the query.")
    ] = None
    table: Annotated[str | None, Meta(description="A table that is taken whole, instead of a query.")] = None
    url: Annotated[str | None, Meta(description="The address of an object.")] = None
    format: Annotated[
        Literal["csv", "jsonl", "parquet"] | None,
        Meta(description="How an object is written; by default by the ending of its name."),
    ] = None
    dsn: Annotated[str | None, Meta(description="The connection, where `auth` does not give it.")] = None
    database: Annotated[str | None, Meta(description="The database or its file.")] = None
    auth: Auth = None


class TransferTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where rows go: a table of a database, or an object."""

    kind: Annotated[str, Meta(description="The kind of the database or store, such as `postgres` or `s3`.")]
    table: Annotated[str | None, Meta(description="The table that takes the rows.")] = None
    mode: Annotated[
        Literal["insert", "upsert", "replace"],
        Meta(description="Add rows, write them by `key`, or replace all that is there."),
    ] = "insert"
    key: Annotated[
        str | list[str] | None, Meta(description="With `mode: upsert`: the columns that identify a row.")
    ] = None
    url: Annotated[str | None, Meta(description="The address of an object.")] = None
    format: Annotated[
        Literal["csv", "jsonl", "parquet"] | None,
        Meta(description="How an object is written; by default by the ending of its name."),
    ] = None
    dsn: Annotated[str | None, Meta(description="The connection, where `auth` does not give it.")] = None
    database: Annotated[str | None, Meta(description="The database or its file.")] = None
    auth: Auth = None


class TransferConfig(msgspec.Struct, frozen=True, kw_only=True):
    source: Annotated[TransferSource, Meta(description="Where the rows come from.")]
    target: Annotated[TransferTarget, Meta(description="Where the rows go.")]
    columns: Annotated[
        dict[str, str] | list[str] | None,
        Meta(description="Which columns are taken, or their names in the target by those in the source."),
    ] = None
    batch_size: Annotated[int, Meta(description="How many rows are moved at a time.", ge=1)] = 10_000
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="transfer",
    summary="Moves rows between two databases or stores, streamed in batches.",
    config=TransferConfig,
    outcome_group="transfer",
    outcome_fields=("rows", "batches"),
    sql_fields=("source.query",),
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    from noetl.tools.transfer_calls import run_transfer  # noqa: PLC0415 - only executions need it

    return await run_transfer(call, context)
