"""Gets the script that a `script` task names, and runs it.

What runs is what was checked: a script with a checksum, or one from elsewhere, is copied to a private
folder first. A path leads into the execution's own folder or is refused.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.outcomes import failed, failed_with
from noetl.tools.paths import PathRefusedError, read_under, under
from noetl.tools.processes.folders import OwnFolder
from noetl.tools.processes.guardian import SHELL
from noetl.tools.processes.limits import limits_from
from noetl.tools.processes.sandbox import Sandbox, sandbox_for
from noetl.tools.program_outcomes import credential_fields, outcome_of
from noetl.tools.programs import (
    Program,
    ProgramError,
    credential_text,
    environment,
    find_program,
    folder_of,
)

INTERPRETERS: Final[Mapping[str, str]] = {".py": sys.executable, ".sh": SHELL}
MAX_SCRIPT_BYTES: Final = 64 << 20
NOT_STARTED: Final = {"exit_code": None}


async def run_script(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    try:
        sandbox = await sandbox_for(call.spec, context.folder)
        source = str(call.config.get("source") or "")
        with ExitStack() as copies:
            if "://" in source:
                content = await _fetched(call, context, source)
                script = _copy(copies, PurePosixPath(source.partition("?")[0]).name, content)
            else:
                script = _local(source, context.folder)
            expected = call.config.get("checksum")
            if expected is not None:
                content = script.read_bytes() if "://" in source else _read(context.folder, script)
                digest = str(expected).strip().lower().removeprefix("sha256:")
                if hashlib.sha256(content).hexdigest() != digest:
                    message = "the script is another one than its checksum says, and was not run"
                    return failed(call, started, "script.checksum", message, shell=NOT_STARTED)
                script = _copy(copies, script.name, content)
            program = await _program(call, context, script, sandbox)
            return await outcome_of(call, context, started, program)
    except ProgramError as error:
        return failed(call, started, "script.start", str(error), shell=NOT_STARTED)
    except CallFailedError as failure:
        return failed_with(call, started, failure, shell=NOT_STARTED)
    except NoetlError as error:  # a credential that cannot be had, a limit that is none
        return failed(call, started, error.code, error.message, shell=NOT_STARTED)


async def _program(call: ToolCall, context: ToolContext, script: Path, sandbox: Sandbox | None) -> Program:
    config = call.config
    fields = {} if "://" in str(config["source"]) else await credential_fields(config.get("auth"), context)
    stdin = config.get("stdin")
    own = context.folder.resolve()
    return Program(
        argv=(*_interpreter(config.get("interpreter"), script), str(script), *_arguments(config)),
        cwd=folder_of(config.get("cwd"), context.folder),
        env=environment(config.get("env")),
        stdin=msgspec.json.encode(call.args) if stdin is None else str(stdin).encode(),
        credential=credential_text(fields),
        limits=limits_from(call.spec.get("resources")),
        sandbox=sandbox,
        # A folder inside the execution's own one may become a link to somewhere else meanwhile.
        reads=(own if script.is_relative_to(own) else script.parent,),
    )


def _interpreter(written: object, script: Path) -> list[str]:
    if isinstance(written, str):
        return [find_program(written)]
    if isinstance(written, list) and written:
        return [find_program(str(written[0])), *(str(each) for each in written[1:])]
    chosen = INTERPRETERS.get(script.suffix)
    if chosen is None:
        raise ProgramError("the script's name ends neither in `.py` nor in `.sh`: say its `interpreter`")
    return [chosen]


def _arguments(config: Mapping[str, Any]) -> list[str]:
    """Anything but text is written as JSON, null is left out."""
    written = config.get("arguments") or []
    if not isinstance(written, list):
        raise ProgramError("`arguments` is not a list")
    found = [
        each if isinstance(each, str) else msgspec.json.encode(each).decode()
        for each in written
        if each is not None
    ]
    if any("\0" in each for each in found):
        raise ProgramError("`arguments` holds a text that no argument can be")
    return found


def _local(source: str, folder: Path) -> Path:
    try:
        path = under(folder, source)
    except PathRefusedError as refused:
        raise ProgramError(f"`source`: {refused}") from None
    if not path.is_file():
        raise ProgramError("`source`: there is no such file in the execution's folder")
    return path


def _read(folder: Path, script: Path) -> bytes:
    try:
        return read_under(folder, str(script), MAX_SCRIPT_BYTES)
    except (FileNotFoundError, PathRefusedError):
        raise ProgramError("`source`: the file is no longer there, or too large to be checked") from None


def _copy(copies: ExitStack, name: str, content: bytes) -> Path:
    path = copies.enter_context(OwnFolder()) / (name or "script")
    path.write_bytes(content)
    return path


async def _fetched(call: ToolCall, context: ToolContext, source: str) -> bytes:
    """The text of a script on a web server."""
    if not source.startswith("https://"):
        raise ProgramError("`source` is neither a path nor an `https://` address")
    # The client library takes a fifth of a second to import, and most scripts are files.
    from noetl.tools.http_exchange import download  # noqa: PLC0415

    return await download(source, call.config.get("auth"), context)
