"""What runs side by side in one lease: lanes, and a lease's share of a loop's iterations."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from noetl.engine.state import Data
from noetl.worker.parking import Parking

if TYPE_CHECKING:
    from noetl.worker.lease import StepLease
    from noetl.worker.pipeline import Pipeline

Lane = Callable[[], Awaitable[None]]


async def run_lanes(lanes: Sequence[Lane], parking: Parking, is_over: Callable[[], bool]) -> None:
    """Runs lanes side by side until all are through, or one raises, or `is_over` after one of them."""

    async def counted(lane: Lane, ended: Callable[[], None]) -> None:
        await lane()
        ended()  # not if it raised: there is more to do then, for whoever started it

    with parking.working(len(lanes)) as ended:
        tasks = [asyncio.create_task(counted(lane, ended)) for lane in lanes]
        left = set(tasks)
        try:
            while left and not is_over():
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class LoopShare:
    """The iterations of a loop that one lease runs. The control plane hands out more with each report."""

    def __init__(self, lease: StepLease, width: int, given: list[int]) -> None:
        self._lease = lease
        self._width = width
        self.waiting: deque[int] = deque(sorted(given))
        self._given = frozenset(given)
        self._highest = -1
        """Of those handed out on the way: they come in the order of their indexes."""
        self._failures: list[Data] = []
        self._idle: deque[asyncio.Future[None]] = deque()
        self._busy = 0

    async def run(self, run: Callable[[int], Awaitable[Data | None]]) -> None:
        """Runs what was given, and what is given on the way, `width` at a time; the first error ends all."""
        if self._width == 1:
            while self.waiting and not self._failures:
                await self._run_one(run, self.waiting.popleft())
            return
        await run_lanes(
            [lambda: self._lane(run)] * self._width, self._lease.parking, lambda: bool(self._failures)
        )

    async def _run_one(self, run: Callable[[int], Awaitable[Data | None]], index: int) -> None:
        error = await run(index)
        if error is not None:
            self._failures.append(error)

    async def _lane(self, run: Callable[[int], Awaitable[Data | None]]) -> None:
        while not self._failures:
            if self.waiting:
                self._busy += 1
                await self._run_one(run, self.waiting.popleft())
                self._busy -= 1
            elif self._busy:
                await self._for_more()
            else:
                break
        self._wake_idle(len(self._idle))

    async def _for_more(self) -> None:
        """Another lane's report may bring more to do."""
        woken = asyncio.get_running_loop().create_future()
        self._idle.append(woken)
        with self._lease.parking.resting():
            await woken

    def _wake_idle(self, most: int) -> None:
        for _ in range(min(most, len(self._idle))):
            woken = self._idle.popleft()
            if not woken.done():
                woken.set_result(None)

    async def tell(self, pipeline: Pipeline) -> None:
        """Reports the end of an iteration; more may be given in the answer."""
        events, pipeline.pending = pipeline.pending, []
        self._take((await self._lease.report(events)).iterations)

    async def ask(self) -> None:
        """Asks for iterations without anything to tell."""
        self._take((await self._lease.report([], asks=True)).iterations)

    def _take(self, iterations: tuple[int, ...]) -> None:
        """Answers may overlap, and an old one come late: what was seen before is under way or over."""
        for index in iterations:
            if index > self._highest and index not in self._given:
                self._highest = index
                self.waiting.append(index)
        self._wake_idle(len(self.waiting))
