"""Drives a step that waits for events: signals, timers, and the ends of other steps.

It holds no slot and no process while it waits. What it has looked at is recorded, so after a restart it
goes on with the first event it has not seen; signals stay in the mailbox until then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from noetl.engine.cases import at_event
from noetl.engine.facts import Fact
from noetl.engine.state import Data
from noetl.ids import seconds_of
from noetl.playbook.model import Case
from noetl.worker.calls import with_bodies
from noetl.worker.cases import CaseRun

if TYPE_CHECKING:
    from noetl.control.live import Heard
    from noetl.worker.pipeline import Pipeline


class WaitingCase(CaseRun):
    def __init__(self, pipeline: Pipeline, case: Case) -> None:
        super().__init__(pipeline, case)
        self._current: Data | None = None

    async def wait(self) -> None:
        """Looks at events until one of them ends the step."""
        live = self.lease.live
        heard = live.listen()
        timers = self._set_timers()
        try:
            await self._begin()
            if not self._is_over():
                await self._missed()
            while not self._is_over():
                await self._look(await heard.get())
        finally:
            live.stop_listening(heard)
            for timer in timers:
                timer.cancel()

    async def _begin(self) -> None:
        """The step is entered, and its tool called if it has one; then what a crash left open."""
        await self.enter()
        await self.pipeline.commit()
        if self.case.call is not None and self.frame.outcome is None:
            await self.cycle()
        if self.frame.queue:
            await self._chains()
        self.frame.phase = "after"

    def _is_over(self) -> bool:
        frame = self.frame
        return bool(frame.routes or frame.result or frame.skipped)

    async def _missed(self) -> None:
        """Signals that came before the step, and what a crash kept from being looked at: signals and timers."""
        live, step = self.lease.live, self.lease.step.name
        timers = {place: name for name, place in live.state.runs[self.lease.run_id].fired.items()}
        for place in sorted([*live.state.mailbox, *timers]):
            if place <= self.frame.seen or place in live.taken or self._is_over():
                continue
            at = self.lease.timestamp()
            if place in timers:
                await self._take(place, "timer.fired", {"timer_id": timers[place]}, at, step)
            elif place in live.state.mailbox:
                found = live.state.mailbox[place]
                await self._take(place, found["name"], found["data"], at, None, signal=True)

    async def _look(self, heard: Heard) -> None:
        fact, place = heard.fact, heard.place
        if place <= self.frame.seen:
            return
        if fact.event_type == "signal.received":
            await self._take(place, fact.payload["name"], fact.payload.get("data"), fact.timestamp, None, signal=True)
        elif fact.event_type == "timer.fired":
            if fact.step_run_id == self.lease.run_id:
                data = {"timer_id": fact.payload["timer_id"]}
                await self._take(place, "timer.fired", data, fact.timestamp, fact.step)
        elif fact.step_run_id != self.lease.run_id:
            await self._take(place, fact.event_type, _about_end(fact), fact.timestamp, fact.step)

    async def _take(
        self,
        place: int,
        name: str,
        data: Any,  # noqa: ANN401 - plain data
        at: str,
        step: str | None,
        *,
        signal: bool = False,
    ) -> None:
        """Asks every entry about one event, and runs the chains of those that match."""
        self._current = {"name": name, "step": step, "data": data, "payload": data, "timestamp": at}
        matched = await with_bodies(lambda: at_event(self.case, self._scope(name)), self.lease.load_body)
        self.frame.seen = place
        if matched or signal:
            extra: Data = {"signal": place} if signal else {"seen": place}
            self._selected(name, matched, **extra)
        await self._chains()
        await self.pipeline.commit()

    def event_data(self, event: str) -> Data:
        return super().event_data(event) if self._current is None else self._current

    def _set_timers(self) -> list[asyncio.TimerHandle]:
        """Timers that have not gone off, counted from when the step was scheduled."""
        lease, loop = self.lease, asyncio.get_running_loop()
        run = lease.live.state.runs[lease.run_id]
        handles = []
        for name, duration in self.case.timers.items():
            if name not in run.fired:
                left = seconds_of(run.scheduled_at) + lease.seconds(duration) - lease.now()
                handles.append(loop.call_later(max(0.0, left), self._fire, name))
        return handles

    def _fire(self, name: str) -> None:
        self.lease.worker.fire_timer(self.lease, name)


def _about_end(fact: Fact) -> Data:
    error = fact.payload.get("error")
    return {} if error is None else {"error": error}
