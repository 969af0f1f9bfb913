"""Processes that go on after the command that started them: their records, their logs, and how they end.

A record holds the process's id and when it started, because an id is given to another process once its own
has ended: only a process with both is the one that was recorded, and only that is ever sent a signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from noetl.errors import NoetlError
from noetl.private_folders import make_private

LOOK_SECONDS: Final = 0.02
PLAIN: Final = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ")
LAST_WORDS: Final = 15
"""Lines of its log that are shown of a process that did not start."""


class StartError(NoetlError):
    code = "process.not_started"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A process that was started; `started` is in its system's own measure."""

    pid: int
    started: str
    command: list[str]
    environment: dict[str, str] = {}
    """Variables it was given beside ours; secrets are here, not in the command, which everybody can see."""
    at: str = ""
    """Where it can be reached, for people."""


class Detached(NamedTuple):
    """One process by its name, in a folder that holds its record and its log."""

    folder: Path
    name: str

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.json"

    def running(self) -> Record | None:
        """Its record if it runs; one of a process that has ended is removed."""
        record = self.record()
        if record is None:
            return None
        if started_at(record.pid) == record.started:
            return record
        self.file.unlink(missing_ok=True)
        return None

    def record(self) -> Record | None:
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            # Cut short by a crash of the machine: what it stood for has ended with it.
            return None

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        at: str = "",
        is_ours: bool = True,
        without: Collection[str] = (),
    ) -> Record:
        """Starts a process in a session of its own; what it prints goes to its log.

        One that is not `is_ours` gets only what any program needs of our environment: secrets may be in it.
        One that is gets all of it but what `without` names.
        """
        make_private(self.folder)
        added = dict(environment or {})
        inherited = dict(os.environ) if is_ours else plain_environment()
        if self.log.exists():  # what the one before it said is kept, and no more than that
            self.log.replace(self.log.with_suffix(".log.1"))
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={name: value for name, value in inherited.items() if name not in without} | added,
            )
        # The process outlives this command, which therefore must not be told that it forgot it.
        process.returncode = 0
        started = started_at(process.pid) or ""
        record = Record(pid=process.pid, started=started, command=list(command), environment=added, at=at)
        self.write(record)
        return record

    def write(self, record: Record) -> None:
        make_private(self.folder)
        part = self.file.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        part.replace(self.file)

    def wait_until(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Waits for a process that was just started; StartError with the end of its log where it is not."""
        until = time.monotonic() + seconds
        while not is_ready():
            problem = None
            if self.running() is None:
                problem = "ended when it started"
            elif time.monotonic() > until:
                problem = f"was not ready after {seconds:g} seconds"
            if problem is not None:
                raise StartError(f"{self.name} {problem}; its log {self.log} ends with:\n{self.words()}")
            time.sleep(LOOK_SECONDS)

    def tell(self) -> None:
        """Asks it to end, and waits for nothing."""
        if (record := self.running()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGTERM)

    def stop(self, seconds: float, *, told: bool = False) -> bool:
        """Asks it to end, and ends it when the time is over; false where it did not run.

        `told`: it was asked before, and a second time might mean something else to it.
        """
        record = self.running()
        if record is None:
            return False
        if not told:
            self.tell()
        if not self._ended(record, seconds):
            self.ask(record, signal.SIGKILL, 10.0)
        self.file.unlink(missing_ok=True)
        return True

    def ask(self, record: Record, number: signal.Signals, seconds: float) -> bool:
        """Sends a signal and waits for the end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)
        return self._ended(record, seconds)

    def _ended(self, record: Record, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while started_at(record.pid) == record.started:
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def says(self, words: str) -> bool:
        """Whether its log holds these words since it was started."""
        try:
            return words.encode() in self.log.read_bytes()
        except FileNotFoundError:
            return False

    def words(self) -> str:
        """The last lines of its log."""
        try:
            lines = self.log.read_bytes()[-8192:].decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return "  (there is none)"
        return "\n".join(f"  {line}" for line in lines[-LAST_WORDS:]) or "  (it is empty)"


def plain_environment() -> dict[str, str]:
    """What any program needs of our environment."""
    return {name: os.environ[name] for name in PLAIN if name in os.environ}


def recorded(folder: Path, kind: str) -> Iterator[Detached]:
    """What was started in a folder under a name that begins with `kind`, by number."""
    found = [
        (int(number), path.stem)
        for path in folder.glob(f"{kind}-*.json")
        if (number := path.stem.removeprefix(f"{kind}-")).isdigit()
    ]
    yield from (Detached(folder, name) for _, name in sorted(found))


def started_at(pid: int) -> str | None:
    """When a process started, in the system's own measure; None where there is none, or it only waits to be
    collected by its parent."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except (ProcessLookupError, PermissionError):
        return None
    else:
        _collect(pid)
        return None if fields[0] in "ZX" else fields[19]
    _collect(pid)
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return shown[1].strip() if len(shown) == 2 and not shown[0].startswith("Z") else None


def _collect(pid: int) -> None:
    """A child that has ended would stay in the table of processes until its parent has looked."""
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)
