"""How often one caller may ask: a bucket of requests that refills steadily.

Each replica counts for itself, so a caller that is spread over several gets as many times as much. Buckets
that nobody uses are forgotten, the longest unused first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from noetl.ids import Clock

MOST_CALLERS: Final = 10_000


class Rates:
    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        self._per_second = per_second
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_of(self, caller: str) -> float:
        """Takes one request from the caller's bucket; if it is empty, in how many seconds it is not."""
        if self._per_second <= 0:
            return 0.0
        now = self._clock.monotonic()
        left, since = self._buckets.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        allowed = left >= 1.0
        self._buckets[caller] = (left - 1.0 if allowed else left, now)
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._per_second

    def give_back(self, caller: str) -> None:
        """Undoes one request that was taken, and turned out to be none to count."""
        if caller in self._buckets:
            left, since = self._buckets[caller]
            self._buckets[caller] = (min(self._burst, left + 1.0), since)
