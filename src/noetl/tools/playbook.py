"""`playbook`: another playbook, as a child execution."""

from __future__ import annotations

import time
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from noetl.errors import NoetlError
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth
from noetl.tools.outcomes import failed, ok


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
    waits=True,
)


LONGEST_VERSION: Final = 18
"""In digits; a catalog counts versions, and never so far."""


def _is_version(version: object) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 10**LONGEST_VERSION


def _shown(version: object) -> str:
    text = str(version)
    return text if len(text) <= 40 else f"{text[:40]}…"


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    version = call.config.get("version")
    if isinstance(version, str) and version.isdecimal() and len(version) <= LONGEST_VERSION:
        version = int(version)
    if version is not None and not _is_version(version):
        return failed(call, started, "playbook.version", f"`{_shown(version)}` is not a version number")
    if not isinstance(call.args, dict):
        return failed(call, started, "playbook.args", "`args` must be a mapping: they become the payload")
    try:
        child = await context.run_playbook(str(call.config["path"]), version, call.args)
    except NoetlError as error:
        return failed(call, started, error.code, error.message)
    about = {"execution_id": child.execution_id, "status": child.status}
    if child.status == "completed":
        return ok(call, started, child.result, playbook=about)
    reason = (child.error or {}).get("message", "without saying why")
    message = f"playbook `{call.config['path']}` {child.status}: {reason}"
    retryable = bool((child.error or {}).get("retryable"))
    return failed(call, started, f"playbook.{child.status}", message, retryable=retryable, playbook=about)
