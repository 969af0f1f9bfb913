"""`shell`: commands of the system's shell; `shell_commands.py` runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class ShellConfig(msgspec.Struct, frozen=True, kw_only=True):
    cmds: Annotated[
        str | list[str] | None,
        Meta(description="The commands; a list runs in order and stops at the first that fails."),
    ] = None
    command: Annotated[str | list[str] | None, Meta(description="The same as `cmds`.")] = None
    env: Annotated[dict[str, Any] | None, Meta(description="Environment variables by name.")] = None
    cwd: Annotated[
        str | None, Meta(description="The folder to run in; the execution's own folder by default.")
    ] = None
    stdin: Annotated[str | None, Meta(description="Text for the standard input.")] = None
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="shell",
    summary="Runs shell commands; an exit code other than 0 is an error.",
    config=ShellConfig,
    one_of=(("cmds", "command"),),
    synonyms={"command": "cmds"},
    outcome_group="shell",
    outcome_fields=("exit_code",),
    default_spec={"isolation": "process"},
    code_fields=("cmds", "command"),
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    from noetl.tools.shell_commands import run_commands  # noqa: PLC0415 - checking needs no event loop

    return await run_commands(call, context)
