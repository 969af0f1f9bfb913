"""What the lanes of a lease report at the same time goes into one report.

Each lane hears of the same verdict, once its events are in the log. While a report is under way the next one
gathers. A report is taken whole or not at all, so lanes that report together succeed or fail together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from noetl.records.report import ReportedEvent, Verdict

Send = Callable[[list[ReportedEvent], bool], Awaitable[Verdict]]


class LeaseReports:
    """`send` makes a report of events, and whether they come with a question for iterations."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._events: list[ReportedEvent] = []
        self._asks = False
        self._waiting: list[asyncio.Future[Verdict]] = []
        self._sender: asyncio.Task[None] | None = None

    async def put(self, events: list[ReportedEvent], *, asks: bool = False) -> Verdict:
        """Answers once the events are in the log; raises what kept them from it."""
        waiting: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._events += events
        self._asks = self._asks or asks
        self._waiting.append(waiting)
        if self._sender is None:
            self._sender = asyncio.create_task(self._drain())
        return await waiting

    async def close(self) -> None:
        """Gives up what is under way: whoever waited for it has gone."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def _drain(self) -> None:
        try:
            while self._waiting:
                waiting, events, asks = self._waiting, self._events, self._asks
                self._waiting, self._events, self._asks = [], [], False
                await self._deliver(waiting, events, asks)
        finally:
            self._sender = None

    async def _deliver(
        self, waiting: list[asyncio.Future[Verdict]], events: list[ReportedEvent], asks: bool
    ) -> None:
        try:
            verdict = await self._send(events, asks)
        # Whatever it was, it is raised in each lane that waits for it.
        except BaseException as error:
            for each in waiting:
                if not each.done():
                    each.set_exception(error)
                    each.exception()  # the lane may be cancelled before it hears of it
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for each in waiting:
            if not each.done():
                each.set_result(verdict)
