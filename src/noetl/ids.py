"""Identifiers and time, as values that are handed in.

Ids are snowflakes: milliseconds, a node number and a counter, so that they sort by the time they were
made. Nothing that decides control flow reads a clock: it gets one of these, or a time, as an argument.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Protocol

EPOCH_MS: Final = 1_704_067_200_000
"""The first millisecond of 2024."""
NODE_BITS: Final = 10
COUNTER_BITS: Final = 12


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def monotonic(self) -> float: ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def timestamp(seconds: float) -> str:
    """A moment as RFC 3339, in UTC, to the microsecond."""
    # Rounded as `datetime` does, in whole microseconds; the part that changes once a second is kept.
    microseconds = round(seconds * 1_000_000)
    whole, fraction = divmod(microseconds, 1_000_000)
    return f"{_to_the_second(whole)}.{fraction:06d}Z"


@lru_cache(maxsize=16)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def seconds_of(written: str) -> float:
    """The moment that `timestamp` wrote."""
    return datetime.fromisoformat(written).timestamp()


def made_at(written: str) -> float:
    """When an id was made, in seconds since 1970."""
    return ((int(written) >> (NODE_BITS + COUNTER_BITS)) + EPOCH_MS) / 1000


class Snowflakes:
    """Makes ids that grow, even when the clock goes back."""

    def __init__(self, clock: Clock, node: int = 0) -> None:
        if not 0 <= node < 1 << NODE_BITS:
            raise ValueError(f"a node number is between 0 and {(1 << NODE_BITS) - 1}")
        self._clock = clock
        self._node = node
        self._millisecond = 0
        self._counter = 0
        self._lock = threading.Lock()

    def next(self) -> str:
        return self.many(1)[0]

    def many(self, count: int) -> list[str]:
        """So many ids, in their order."""
        made = []
        with self._lock:
            now = int(self._clock.now() * 1000) - EPOCH_MS
            if now > self._millisecond:
                self._millisecond, self._counter = now, -1
            for _ in range(count):
                self._counter += 1
                if self._counter >> COUNTER_BITS:
                    # More ids than a millisecond holds, or a clock far behind: borrow from the next one.
                    self._millisecond, self._counter = self._millisecond + 1, 0
                first = self._millisecond << NODE_BITS | self._node
                made.append(str(first << COUNTER_BITS | self._counter))
        return made
