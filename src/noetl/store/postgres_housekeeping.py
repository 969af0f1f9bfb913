"""Keeps the queue's tables small and the log's partitions ahead of time, beside the writing.

The server vacuums by itself once a minute at best, which is many thousand rows at full speed; so a store that
has removed that many asks for it. Partitions are looked after once a day. Both may be done by several
servers at once, and left undone: then vacuums come in their own time, and events go into the last partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import psycopg

from noetl.store.postgres_connections import Connections
from noetl.store.protocol import StoreError

REMOVED_ROWS: Final = 20_000
"""About eight megabytes of dead rows."""
DAY: Final = 86_400.0

_VACUUM: Final = "VACUUM (SKIP_LOCKED, TRUNCATE FALSE) noetl.command, noetl.timer"
_PARTITIONS: Final = "SELECT noetl.ensure_partitions()"


class Housekeeping:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._removed = 0
        self._partitions_at = 0.0
        self._running: asyncio.Task[None] | None = None

    def note(self, removed: int) -> None:
        """After each append: `removed` rows have left the queue."""
        self._removed += removed
        if self._running is None and self._is_due():
            self._running = asyncio.create_task(self._run(), name="noetl-postgres-housekeeping")

    async def close(self) -> None:
        """Returns when nothing is under way; it takes milliseconds."""
        if self._running is not None:
            await self._running

    def _is_due(self) -> bool:
        return self._removed >= REMOVED_ROWS or time.monotonic() >= self._partitions_at

    async def _run(self) -> None:
        try:
            # What becomes due meanwhile is done as well.
            while self._is_due():
                if self._removed >= REMOVED_ROWS:
                    self._removed = 0
                    await self._execute(_VACUUM)
                if time.monotonic() >= self._partitions_at:
                    self._partitions_at = time.monotonic() + DAY
                    await self._execute(_PARTITIONS)
        finally:
            self._running = None

    async def _execute(self, statement: str) -> None:
        # Whoever may not, or cannot now, leaves it to another; `noetl db check` tells if nobody does.
        with contextlib.suppress(psycopg.Error, StoreError):
            async with self._connections.one() as connection:
                await connection.execute(statement)
