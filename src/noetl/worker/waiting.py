"""Drives a step that waits for events: signals, timers, and the ends of other steps.

It holds no slot and no process while it waits. What it has looked at is recorded, so after a restart it
goes on with the first event it has not seen.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from noetl.engine.bodies import view
from noetl.engine.cases import at_event
from noetl.engine.state import Data
from noetl.ids import seconds_of
from noetl.playbook.model import Case
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
                await self._look_back()
            while not self._is_over():
                await self._look(await heard.get())
        finally:
            live.stop_listening(heard)
            for timer in timers:
                timer.cancel()

    async def _begin(self) -> None:
        """The step is entered, and its tool called if it has one; then what a crash left open."""
        frame = self.frame
        await self.enter()
        await self.pipeline.commit()
        if frame.phase == "waiting":
            if frame.queue:
                self._current = await self._event_at(frame.seen)
                await self._react()
        elif self.case.call is not None:
            await self.cycle()
        if not self._is_over():
            self.move("waiting")

    def _is_over(self) -> bool:
        frame = self.frame
        return not frame.queue and bool(frame.routes or frame.result or frame.skipped)

    async def _look_back(self) -> None:
        """Looks at signals from before the step, and at all it could have heard since and has not."""
        live, seen = self.lease.live, self.frame.seen
        opened = live.state.runs[self.lease.run_id].opened
        for place in sorted(live.state.mailbox):
            if seen < place <= opened and place not in live.taken and not self._is_over():
                found, at = live.state.mailbox[place], self.lease.timestamp()
                await self._take(place, _event(found["name"], found["data"], at, None), signal=True)
        for heard in await self.lease.worker.control.heard_since(live, max(seen, opened)):
            if not self._is_over():
                await self._look(heard)

    async def _look(self, heard: Heard) -> None:
        if heard.place > self.frame.seen and self._concerns(heard):
            await self._take(heard.place, _as_seen(heard), signal=heard.fact.event_type == "signal.received")

    def _concerns(self, heard: Heard) -> bool:
        """A step hears of its own timers, and of everything else that does not come from itself."""
        is_own = heard.fact.step_run_id == self.lease.run_id
        return is_own == (heard.fact.event_type == "timer.fired")

    async def _event_at(self, place: int) -> Data:
        found = await self.lease.worker.control.heard_since(self.lease.live, place - 1, limit=1)
        return _as_seen(found[0])

    async def _take(self, place: int, event: Data, *, signal: bool) -> None:
        """Asks every entry about one event, and runs the chains of those that match.

        A signal that none of them wants stays in the mailbox, for a step that comes later.
        """
        name = event["name"]
        self._current = event
        matched = await self._evaluated(lambda: at_event(self.case, self._scope(name)))
        self.frame.seen = place
        if matched:
            self._selected(name, matched, **({"signal": place} if signal else {"seen": place}))
            await self._react()
        self._current = None

    async def _react(self) -> None:
        """Runs the chains that an event has selected, and the call if one of them asks for it."""
        await self._chains()
        if self.frame.phase == "call":
            self._current = None
            await self.cycle()
            self.move("waiting")
        await self.pipeline.commit()

    def event_data(self, event: str) -> Data:
        if self._current is None:
            return super().event_data(event)
        data = view(self._current["data"], self.pipeline.around.bodies)  # a large signal is stored
        return {**self._current, "data": data, "payload": data}

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


def _as_seen(heard: Heard) -> Data:
    """An event of the log as the entries of a case see it."""
    fact = heard.fact
    if fact.event_type == "signal.received":
        return _event(fact.payload["name"], fact.payload.get("data"), fact.timestamp, None)
    if fact.event_type == "timer.fired":
        return _event("timer.fired", {"timer_id": fact.payload["timer_id"]}, fact.timestamp, fact.step)
    error = fact.payload.get("error")
    return _event(fact.event_type, {} if error is None else {"error": error}, fact.timestamp, fact.step)


def _event(name: str, data: Any, at: str, step: str | None) -> Data:  # noqa: ANN401 - plain data
    return {"name": name, "step": step, "data": data, "payload": data, "timestamp": at}
