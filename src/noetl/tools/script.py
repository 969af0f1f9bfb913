"""`script`: a program that lies in a file, on a web server or in an object store.

What runs is what was checked: a script with a checksum, or one from elsewhere, is copied to a private
folder first.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from noetl.errors import NoetlError
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth
from noetl.tools.command_outcomes import credential_fields, outcome_of, require_process_isolation
from noetl.tools.commands import (
    SHELL,
    CommandError,
    Program,
    credential_text,
    environment,
    find_program,
    folder_of,
)
from noetl.tools.outcomes import failed
from noetl.tools.paths import PathRefusedError, under
from noetl.tools.processes.limits import limits_from


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


INTERPRETERS: Final[Mapping[str, str]] = {".py": sys.executable, ".sh": SHELL}
NOT_STARTED: Final = {"exit_code": None}


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    try:
        require_process_isolation(call.spec)
        source = str(call.config.get("source") or "")
        with ExitStack() as copies:
            if "://" in source:
                fetched = await _fetched(call, context, source)
                if isinstance(fetched, Outcome):
                    return fetched
                script = _copy(copies, PurePosixPath(source.partition("?")[0]).name, fetched)
            else:
                script = _local(source, context.folder)
            expected = call.config.get("checksum")
            if expected is not None:
                content = script.read_bytes()
                if hashlib.sha256(content).hexdigest() != str(expected).strip().lower().removeprefix(
                    "sha256:"
                ):
                    message = "the script is another one than its checksum says, and was not run"
                    return failed(call, started, "script.checksum", message, shell=NOT_STARTED)
                script = _copy(copies, script.name, content)
            program = await _program(call, context, script)
            return await outcome_of(call, context, started, program)
    except CommandError as error:
        return failed(call, started, "script.start", str(error), shell=NOT_STARTED)
    except NoetlError as error:  # a credential that cannot be had, a limit that is none
        return failed(call, started, error.code, error.message, shell=NOT_STARTED)


async def _program(call: ToolCall, context: ToolContext, script: Path) -> Program:
    config = call.config
    fields = {} if "://" in str(config["source"]) else await credential_fields(config.get("auth"), context)
    stdin = config.get("stdin")
    return Program(
        argv=(*_interpreter(config.get("interpreter"), script), str(script), *_arguments(config)),
        cwd=folder_of(config.get("cwd"), context.folder),
        env=environment(config.get("env")),
        stdin=msgspec.json.encode(call.args) if stdin is None else str(stdin).encode(),
        credential=credential_text(fields),
        limits=limits_from(call.spec.get("resources")),
    )


def _interpreter(written: object, script: Path) -> list[str]:
    if isinstance(written, str):
        return [find_program(written)]
    if isinstance(written, list) and written:
        return [find_program(str(written[0])), *(str(each) for each in written[1:])]
    chosen = INTERPRETERS.get(script.suffix)
    if chosen is None:
        raise CommandError("the script's name ends neither in `.py` nor in `.sh`: say its `interpreter`")
    return [chosen]


def _arguments(config: Mapping[str, Any]) -> list[str]:
    """Anything but text is written as JSON, null is left out."""
    written = config.get("arguments") or []
    if not isinstance(written, list):
        raise CommandError("`arguments` is not a list")
    found = [
        each if isinstance(each, str) else msgspec.json.encode(each).decode()
        for each in written
        if each is not None
    ]
    if any("\0" in each for each in found):
        raise CommandError("`arguments` holds a text that no argument can be")
    return found


def _local(source: str, folder: Path) -> Path:
    try:
        path = under(folder, source)
    except PathRefusedError as refused:
        raise CommandError(f"`source`: {refused}") from None
    if not path.is_file():
        raise CommandError("`source`: there is no such file in the execution's folder")
    return path


def _copy(copies: ExitStack, name: str, content: bytes) -> Path:
    folder = copies.enter_context(tempfile.TemporaryDirectory(prefix="noetl-script-"))
    path = Path(folder, name or "script")
    path.write_bytes(content)
    return path


async def _fetched(call: ToolCall, context: ToolContext, source: str) -> bytes | Outcome:
    """The text of a script on a web server, or the outcome of failing to get it."""
    if not source.startswith("https://"):
        raise CommandError("`source` is neither a path nor an `https://` address")
    # The client library takes a fifth of a second to import, and most scripts are files.
    from noetl.tools.http_exchange import download  # noqa: PLC0415

    return await download(call, context, source)
