"""When time alone moves executions on: one alarm for each that has something due.

What is due follows from the state, and the store has a row for it; this only saves looking there for what
this process knows itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from noetl.errors import NoetlError
from noetl.ids import Clock

logger = logging.getLogger(__name__)

A_MOMENT: Final = 0.001
"""How long an alarm that rang too early by the clock is put off."""


class Alarms:
    def __init__(self, clock: Clock, wake: Callable[[str], Awaitable[None]]) -> None:
        self._clock = clock
        self._wake = wake
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._waking: set[asyncio.Task[None]] = set()

    def set_at(self, execution_id: str, due: float | None, *, again: bool = False) -> None:
        """Wakes an execution at a moment, and not at the one it was told of before.

        `again`: it has just rung, and was too early.
        """
        earlier = self._handles.pop(execution_id, None)
        if earlier is not None:
            earlier.cancel()
        if due is not None:
            left = max(A_MOMENT if again else 0.0, due - self._clock.now())
            loop = asyncio.get_running_loop()
            self._handles[execution_id] = loop.call_later(left, self._ring, execution_id)

    def _ring(self, execution_id: str) -> None:
        self._handles.pop(execution_id, None)
        self.run(self._guarded(execution_id))

    async def _guarded(self, execution_id: str) -> None:
        # If it could not be written, whoever works on the execution hears of it by its own report, and its
        # row in the store stays for the next who looks.
        try:
            await self._wake(execution_id)
        except NoetlError:
            return

    def run(self, work: Awaitable[None]) -> None:
        """Runs something beside whoever asks for it."""
        task = asyncio.ensure_future(work)
        self._waking.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._waking.discard(task)
        problem = None if task.cancelled() else task.exception()
        if isinstance(problem, NoetlError):
            # A row in the store stays for the next who looks, as for alarms.
            logger.warning("%s: %s; it is left to the next who looks", problem.code, problem.message)
        elif problem is not None:
            about = {"message": "an alarm could not be handled", "exception": problem}
            task.get_loop().call_exception_handler(about)

    async def settle(self) -> None:
        while self._waking:
            await asyncio.wait(self._waking)

    def stop(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
