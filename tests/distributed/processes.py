"""Processes of a test stack: started, killed, stopped in their tracks, and ended, each by its own id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from noetl.cli.stack.detached import started_at

ROOT = Path(__file__).parents[2]
END_SECONDS = 40.0
LOOK_SECONDS = 0.01


def wait_until(
    holds: Callable[[], bool], seconds: float, about: str | Callable[[], str], every: float = LOOK_SECONDS
) -> None:
    """Waits for what other processes bring about."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            said = about if isinstance(about, str) else about()
            raise AssertionError(f"not within {seconds:g} seconds: {said}")
        time.sleep(every)


class Ledger:
    """The list of what was started, for the guardian, which outlives this process by a moment."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "processes"
        self.file.touch()
        self._guardian = subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.guardian", str(self.file)],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
        )

    def add(self, pid: int) -> None:
        with self.file.open("a") as listed:
            listed.write(f"{pid} {started_at(pid)}\n")

    def close(self) -> None:
        """Has the guardian end what is left."""
        assert self._guardian.stdin is not None
        self._guardian.stdin.close()
        self._guardian.wait()


class Process:
    """One server or worker, which may be started again and again under its name."""

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        name: str,
        command: Sequence[str],
        environment: dict[str, str],
        is_ready: Callable[[Process], bool],
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._ledger = ledger
        self._command = list(command)
        self._environment = environment
        self._is_ready = is_ready
        self._running: subprocess.Popen[bytes] | None = None
        self._said = 0
        self._was_ready = False
        self._is_to_end = False
        self.is_paused = False

    def start(self) -> None:
        assert not self.is_running, f"{self.name} runs already"
        self._said = self.log.stat().st_size if self.log.exists() else 0
        self._was_ready = self._is_to_end = False
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | self._environment,
                cwd=ROOT,
            )
        self._ledger.add(self._running.pid)

    @property
    def is_running(self) -> bool:
        return self._running is not None and self._running.poll() is None

    @property
    def is_ready(self) -> bool:
        return self.is_running and not self.is_paused and self._looks_ready()

    @property
    def has_died(self) -> bool:
        """It was seen to be ready, and has ended though nobody ended it."""
        return self._was_ready and not self._is_to_end and not self.is_running

    def _looks_ready(self) -> bool:
        is_so = self._is_ready(self)
        self._was_ready = self._was_ready or is_so
        return is_so

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    def wait_ready(self, seconds: float = 30.0) -> None:
        def ready() -> bool:
            assert self.is_running, f"{self.name} ended when it started:\n{self.said()[-3000:]}"
            return self._looks_ready()

        wait_until(ready, seconds, lambda: f"{self.name} is ready:\n{self.said()[-3000:]}")

    def said(self) -> str:
        """What it has said since it was started."""
        with self.log.open("rb") as log:
            log.seek(self._said)
            return log.read().decode("utf-8", "replace")

    def hear(self, words: str, seconds: float = 20.0) -> None:
        """Waits until it says something."""
        wait_until(lambda: words in self.said(), seconds, lambda: f"{self.name} says `{words}`")

    def kill(self) -> None:
        """Ends it at once, whatever it is doing."""
        assert self._running is not None
        self.is_paused, self._is_to_end = False, True
        self._running.kill()
        self._running.wait()

    def send(self, number: signal.Signals) -> None:
        assert self._running is not None
        self._running.send_signal(number)

    def pause(self) -> None:
        """Stops it in its tracks, as a machine does that swaps, or a network that is cut."""
        self.send(signal.SIGSTOP)
        self.is_paused = True

    def go_on(self) -> None:
        self.send(signal.SIGCONT)
        self.is_paused = False

    def tell_to_end(self) -> None:
        """Asks it to end in its own time."""
        assert self._running is not None
        if self.is_paused:
            self.go_on()
        self._is_to_end = True
        self._running.terminate()

    def wait_end(self) -> int:
        assert self._running is not None
        try:
            return self._running.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end:\n{self.said()[-3000:]}") from None
