"""What a watcher of an execution knows: the events so far, folded into what is worth showing.

Fed by events and log lines alone, it draws nothing and reads no clock: times are those of the events, and
"now" is an argument. It keeps counts, never the events, so that a loop of any length costs the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from noetl.engine.state import Waits
from noetl.ids import seconds_of
from noetl.records.event import Event

StepState: TypeAlias = Literal["running", "done", "failed", "skipped", "cancelled"]

RATE_WINDOW: Final = 10.0
"""Seconds over which the rate of a loop is taken."""


class LoopProgress:
    """The iterations of a loop step."""

    def __init__(self, total: int, started: float) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self.in_flight = 0
        self._samples: deque[tuple[float, int]] = deque([(started, 0)])

    @property
    def finished(self) -> int:
        return self.done + self.failed

    def rate(self, now: float) -> float | None:
        """Iterations a second over the last seconds; None while nothing can be said."""
        samples = self._samples
        if now - samples[-1][0] >= RATE_WINDOW / 50:
            samples.append((now, self.finished))
        while len(samples) > 2 and now - samples[1][0] > RATE_WINDOW:
            samples.popleft()
        began, before = samples[0]
        if now <= began or self.finished == before:
            return None
        return (self.finished - before) / (now - began)

    def remaining(self, now: float) -> float | None:
        """Seconds until the loop is through, if it goes on like this."""
        rate = self.rate(now)
        return None if rate is None else (self.total - self.finished) / rate


class StepProgress:
    """The runs of one step; what is shown is the last of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: StepState = "running"
        self.runs = 0
        self.open: set[str] = set()
        self.started = 0.0
        self.ended: float | None = None
        self.loop: LoopProgress | None = None
        self.task: str | None = None
        self.attempt = 1
        self.retries = 0
        self.retry_at: float | None = None
        self.jumps = 0
        self.log: str | None = None
        self.error: dict[str, Any] | None = None
        self.parked: dict[tuple[str, int], Waits] = {}
        """What its leases that were given back wait for, by step run and lease."""

    def elapsed(self, now: float) -> float:
        return max(0.0, (now if self.ended is None else self.ended) - self.started)


class Progress:
    """One execution."""

    def __init__(self, execution_id: str | None = None) -> None:
        self.execution_id = execution_id
        self.name = ""
        self.status = "requested"
        self.started: float | None = None
        self.ended: float | None = None
        self.steps: dict[str, StepProgress] = {}
        self.failed_attempts: dict[tuple[str, str], int] = {}
        """The last attempt that failed, by step and task."""

    def elapsed(self, now: float) -> float:
        if self.started is None:
            return 0.0
        return max(0.0, (now if self.ended is None else self.ended) - self.started)

    def apply(self, event: Event) -> None:
        handler = _HANDLERS.get(event.event_type)
        if handler is not None:
            handler(self, event)

    def take_log(self, step: str, text: str) -> None:
        """Keeps the last line that says something."""
        lines = text.split("\n")
        line = next((line for line in reversed(lines) if line.strip()), None)
        view = self.steps.get(step)
        if line is not None and view is not None:
            view.log = line.rstrip()

    def view(self, event: Event) -> StepProgress:
        name = str(event.step)
        found = self.steps.get(name)
        if found is None:
            found = self.steps[name] = StepProgress(name)
        return found


def _requested(progress: Progress, event: Event) -> None:
    progress.name = event.payload.get("playbook", {}).get("name", "")
    progress.started = seconds_of(event.timestamp)


def _running(progress: Progress, event: Event) -> None:
    progress.status = "running"


def _paused(progress: Progress, event: Event) -> None:
    progress.status = "paused"


def _scheduled(progress: Progress, event: Event) -> None:
    view = progress.view(event)
    view.runs += 1
    if not view.open:
        view.parked.clear()
        view.started = seconds_of(event.timestamp)
        view.ended = view.error = view.retry_at = view.loop = None
        view.attempt, view.jumps, view.retries = 1, 0, 0
    view.open.add(str(event.step_run_id))
    view.state = "running"


