"""The bus within one process: waiters of a pool, and what was told while nobody waited."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from typing import Final

from noetl.bus.protocol import until_poll

MOST_KEPT: Final = 10_000
"""Wake-ups kept of one pool while nobody waits; the oldest go first, for nobody who comes late needs them."""


class InProcessBus:
    """Implements `Bus` for server and workers that share an event loop.

    `poll_seconds`: other processes write the same store and are not heard here, so it is time to look after
    that many seconds, more or less.
    """

    def __init__(self, poll_seconds: float | None = None) -> None:
        self._poll_seconds = poll_seconds
        self._told: dict[str, dict[str, None]] = {}
        self._heard: dict[str, asyncio.Event] = {}
        self._is_closed = False

    @property
    def is_up(self) -> bool:
        return not self._is_closed

    async def publish(self, pool: str, command_ids: Sequence[str]) -> None:
        if self._is_closed or not command_ids:
            return
        told = self._told.setdefault(pool, {})
        told.update(dict.fromkeys(command_ids))
        while len(told) > MOST_KEPT:
            del told[next(iter(told))]
        self._event(pool).set()

    async def wait(self, pool: str, timeout: float, limit: int = 1) -> bool:
        event = self._event(pool)
        seconds = until_poll(timeout, self._poll_seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                while not self._is_closed:
                    if told := self._told.get(pool):
                        for key in list(told)[:limit]:
                            del told[key]
                        return True
                    event.clear()
                    await event.wait()
        return seconds < timeout and not self._is_closed

    async def close(self) -> None:
        self._is_closed = True
        for event in self._heard.values():
            event.set()

    def _event(self, pool: str) -> asyncio.Event:
        return self._heard.setdefault(pool, asyncio.Event())
