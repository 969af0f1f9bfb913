"""`gcs`: objects in Google Cloud Storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.objects import OUTCOME_FIELDS, BucketConfig, run_object_call

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class GcsConfig(BucketConfig, frozen=True, kw_only=True):
    project: Annotated[str | None, Meta(description="The project that is billed.")] = None


DESCRIPTION = ToolDescription(
    kind="gcs",
    summary="Reads, writes, lists, copies and deletes objects in Google Cloud Storage.",
    config=GcsConfig,
    one_of=(("url", "bucket"), ("url", "key", "prefix")),
    outcome_group="object",
    outcome_fields=OUTCOME_FIELDS,
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    return await run_object_call(call, context)
