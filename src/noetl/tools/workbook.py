"""`workbook`: a task, pipeline or block that the playbook defines by name."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth


class WorkbookConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The entry of the root section `workbook`; it sees the `args`.")]
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="workbook",
    summary="Runs an entry of the playbook's workbook; the result is that of its last task.",
    config=WorkbookConfig,
)
