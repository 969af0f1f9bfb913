"""Waits for what a `wait` task names.

Time passes on the event loop of whoever runs the task, and a cancelled wait ends at once. Which signals
there are, and that those which came early are kept, is known to the control plane alone.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Final

from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.durations import seconds
from noetl.tools.outcomes import failed, ok

LONGEST_SLEEP: Final = 3600.0
"""A moment is a time of day, which can be set while a task waits for it; so it is looked at again."""


async def wait(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    config = call.config
    if config.get("duration") is not None:
        duration = seconds(config["duration"])
        if duration is None:
            return failed(call, started, "config.invalid", "`duration` is not a duration")
        await asyncio.sleep(max(0.0, context.began + duration - time.time()))
        return ok(call, started, None)
    if config.get("until") is not None:
        moment = _moment(config["until"])
        if moment is None:
            return failed(call, started, "config.invalid", "`until` is not a moment as RFC 3339 writes it")
        while (left := (moment - datetime.now(UTC)).total_seconds()) > 0:
            await asyncio.sleep(min(left, LONGEST_SLEEP))
        return ok(call, started, None)
    if config.get("signal") is not None:
        return ok(call, started, await context.wait_for_signal(str(config["signal"])))
    if config.get("approval") is not None:
        return await _approval(call, context, started, str(config["approval"]))
    return failed(call, started, "config.invalid", "there is nothing to wait for")


def _moment(written: object) -> datetime | None:
    """A moment with its offset; without one it would mean another moment on another machine."""
    try:
        moment = datetime.fromisoformat(str(written).strip())
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


async def _approval(call: ToolCall, context: ToolContext, started: float, question: str) -> Outcome:
    name = f"approval.{call.task_label}"
    context.log("stdout", f"{question} (waiting for the signal `{name}`)\n")
    answer = await context.wait_for_signal(name)
    if answer is True or (isinstance(answer, dict) and answer.get("approved") is True):
        return ok(call, started, answer)
    return failed(call, started, "wait.refused", "the approval was refused", result=answer)
