"""What the templates of a case see, and what of it is recorded.

Pure actions change the case's frame at once; they are recorded with the next event that is reported. The
selection of branches is told just before the first thing that follows from it, so that one event carries
it together with what `set` and `collect` did until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from noetl.engine.bodies import view
from noetl.engine.cases import DONE, evaluated, started
from noetl.engine.frames import apply_change
from noetl.engine.moments import moment_data, result_names, value_names, with_names
from noetl.engine.scope import render, render_each, render_inner
from noetl.engine.state import CaseFrame, Data
from noetl.errors import TemplateError
from noetl.playbook.model import CallAction, Case, Task
from noetl.template import Scope
from noetl.worker.calls import with_bodies

if TYPE_CHECKING:
    from noetl.worker.pipeline import Pipeline


class Failed(Exception):  # noqa: N818 - not an error of ours: the step's failure on its way out
    """A case failed the step."""

    def __init__(self, error: Data, task: str | None = None, *, by_call: bool = False) -> None:
        super().__init__(error["message"])
        self.error = error
        self.task = task
        self.by_call = by_call
        """The step's own call failed, and the chains knew it: a way out they chose takes the failure."""
        self.about: Data | None = None
        """Which attempt of which task failed, where it was one of a chain."""


class ChainSink(NamedTuple):
    """A sink of a case's chain."""

    place: str
    """Which action of which selection it is."""
    before: int
    """Its attempts before the chain started over."""
    recorded: Callable[[int, bool], Data]
    """The case to be recorded with an attempt; it is told its number, and whether another one follows."""


class CaseRecord:
    """The frame of one case in one pipeline: of a step, or of one iteration of its loop."""

    def __init__(self, pipeline: Pipeline, case: Case) -> None:
        self.pipeline = pipeline
        self.lease = pipeline.lease
        self.case = case
        self.outer = pipeline.frame
        if self.outer.case is None:
            self.outer.case = CaseFrame()
        self.frame = self.outer.case
        self.shown: Any = None
        """The result that is seen on exit where no chain has set one: a loop's list."""
        self.current: Data | None = None
        """The event from outside that is looked at, where a waiting case looks at one."""
        self._changes: list[list[Any]] = []
        """What `set` and `collect` did since the last recorded event."""
        self._untold: Data | None = None
        """The selection that is not in the log yet."""
        self._pages = any(
            isinstance(action, CallAction) for branch in case.branches for action in branch.actions
        )
        self.turn_page()

    def turn_page(self) -> None:
        """The events that follow tell which page of a pagination they belong to."""
        self.pipeline.narrator.page = self.frame.page if self._pages else None

    # --- what is recorded -------------------------------------------------------------------------------

    def selected(self, name: str, matched: list[int], **extra: Any) -> None:  # noqa: ANN401 - plain data
        """Branches were selected at a moment."""
        frame = self.frame
        frame.event, frame.queue, frame.matched = name, matched, list(matched)
        frame.action, frame.chain_attempt = 0, 1
        frame.asked = True
        if matched:
            frame.epoch += 1
        if matched or name == DONE or extra:
            self._untold = extra

    def tell(self) -> None:
        """Records the selection, if it has not been."""
        if self._untold is not None:
            extra, self._untold = self._untold, None
            self._append("case.started", started(self.case, self.frame.event), "in_progress")
            about = evaluated(self.case, self.frame.event, self.frame.matched)
            self._append("case.evaluated", {**about, **extra, "case": self.taken()})

    def say(self, event_type: str, payload: Data) -> None:
        """Records something about the case, with the case as it stands."""
        self.tell()
        self._append(event_type, {**payload, "case": self.taken()})

    def mention(self, event_type: str, payload: Data) -> None:
        """Records something that moves nothing."""
        self.tell()
        self._append(event_type, payload)

    def _append(self, event_type: str, payload: Data, status: Any = "success") -> None:  # noqa: ANN401
        at, narrator = self.lease.timestamp(), self.pipeline.narrator
        self.pipeline.pending.append(narrator.about_step(event_type, at, payload, status))

    def tell_changes(self) -> None:
        """Records what was set and collected, if anything was since the last event."""
        self.tell()
        if self._changes:
            self.say("case.evaluated", evaluated(self.case, self.frame.event, self.frame.matched))

    def left_to_tell(self) -> Data | None:
        """What is to be recorded with the end of an iteration: what changed since the last event."""
        return self.taken() if self._changes else None

    def taken(self) -> Data:
        """The case as it stands, with the changes of its values since it was last recorded."""
        changes, self._changes = self._changes, []
        self.frame.told += 1
        said: Data = {"frame": msgspec.to_builtins(msgspec.structs.replace(self.frame, outcome=None))}
        if changes:
            said["changes"] = changes
        return said

    async def rest(self) -> None:
        """Waits until the moment for which the last repetition was recorded."""
        if self.outer.wake_at is not None:
            if self.outer.wake_at > self.lease.now():
                await self.pipeline.commit()
            await self.lease.sleep_until(self.outer.wake_at)

    def change(self, change: list[Any]) -> None:
        apply_change(self.outer.values, change)
        self._changes.append(change)

    # --- what templates see -----------------------------------------------------------------------------

    def names(self, event: str) -> Data:
        outcome, bodies = self.frame.outcome, self.pipeline.around.bodies
        names: Data = {}
        if self.frame.result:
            names = value_names(self.frame.result[0], {"status": "ok"}, bodies)
        elif self.shown is not None:
            names = value_names(self.shown, {"status": "ok"}, bodies)
        elif outcome is not None:
            names = result_names(outcome, bodies)
        return {"event": self._event_data(event), **names}

    def _event_data(self, event: str) -> Data:
        """What `event` shows: the event from outside, or a moment of the step itself."""
        bodies = self.pipeline.around.bodies
        if self.current is not None:
            data = view(self.current["data"], bodies)  # a large signal is stored
            return {**self.current, "data": data, "payload": data}
        data = moment_data(event, self.frame.outcome, bodies)
        step, at = self.lease.step.name, self.lease.timestamp()
        return {"name": event, "step": step, "data": data, "payload": data, "timestamp": at}

    def scope(self, event: str, *, with_iterators: bool = True) -> Scope:
        return with_names(self.pipeline.case_scope(with_iterators=with_iterators), self.names(event))

    def task_scope(self, task: Task, about: Data, *, is_call: bool) -> Scope:
        scope = self.pipeline.task_scope(task, about["action_id"])
        names: Data = {} if is_call else self.names(self.frame.event)
        if about["attempt"] != self.outer.attempt:
            names["_attempt"] = about["attempt"]
        return with_names(scope, names) if names else scope

    async def evaluate(self, evaluate: Any, task: str | None = None) -> Any:  # noqa: ANN401 - whatever it is
        """`task`: the one that fails with what cannot be evaluated."""
        try:
            return await with_bodies(evaluate, self.lease)
        except TemplateError as error:
            raise Failed({"kind": error.code, "message": error.message, "retryable": False}, task) from error

    async def each(self, values: Data) -> Data:
        found: Data = await self.evaluate(lambda: render_each(values, self.scope(self.frame.event)))
        return found

    async def inner(self, values: Data) -> Data:
        found: Data = await self.evaluate(lambda: render_inner(values, self.scope(self.frame.event)))
        return found

    async def value(self, value: Any) -> Any:  # noqa: ANN401 - plain data
        return await self.evaluate(lambda: render(value, self.scope(self.frame.event)))
