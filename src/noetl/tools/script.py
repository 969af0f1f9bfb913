"""`script`: a program that lies in a file, on a web server or in an object store."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth


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
