"""`playbook`: another playbook, as a child execution."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth


class PlaybookConfig(msgspec.Struct, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="The path of the playbook in the catalog; `args` are its payload.")]
    version: Annotated[int | str | None, Meta(description="Its version; the latest by default.")] = None
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="playbook",
    summary="Runs another playbook as a child execution; the result is the child's result.",
    config=PlaybookConfig,
    outcome_group="playbook",
    outcome_fields=("execution_id", "status"),
)