def _skipped(progress: Progress, event: Event) -> None:
    view = progress.view(event)
    view.open.discard(str(event.step_run_id))
    if not view.runs or not view.open:
        view.state = "skipped"
        view.ended = seconds_of(event.timestamp)
        view.started = view.started or view.ended


def _loop_started(progress: Progress, event: Event) -> None:
    if "block" in event.payload:
        return
    view = progress.view(event)
    if view.loop is None:
        view.loop = LoopProgress(event.payload["total"], seconds_of(event.timestamp))
    else:
        view.loop.total += event.payload["total"]


def _iteration(progress: Progress, event: Event) -> None:
    loop = progress.view(event).loop
    if loop is None or "block" in event.payload:
        return
    if event.event_type == "loop.iteration.started":
        loop.in_flight += 1
        return
    loop.in_flight -= 1
    if event.event_type == "loop.iteration.done":
        loop.done += 1
    else:
        loop.failed += 1


def _task_started(progress: Progress, event: Event) -> None:
    view = progress.view(event)
    view.task = event.task_label
    view.attempt = event.attempt or 1
    view.retry_at = None


def _task_done(progress: Progress, event: Event) -> None:
    view = progress.view(event)
    if event.status == "error":
        progress.failed_attempts[str(event.step), str(event.task_label)] = event.attempt or 1
    if event.payload.get("then", {}).get("do") == "jump":
        view.jumps += 1
    if event.payload.get("log"):
        progress.take_log(view.name, event.payload["log"])


def _step_paused(progress: Progress, event: Event) -> None:
    lease = str(event.step_run_id), event.payload["lease"]
    progress.view(event).parked[lease] = msgspec.convert(event.payload["waits"], Waits)


def _step_resumed(progress: Progress, event: Event) -> None:
    progress.view(event).parked.pop((str(event.step_run_id), event.payload["lease"]), None)


def _retry(progress: Progress, event: Event) -> None:
    view = progress.view(event)
    view.retries += 1
    view.attempt = event.attempt or 1
    view.retry_at = seconds_of(event.timestamp) + (event.payload.get("delay") or 0)


def _step_ended(progress: Progress, event: Event) -> None:
    if event.event_type == "loop.done" and "block" in event.payload:
        return
    view = progress.view(event)
    view.open.discard(str(event.step_run_id))
    failed = event.event_type == "step.failed"
    view.error = event.payload.get("error")
    if failed or not view.open:
        view.state = "failed" if failed else "done"
        view.ended = seconds_of(event.timestamp)
        if view.loop is not None:
            view.loop.in_flight = 0


def _cancelled(progress: Progress, event: Event) -> None:
    progress.status = "cancelled"


def _finished(progress: Progress, event: Event) -> None:
    if progress.status != "cancelled":
        progress.status = "completed" if event.status == "success" else "failed"
    for view in progress.steps.values():
        if view.state == "running":
            view.state = "cancelled"
            view.ended = seconds_of(event.timestamp)


def _processed(progress: Progress, event: Event) -> None:
    if progress.status not in ("completed", "cancelled"):
        progress.status = "failed"
    progress.ended = seconds_of(event.timestamp)


_HANDLERS: Final[dict[str, Callable[[Progress, Event], None]]] = {
    "playbook.execution.requested": _requested,
    "workflow.started": _running,
    "execution.paused": _paused,
    "execution.resumed": _running,
    "execution.cancelled": _cancelled,
    "step.scheduled": _scheduled,
    "step.paused": _step_paused,
    "step.resumed": _step_resumed,
    "step.skipped": _skipped,
    "loop.started": _loop_started,
    "loop.iteration.started": _iteration,
    "loop.iteration.done": _iteration,
    "loop.iteration.failed": _iteration,
    "task.started": _task_started,
    "task.done": _task_done,
    "retry.started": _retry,
    "step.done": _step_ended,
    "step.failed": _step_ended,
    "loop.done": _step_ended,
    "workflow.finished": _finished,
    "playbook.processed": _processed,
}
