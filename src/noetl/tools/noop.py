"""`noop`: does nothing, and succeeds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class NoopConfig(msgspec.Struct, frozen=True, kw_only=True):
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="noop",
    summary="Does nothing and succeeds, for steps that only route and tasks that only apply rules.",
    config=NoopConfig,
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    from noetl.tools.outcomes import ok  # noqa: PLC0415 - checking a playbook needs no outcomes

    return ok(call, time.monotonic(), None)
