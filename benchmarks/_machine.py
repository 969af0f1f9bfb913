"""What this machine can do at all, and how much memory a tree of processes has.

Figures of different machines cannot be compared; these stand beside them, so that one can see why.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""For processes that are timed: compiling our modules anew at each start is not what is measured."""


def seconds_of(command: list[str], folder: Path | None = None) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT, cwd=folder)
    return time.perf_counter() - begun


def bare_python_seconds(rounds: int = 15) -> float:
    return statistics.median(seconds_of([sys.executable, "-c", "pass"]) for _ in range(rounds))


def commits_per_second(folder: Path, count: int = 500) -> float:
    """Transactions of one row of 300 bytes, as durable as the store's."""
    connection = sqlite3.connect(folder / "calibration.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS written (number INTEGER, body TEXT)")
    begun = time.perf_counter()
    for number in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO written VALUES (?, ?)", (number, "x" * 300))
        connection.execute("COMMIT")
    rate = count / (time.perf_counter() - begun)
    connection.close()
    return rate


def resident_bytes(pid: int) -> int:
    """Of a process and all its descendants; a page that two of them share counts twice."""
    try:
        total = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return 0
    return total + sum(resident_bytes(int(child)) for child in children)


class Memory:
    """Samples the memory of this process and its descendants; a context manager."""

    def __init__(self, every: float = 0.25) -> None:
        self.samples: list[int] = []
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while True:
            self.samples.append(resident_bytes(os.getpid()))
            if self._stop.wait(self._every):
                return

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak_mib(self) -> float:
        return max(self.samples) / 2**20

    @property
    def growth_mib(self) -> float:
        """How much more the last quarter has than the second one: of memory that is flat, next to nothing."""
        quarter = len(self.samples) // 4
        if quarter == 0:
            return 0.0
        second, last = self.samples[quarter : 2 * quarter], self.samples[-quarter:]
        return (statistics.median(last) - statistics.median(second)) / 2**20
