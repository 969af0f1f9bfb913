"""Waits for what a `wait` task names.

How time passes, which signals there are, and that those which came early are kept, is known to whoever runs
the task.
"""

from __future__ import annotations

import time
from datetime import datetime

from noetl.records.durations import parse_duration
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.outcomes import failed, ok


async def wait(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    config = call.config
    if config.get("duration") is not None:
        duration = parse_duration(config["duration"])
        if duration is None:
            return failed(call, started, "config.invalid", "`duration` is not a duration")
        await context.sleep_until(context.began + duration)
        return ok(call, started, None)
    if config.get("until") is not None:
        moment = _moment(config["until"])
        if moment is None:
            return failed(call, started, "config.invalid", "`until` is not a moment as RFC 3339 writes it")
        await context.sleep_until(moment.timestamp())
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
    answer = await context.wait_for_signal(name, question)
    granted = answer is True or (isinstance(answer, dict) and answer.get("approved") is True)
    context.log("stdout", f"{question} {'granted' if granted else 'refused'}\n")
    if granted:
        return ok(call, started, answer)
    return failed(call, started, "wait.refused", "the approval was refused", result=answer)
