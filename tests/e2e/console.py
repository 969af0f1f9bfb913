"""The real `noetl` command in a folder of its own, and runs of it that a test can follow.

A run that is followed writes its events to a named pipe, so that a test waits for what happens by reading,
never by the clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

SCRIPT = Path(sys.executable).with_name("noetl")
SECONDS = 60


class Console:
    """Runs commands in one folder, whose default store they share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("NOETL_")
        }

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def noetl(self, *arguments: str, exit_code: int = 0) -> str:
        """Runs a command to its end; its standard output."""
        done = self.finished(*arguments)
        assert done.returncode == exit_code, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    def finished(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=SECONDS,
        )

    def refused(self, *arguments: str) -> str:
        """Runs a command that is a usage error; its standard error."""
        done = self.finished(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), (done.returncode, done.stdout, done.stderr)
        return done.stderr

    def data(self, *arguments: str, exit_code: int = 0) -> Any:
        return json.loads(self.noetl(*arguments, "--json", exit_code=exit_code))

    @contextlib.contextmanager
    def followed(self, *arguments: str) -> Iterator[Followed]:
        """Starts a command with `--events`, and kills it at the end if it still runs."""
        pipe = self.folder / f"events.{len(list(self.folder.glob('events.*')))}"
        os.mkfifo(pipe)
        process = subprocess.Popen(
            [SCRIPT, *arguments, "--events", pipe.name],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        try:
            with _begun(pipe, process) as events:
                yield Followed(process, events)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _begun(pipe: Path, process: subprocess.Popen[str]) -> IO[bytes]:
    """The events of a command that has begun to write them, or has ended without."""
    events = os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb")
    while not select.select([events], [], [], 0.05)[0] and process.poll() is None:
        pass
    os.set_blocking(events.fileno(), True)
    return events


class Followed:
    """A run under way."""

    def __init__(self, process: subprocess.Popen[str], events: IO[bytes]) -> None:
        self.process = process
        self._events = events

    def wait_for(self, event_type: str, count: int = 1, **fields: Any) -> dict[str, Any]:
        """Reads on until that many more such events have happened; the last of them."""
        for line in self._events:
            event: dict[str, Any] = json.loads(line)
            if event["event_type"] == event_type and fields.items() <= event.items():
                count -= 1
                if not count:
                    return event
        raise AssertionError(f"the run ended without {event_type}: {self.process.communicate()}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        """Its exit code and what it printed, when it has ended."""
        self._events.read()
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err
