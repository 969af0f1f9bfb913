"""`noop`: does nothing, and succeeds."""

from __future__ import annotations

import msgspec

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth


class NoopConfig(msgspec.Struct, frozen=True, kw_only=True):
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="noop",
    summary="Does nothing and succeeds, for steps that only route and tasks that only apply rules.",
    config=NoopConfig,
)
