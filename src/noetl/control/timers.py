"""What happens to an execution by the passing of time: deadlines, and tokens that wait.

Nothing here is kept: every timer follows from the state, so it is set again when an execution is opened
again, and fires at the moment it would have fired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from noetl.control.live import Live
from noetl.engine import decide
from noetl.engine.state import StepRun
from noetl.engine.turn import Turn, error_data
from noetl.errors import NoetlError, TemplateValueError
from noetl.ids import Clock, seconds_of
from noetl.playbook.durations import parse_duration
from noetl.template import Scope, Template

BEGINNINGS: Final = ("workflow.started", "execution.resumed")
A_MOMENT: Final = 0.001
"""Later than due, so that the turn a timer leads to finds it due."""


class Timers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changing: set[asyncio.Task[Any]] = set()

    def set_after(self, live: Live, turn: Turn) -> None:
        """Sets the timers that follow from a turn that was committed."""
        if any(fact.event_type in BEGINNINGS for fact in turn.facts):
            self._set_execution_deadline(live)
        for run_id in turn.ready:
            run = live.state.runs.get(run_id)
            if run is not None:
                self._set_step_deadline(live, run)
        due = [token.not_before for token in live.state.tokens.values() if token.not_before is not None]
        if due and not live.state.is_over:
            self._at(live, min(due) + A_MOMENT, decide.wake)

    def _set_execution_deadline(self, live: Live) -> None:
        try:
            seconds = _seconds(live.plan.playbook.executor.deadline, live, None)
        except NoetlError as error:
            self._at(live, 0.0, partial(decide.cancel, reason=f"`deadline`: {error.message}"))
            return
        if seconds is not None:
            due = seconds_of(live.state.requested_at) + seconds
            self._at(live, due, partial(decide.expire, seconds=seconds))

    def _set_step_deadline(self, live: Live, run: StepRun) -> None:
        try:
            seconds = _seconds(live.plan.steps[run.step].deadline, live, run)
        except NoetlError as error:
            problem = error_data(error.code, f"`deadline`: {error.message}", step=run.step)
            self._at(live, 0.0, partial(decide.fail_run, run_id=run.run_id, error=problem))
            return
        if seconds is not None:
            due = seconds_of(run.scheduled_at) + seconds
            self._at(live, due, partial(decide.expire_run, run_id=run.run_id, seconds=seconds))

    def _at(self, live: Live, due: float, act: Callable[[Turn], Any]) -> None:
        left = max(0.0, due - self._clock.now())
        asyncio.get_running_loop().call_later(left, self._change, live, act)

    def _change(self, live: Live, act: Callable[[Turn], Any]) -> None:
        if live.state.is_over:
            return
        task = asyncio.create_task(live.change(act))
        self._changing.add(task)
        task.add_done_callback(self._changed)

    def _changed(self, task: asyncio.Task[Any]) -> None:
        self._changing.discard(task)
        if not task.cancelled():
            # If it could not be written, whoever works on the execution hears of it by its own report.
            task.exception()


def _seconds(written: float | Template | None, live: Live, run: StepRun | None) -> float | None:
    if not isinstance(written, Template):
        return written
    scope = Scope({"workload": live.state.workload, "args": {} if run is None else run.args})
    found = parse_duration(written.evaluate(scope))
    if found is None:
        raise TemplateValueError(f"`{written.source}` does not give a duration")
    return found
