"""Drives a step that waits for events: signals, timers, and the ends of other steps.

While it waits its lease is given back. What it has looked at is recorded, so whoever leases it next goes on
with the first event it has not seen.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from noetl.engine.cases import at_event
from noetl.engine.state import Data, Waits
from noetl.ids import seconds_of, timestamp
from noetl.playbook.model import Case
from noetl.records.report import Heard
from noetl.worker.cases import CaseRun

if TYPE_CHECKING:
    from noetl.worker.pipeline import Pipeline


class WaitingCase(CaseRun):
    def __init__(self, pipeline: Pipeline, case: Case) -> None:
        super().__init__(pipeline, case)
        self._looked = max(self.frame.seen, self.lease.context.opened)
        """The place in the log up to which it has looked."""

    async def wait(self) -> None:
        """Looks at events until one of them ends the step; what is left is the moment of its exit."""
        lease = self.lease
        if self.frame.phase in ("exit", "end"):
            return  # it was about to end under an earlier lease
        await self._begin()
        if not self._is_over():
            await self._look_back()
        while not self._is_over():
            unheard = await lease.worker.source.heard(lease.held, self._looked)
            for heard in unheard:
                self._looked = heard.place
                if not self._is_over():
                    await self._look(heard)
            if not unheard:
                await self.pipeline.commit()
                async with lease.parking.waiting(
                    Waits(events=self._looked, timers=await self._timers()), at_once=True
                ):
                    await asyncio.get_running_loop().create_future()
        self.move("exit")

    async def _begin(self) -> None:
        """The step is entered, and its tool called if it has one; then what a crash left open."""
        frame = self.frame
        if not self.lease.context.started:
            await self._tell_timers()
        await self.enter()
        await self.pipeline.commit()
        if frame.phase == "waiting":
            if frame.queue or frame.again:
                self.record.current = await self._event_at(frame.seen)
                await self._react()
                self.record.current = None
        elif self.case.call is not None:
            await self.cycle()
        if not self._is_over():
            self.move("waiting")

    def _is_over(self) -> bool:
        frame = self.frame
        is_busy = bool(frame.queue or frame.again)
        return not is_busy and bool(frame.routes or frame.result or frame.skipped)

    async def _look_back(self) -> None:
        """Looks at signals from before the step that nobody has taken."""
        context, seen = self.lease.context, self.frame.seen
        for place in sorted(context.mailbox):
            if seen < place <= context.opened and not self._is_over():
                found, at = context.mailbox[place], self.lease.timestamp()
                await self._take(place, _event(found["name"], found["data"], at, None), signal=True)

    async def _look(self, heard: Heard) -> None:
        if heard.place > self.frame.seen and self._concerns(heard):
            await self._take(heard.place, _as_seen(heard), signal=heard.event_type == "signal.received")

    def _concerns(self, heard: Heard) -> bool:
        """A step hears of its own timers, and of everything else that does not come from itself."""
        is_own = heard.step_run_id == self.lease.run_id
        return is_own == (heard.event_type == "timer.fired")

    async def _event_at(self, place: int) -> Data:
        found = await self.lease.worker.source.heard(self.lease.held, place - 1, 1)
        return _as_seen(found[0])

    async def _take(self, place: int, event: Data, *, signal: bool) -> None:
        """Asks every entry about one event, and runs the chains of those that match.

        A signal that none of them wants stays in the mailbox, for a step that comes later.
        """
        name = event["name"]
        self.record.current = event
        matched = await self.record.evaluate(lambda: at_event(self.case, self.record.scope(name)))
        self.frame.seen = place
        if matched:
            self.record.selected(name, matched, **({"signal": place} if signal else {"seen": place}))
            await self._react()
        self.record.current = None

    async def _react(self) -> None:
        """Runs the chains that an event has selected, and the call if one of them asks for it."""
        await self._chains()
        if self.frame.phase == "call":
            self.record.current = None
            await self.cycle()
            self.move("waiting")
        await self.pipeline.commit()

    async def _tell_timers(self) -> None:
        for name, due in (await self._timers()).items():
            self.record.mention("timer.scheduled", {"timer_id": name, "due": timestamp(due)})

    async def _timers(self) -> dict[str, float]:
        """When the timers go off that have not, counted from when the step was scheduled."""
        lease = self.lease
        began = seconds_of(lease.context.scheduled_at)
        return {
            name: began + await lease.seconds(duration, name)
            for name, duration in self.case.timers.items()
            if name not in lease.context.fired
        }


def _as_seen(heard: Heard) -> Data:
    """An event of the log as the entries of a case see it."""
    if heard.event_type == "signal.received":
        return _event(heard.payload["name"], heard.payload.get("data"), heard.timestamp, None)
    if heard.event_type == "timer.fired":
        return _event("timer.fired", {"timer_id": heard.payload["timer_id"]}, heard.timestamp, heard.step)
    error = heard.payload.get("error")
    return _event(heard.event_type, {} if error is None else {"error": error}, heard.timestamp, heard.step)


def _event(name: str, data: Any, at: str, step: str | None) -> Data:  # noqa: ANN401 - plain data
    return {"name": name, "step": step, "data": data, "payload": data, "timestamp": at}
