"""Tells of tasks that have begun and take longer than a moment.

Most tasks are over before that, and their start is reported with their end. All of them wait equally long,
so one timer serves them in the order in which they began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

QUIET_SECONDS: Final = 0.2
"""How long a task may run before its start is reported on its own."""

Tell = Callable[[], Awaitable[None]]


class QuietTasks:
    """The tasks of a worker that have begun and have not been told of."""

    def __init__(self) -> None:
        self._due: dict[QuietReport, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, tell: Tell) -> QuietReport:
        """`tell` is awaited once unless the report is stopped or settled before."""
        loop = asyncio.get_running_loop()
        report = QuietReport(self, tell)
        self._due[report] = due = loop.time() + QUIET_SECONDS
        if self._timer is None:
            self._timer = loop.call_at(due, self._look)
        return report

    def forget(self, report: QuietReport) -> None:
        self._due.pop(report, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while self._due:
            report, due = next(iter(self._due.items()))
            if due > loop.time():
                self._timer = loop.call_at(due, self._look)
                return
            del self._due[report]
            report.begin()
        self._timer = None


class QuietReport:
    """Made in the task that runs the tool.

    Should telling find that the lease is over, the tool is stopped, and whoever runs it hears why.
    """

    def __init__(self, tasks: QuietTasks, tell: Tell) -> None:
        self._tasks = tasks
        self._tell = tell
        self._caller = asyncio.current_task()
        self._telling: asyncio.Future[None] | None = None

    def begin(self) -> None:
        self._telling = asyncio.ensure_future(self._tell())
        self._telling.add_done_callback(self._told)

    def _told(self, telling: asyncio.Future[None]) -> None:
        if not telling.cancelled() and telling.exception() is not None and self._caller is not None:
            self._caller.cancel()

    def stop(self) -> None:
        """Ends it with the tool's cancellation; raises what kept it from telling, if that was the cause."""
        self._tasks.forget(self)
        telling = self._telling
        if telling is None or telling.cancel():
            return
        problem = None if telling.cancelled() else telling.exception()
        if problem is not None and self._caller is not None and self._caller.uncancel() == 0:
            raise problem

    async def settle(self) -> None:
        """Waits until what was begun is told."""
        self._tasks.forget(self)
        self._caller = None
        if self._telling is not None:
            await self._telling
