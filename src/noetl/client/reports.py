"""Reports on their way to the server: whatever is queued when a call returns goes together in the next.

There is no timer: a report that finds no call under way goes at once, and the more there are at the same
time the more of them share a call: those of a loop's lanes above all, which are all about one lease. They
keep their order, and the last verdict about a lease, with all its open iterations, is the answer to each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from noetl.errors import NoetlError
from noetl.records.report import Report, ReportReply, Verdict

MOST_EVENTS: Final = 2_000
"""Events in one call; a single report with more goes alone."""
PASSES: Final = 5
"""Of the event loop, before those that wait are sent: whoever was just answered may have gathered more
meanwhile, which would have to wait for a call of its own."""

Send = Callable[[Report], Awaitable[ReportReply]]


class _Waiting(NamedTuple):
    report: Report
    answer: asyncio.Future[ReportReply]


class Reports:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._queue: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    async def put(self, report: Report) -> ReportReply:
        """Answers once the server has answered for this report."""
        waiting = _Waiting(report, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if self._sending is None:
            self._sending = asyncio.create_task(self._drain())
        return await waiting.answer

    async def close(self) -> None:
        """Waits until all that was queued is sent."""
        while self._sending is not None:
            await asyncio.wait([self._sending])

    async def _drain(self) -> None:
        try:
            while self._queue:
                await self._deliver(self._next_call())
                for _ in range(PASSES if self._queue else 0):
                    await asyncio.sleep(0)
        finally:
            self._sending = None

    def _next_call(self) -> list[_Waiting]:
        """The reports that go together: of one worker and pool, not too many events."""
        first = self._queue[0].report
        taken: list[_Waiting] = []
        left: list[_Waiting] = []
        behind: set[str] = set()
        events = 0
        for waiting in self._queue:
            report = waiting.report
            named = {each.lease.command_id for each in report.leases}
            size = sum(len(each.events) for each in report.leases)
            fits = not taken or events + size <= MOST_EVENTS
            same = (report.worker_id, report.pool, report.protocol) == (
                first.worker_id,
                first.pool,
                first.protocol,
            )
            # What is left behind keeps its place before later reports of the same lease.
            if same and fits and not named & behind:
                taken.append(waiting)
                events += size
            else:
                left.append(waiting)
                behind |= named
        self._queue = left
        return taken

    async def _deliver(self, together: list[_Waiting]) -> None:
        try:
            reply = await self._send(_merged([each.report for each in together]))
        except NoetlError as error:
            if len(together) == 1:
                _fail(together[0], error)
                return
            # One of them may be what the server refuses; the others must not fail for it.
            for each in together:
                await self._deliver([each])
            return
        # Whatever broke the call, nobody may be left waiting for its answer.
        except BaseException as error:
            for each in together:
                _fail(each, error)
            raise
        _answer(together, reply)


def _merged(reports: list[Report]) -> Report:
    first = reports[0]
    if len(reports) == 1:
        return first
    return Report(
        worker_id=first.worker_id,
        leases=tuple(lease for report in reports for lease in report.leases),
        pool=first.pool,
        # Each says how many slots are free in the whole worker, so they do not add up.
        free_slots=max(report.free_slots for report in reports),
        protocol=first.protocol,
    )


def _answer(together: list[_Waiting], reply: ReportReply) -> None:
    """Gives each its verdicts, and the new work to one that is still there to take it."""
    verdicts: dict[str, Verdict] = {each.command_id: each for each in reply.verdicts}
    listening = [each for each in together if not each.answer.done()]
    takes_work = max(listening, key=lambda each: each.report.free_slots, default=None)
    for waiting in listening:
        own = (verdicts.get(each.lease.command_id) for each in waiting.report.leases)
        waiting.answer.set_result(
            ReportReply(
                verdicts=tuple(verdict for verdict in own if verdict is not None),
                commands=reply.commands if waiting is takes_work else (),
            )
        )


def _fail(waiting: _Waiting, error: BaseException) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
        waiting.answer.exception()  # whoever reported may be cancelled before it hears of it
