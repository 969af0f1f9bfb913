"""`object`: objects in whatever store their address names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.records.tool import ToolDescription
from noetl.tools.objects import OUTCOME_FIELDS, ObjectConfig, run_object_call

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext

DESCRIPTION = ToolDescription(
    kind="object",
    summary="Reads, writes, lists, copies and deletes objects in the store that their address names.",
    config=ObjectConfig,
    one_of=(("url",),),
    outcome_group="object",
    outcome_fields=OUTCOME_FIELDS,
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    return await run_object_call(call, context)
