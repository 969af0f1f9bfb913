"""`object`: objects in whatever store their address names."""

from __future__ import annotations

from noetl.records.tool import ToolDescription
from noetl.tools.objects import ObjectConfig

DESCRIPTION = ToolDescription(
    kind="object",
    summary="Reads, writes, lists, copies and deletes objects in the store that their address names.",
    config=ObjectConfig,
    one_of=(("url",),),
    outcome_group="object",
    outcome_fields=("size", "etag"),
)
