"""`s3`: objects in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.objects import OUTCOME_FIELDS, BucketConfig, run_object_call

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class S3Config(BucketConfig, frozen=True, kw_only=True):
    region: Annotated[str | None, Meta(description="The bucket's region.")] = None
    endpoint: Annotated[
        str | None, Meta(description="The address of a service that speaks S3, where it is not AWS itself.")
    ] = None


DESCRIPTION = ToolDescription(
    kind="s3",
    summary="Reads, writes, lists, copies and deletes objects in S3.",
    config=S3Config,
    one_of=(("url", "bucket"), ("url", "key", "prefix")),
    outcome_group="object",
    outcome_fields=OUTCOME_FIELDS,
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    return await run_object_call(call, context)
