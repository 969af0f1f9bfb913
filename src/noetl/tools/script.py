"""`script`: a program in a file or on a web server; `script_sources.py` gets and runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class ScriptConfig(msgspec.Struct, frozen=True, kw_only=True):
    source: Annotated[
        str, Meta(description="Where the script is: a path, or an `https://`, `s3://` or `gs://` address.")
    ]
    interpreter: Annotated[
        str | list[str] | None,
        Meta(description="The program that runs it; by default chosen by the name's ending, `.py` or `.sh`."),
    ] = None
    arguments: Annotated[list[Any] | None, Meta(description="Arguments of its command line.")] = None
    checksum: Annotated[
        str | None, Meta(description="The SHA-256 the script must have; another text is not run.")
    ] = None
    env: Annotated[dict[str, Any] | None, Meta(description="Environment variables by name.")] = None
    cwd: Annotated[
        str | None, Meta(description="The folder to run in; the execution's own folder by default.")
    ] = None
    stdin: Annotated[str | None, Meta(description="Text for the standard input.")] = None
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="script",
    summary="Fetches a script and runs it; an exit code other than 0 is an error.",
    config=ScriptConfig,
    outcome_group="shell",
    outcome_fields=("exit_code",),
    default_spec={"isolation": "process"},
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    from noetl.tools.script_sources import run_script  # noqa: PLC0415 - checking needs no event loop

    return await run_script(call, context)
