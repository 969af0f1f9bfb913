"""Looks at every process of the machine while something runs: their command lines and environments."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

PAUSE_SECONDS = 0.01


class Seen(NamedTuple):
    """What a process showed: its environment belongs to this command line or to a later one."""

    pid: int
    command: bytes
    environment: bytes


class ProcessWatch:
    """Used as `with`; `seen` is whatever any other process ever showed, up to now."""

    def __init__(self) -> None:
        self._seen: set[Seen] = set()
        self._lock = threading.Lock()
        self.rounds = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="process-watch")

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def seen(self) -> frozenset[Seen]:
        with self._lock:
            return frozenset(self._seen)

    def _watch(self) -> None:
        own = os.getpid()
        while not self._over.wait(PAUSE_SECONDS):
            self.rounds += 1
            for name in os.listdir("/proc"):
                if name.isdigit() and int(name) != own:
                    self._look(int(name))

    def _look(self, pid: int) -> None:
        # In this order: a fork that becomes another program in between shows nothing of its parent's.
        command, environment = _read(pid, "cmdline"), _read(pid, "environ")
        if command or environment:
            with self._lock:
                self._seen.add(Seen(pid, command, environment))


def _read(pid: int, place: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{place}").read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""
