"""What `shell` and `script` have in common around a program: credentials and the outcome."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.outcomes import failed, ok
from noetl.tools.processes.limits import Limits, least_cpu_seconds
from noetl.tools.programs import KILLED, Ended, OutputLimitError, Program, run_program, text_of


async def credential_fields(auth: object, context: ToolContext) -> Mapping[str, Any]:
    if not auth:
        return {}
    if isinstance(auth, Mapping):
        return auth
    return await context.credential(str(auth))


async def outcome_of(call: ToolCall, context: ToolContext, started: float, program: Program) -> Outcome:
    """Runs it; the result is its standard output, whatever its exit code."""
    try:
        ended = await run_program(program, lambda text: context.log("stderr", text))
    except OutputLimitError:
        limit = program.limits.result_bytes
        return failed(
            call,
            started,
            "shell.output",
            f"the program wrote more than {limit} bytes to its standard output and was ended",
            details={"limit": limit},
            shell={"exit_code": None},
        )
    return _judged(call, started, ended, program.limits)


def _judged(call: ToolCall, started: float, ended: Ended, limits: Limits) -> Outcome:
    result = text_of(ended.stdout)
    details = {"stderr": ended.stderr_tail} if ended.stderr_tail else {}
    if ended.code == 0:
        return ok(call, started, result, shell={"exit_code": 0})
    overrun = _overrun(ended, limits)
    if overrun is not None:
        return failed(
            call,
            started,
            "process.limit",
            overrun,
            details=details,
            result=result,
            shell={"exit_code": None if ended.code < 0 else ended.code},
        )
    if ended.code < 0:
        return failed(
            call,
            started,
            "shell.killed",
            f"the program was killed by signal {-ended.code}",
            retryable=True,
            details=details,
            result=result,
            shell={"exit_code": None},
        )
    return failed(
        call,
        started,
        "shell.exit",
        f"the program ended with exit code {ended.code}",
        details=details,
        result=result,
        shell={"exit_code": ended.code},
    )


def _overrun(ended: Ended, limits: Limits) -> str | None:
    """What it had too much of, if a limit ended it; a shell tells of its children by 128 + the signal."""
    number = -ended.code if ended.code < 0 else ended.code - 128
    if limits.cpu_seconds is not None:
        # Who ignores the signal of the lower limit is killed at the higher one.
        ignored = ended.code in KILLED and ended.cpu_seconds > least_cpu_seconds(limits.cpu_seconds)
        if number == signal.SIGXCPU or ignored:
            seconds = f"{limits.cpu_seconds:g} s of CPU time"
            return f"the program used more than {seconds} (`spec.resources.cpu_seconds`)"
    if number == signal.SIGXFSZ and limits.file_bytes is not None:
        return f"the program wrote a file of over {limits.file_bytes} bytes (`spec.resources.file_bytes`)"
    return None
