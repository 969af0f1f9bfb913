"""Reads a SQLite database in threads of its own, so that no event loop waits for a disk.

Each connection serves one read at a time. A database in memory has only its writer's connection, so there
reads go between the writer's transactions.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeVar

from noetl.store.protocol import StoreError
from noetl.store.sqlite_connection import connect_reader, driver_errors
from noetl.store.sqlite_writer import Writer

Result = TypeVar("Result")

READERS: Final = 2
"""A long read (the results of a large loop) does not hold up the short ones."""


class Reader(Protocol):
    async def read(self, query: Callable[[sqlite3.Connection], Result]) -> Result: ...

    def stop(self) -> None: ...


class FileReader:
    """Connections beside the writer's; they see what was committed when a read begins."""

    def __init__(self, path: Path, *, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._idle: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="noetl-sqlite-reader")
        self._closed = False

    async def read(self, query: Callable[[sqlite3.Connection], Result]) -> Result:
        if self._closed:
            raise StoreError("The store is closed. Open it again to go on.")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, query)

    def stop(self) -> None:
        self._closed = True
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def _run(self, query: Callable[[sqlite3.Connection], Result]) -> Result:
        with driver_errors(self._path):
            try:
                connection = self._idle.get_nowait()
            except Empty:
                connection = connect_reader(self._path, busy_seconds=self._busy_seconds)
            try:
                return query(connection)
            finally:
                self._idle.put(connection)


class MemoryReader:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def read(self, query: Callable[[sqlite3.Connection], Result]) -> Result:
        return await self._writer.look(query)

    def stop(self) -> None:
        """The writer is stopped by its own owner."""
