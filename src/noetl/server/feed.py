"""Tells those who follow an execution that its log has grown, as far as this replica wrote it.

What another replica wrote is found by looking again after a while: a hint spares the waiting, never the
looking.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator

from noetl.records.event import Event


class Feed:
    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def event(self, event: Event) -> None:
        for each in self._waiting.get(event.execution_id, ()):
            each.set()

    @property
    def followers(self) -> int:
        """How many follow something."""
        return sum(map(len, self._waiting.values()))

    def stop(self) -> None:
        """Wakes everybody, so that they see that the server stops."""
        for waiting in list(self._waiting.values()):
            for each in waiting:
                each.set()

    @contextlib.contextmanager
    def watching(self, execution_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the log may have grown; whoever waits clears it before looking."""
        mine = asyncio.Event()
        self._waiting[execution_id].add(mine)
        try:
            yield mine
        finally:
            self._waiting[execution_id].discard(mine)
            if not self._waiting[execution_id]:
                del self._waiting[execution_id]
