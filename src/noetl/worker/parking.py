"""Whether a lease has anything left to do but wait.

Every branch of a lease that waits says so. When none is left that works, and each has waited long enough
or is known to wait longer, the lease is given back with what it waits for, and whoever leases it next goes
on when the first of these has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from noetl.engine.parking import together
from noetl.engine.state import Waits

PATIENCE_SECONDS: Final = 1.0
"""How long a branch waits before it is worth giving the lease back."""


class Parking:
    def __init__(self, park: Callable[[], None]) -> None:
        """`park` stops the lease; what it waits for is there to be asked for then."""
        self._park = park
        self._working = 1
        self._waiting: dict[int, tuple[Waits, float]] = {}
        self._check: asyncio.TimerHandle | None = None
        self.parked: Waits | None = None
        """What the lease waits for, once it has been given back."""

    @contextmanager
    def working(self, branches: int) -> Iterator[Callable[[], None]]:
        """Several branches work in place of the one that started them; each calls what it gets at its end.

        The last of them hands over to the one that started them, which goes on a moment later: in between the
        lease must not look as if nobody worked.
        """
        left = branches
        self._working += left - 1

        def ended() -> None:
            nonlocal left
            left -= 1
            if left > 0:
                self._working -= 1
                self._consider()

        try:
            yield ended
        finally:
            self._working -= max(0, left - 1)  # those that raised or were cancelled

    @contextmanager
    def resting(self) -> Iterator[None]:
        """A branch waits for another branch of the same lease."""
        self._working -= 1
        self._consider()
        try:
            yield
        finally:
            self._working += 1

    @asynccontextmanager
    async def waiting(self, waits: Waits, *, at_once: bool) -> AsyncIterator[None]:
        """A branch waits for something outside. `at_once`: it is known that it will for a while."""
        loop = asyncio.get_running_loop()
        key = id(waits)
        self._waiting[key] = (waits, loop.time() + (0.0 if at_once else PATIENCE_SECONDS))
        self._working -= 1
        self._consider()
        try:
            yield
        finally:
            self._working += 1
            del self._waiting[key]
            if self._check is not None:
                self._check.cancel()
                self._check = None
        if self.parked is not None:
            # The lease has been given back meanwhile: this branch may not go on.
            await asyncio.get_running_loop().create_future()

    def _consider(self) -> None:
        if self._working > 0 or not self._waiting or self._check is not None or self.parked is not None:
            return
        loop = asyncio.get_running_loop()
        due = max(moment for _, moment in self._waiting.values())
        self._check = loop.call_later(max(0.0, due - loop.time()), self._give_back)

    def _give_back(self) -> None:
        self._check = None
        if self._working > 0 or not self._waiting:
            return
        self.parked = together([waits for waits, _ in self._waiting.values()])
        self._park()
