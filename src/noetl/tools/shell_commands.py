"""Runs what a `shell` task says, in the system's shell.

The text of the commands reaches the shell through an unnamed file, so it does not stand in a command line
that every user of the machine can read.
"""

from __future__ import annotations

import time

from noetl.errors import NoetlError
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.outcomes import failed
from noetl.tools.processes.guardian import SHELL
from noetl.tools.processes.limits import limits_from
from noetl.tools.processes.sandbox import sandbox_for
from noetl.tools.program_outcomes import credential_fields, outcome_of
from noetl.tools.programs import Program, ProgramError, credential_text, environment, folder_of

STOP_IF_FAILED = "case $? in 0) ;; *) exit $? ;; esac"


async def run_commands(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    try:
        program = await _program(call, context)
        return await outcome_of(call, context, started, program)
    except ProgramError as error:
        return failed(call, started, "shell.start", str(error), shell={"exit_code": None})
    except NoetlError as error:  # a credential that cannot be had, a limit that is none
        return failed(call, started, error.code, error.message, shell={"exit_code": None})


async def _program(call: ToolCall, context: ToolContext) -> Program:
    config = call.config
    commands = config.get("cmds") if config.get("cmds") is not None else config.get("command")
    stdin = config.get("stdin")
    return Program(
        argv=(SHELL, "{text}"),
        text=_text(commands).encode(),
        cwd=folder_of(config.get("cwd"), context.folder),
        env=environment(config.get("env")),
        stdin=None if stdin is None else str(stdin).encode(),
        credential=credential_text(await credential_fields(config.get("auth"), context)),
        limits=limits_from(call.spec.get("resources")),
        sandbox=await sandbox_for(call.spec, context.folder),
    )


def _text(commands: object) -> str:
    """One text for the shell; in a list, each command is followed by the question whether it succeeded."""
    if isinstance(commands, str):
        return commands
    if not isinstance(commands, list) or not all(isinstance(each, str) for each in commands):
        raise ProgramError("`cmds` is neither a text nor a list of texts")
    return "\n".join(f"{each}\n{STOP_IF_FAILED}" for each in commands)
