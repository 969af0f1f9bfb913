"""An execution under the eyes of a terminal, a pipe or a script, wherever it runs.

What is the same for one that this process carries out and one that a server does: watching, the file of
events, and what is said at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from noetl.cli.diagnostics import paint_for
from noetl.cli.files import shown_name, write_json
from noetl.cli.report import document
from noetl.cli.stores import AnyPlace, add_store_options
from noetl.cli.summary import Source, summary
from noetl.cli.watching import Watcher, watcher_for
from noetl.engine.state import State
from noetl.errors import UsageError
from noetl.records.event import Event, from_line, to_line
from noetl.settings import Settings
from noetl.store.protocol import ExecutionRow

EXIT_CODES = {"completed": 0, "failed": 1, "cancelled": 3}
EXIT_INTERRUPTED = 130
REDRAW_SECONDS = 0.1
STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ended(NamedTuple):
    """An execution that is over, or was left where it stood."""

    state: State
    row: ExecutionRow
    interrupted: bool


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--events", metavar="FILE", help="append the event log to this file")
    add_store_options(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, only the outcome")


def add_secrets_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--send-env",
        metavar="NAME",
        action="append",
        default=[],
        help="with --server: send this variable along for a registered playbook's keychain",
    )


class Watched:
    """One execution that is watched to its end."""

    def __init__(self, options: argparse.Namespace, settings: Settings, place: AnyPlace) -> None:
        self.place = place
        self.watcher = _watcher(options, settings)
        self._json: bool = options.json
        self._settings = settings
        self._events_file: str | None = options.events
        self._lines: IO[bytes] | None = None
        self._lines_end = 0
        """The last event of the execution that an earlier process left in the file."""
        self._execution_id: str | None = None

    def tell_end(self, ended: Ended, source: Source) -> int:
        """Says how it ended, and gives the exit code."""
        if self._json:
            status = "interrupted" if ended.interrupted else None
            write_json(document(ended.state, ended.row, status=status))
            if ended.interrupted:
                hint = self.place.hint_after_interruption(ended.state.execution_id)
                print(f"interrupted; {hint}", file=sys.stderr)
        else:
            paint = paint_for(sys.stdout, self._settings)
            sys.stdout.write(summary(ended, self.watcher.progress, source, self.place, paint))
        return EXIT_INTERRUPTED if ended.interrupted else EXIT_CODES[ended.state.status]

    def expect(self, execution_id: str) -> str:
        """Says which execution this is: whatever else happens in the store is not watched."""
        self._execution_id = self.watcher.progress.execution_id = execution_id
        if self._events_file is not None:
            self._lines_end = last_seq_in(Path(self._events_file), execution_id)
        return execution_id

    def earlier(self, event: Event) -> None:
        """Takes an event of an earlier process, which may have ended before it was in the file."""
        self.watcher.progress.apply(event)
        if self._lines is not None and event.seq > self._lines_end:
            self._append(self._lines, event)

    @contextlib.contextmanager
    def events_file(self) -> Iterator[None]:
        if self._events_file is None:
            yield
            return
        try:
            # Unbuffered: each event is in the file when it is in the log.
            self._lines = open(self._events_file, "ab", buffering=0)  # noqa: SIM115 - closed below
        except OSError as error:
            shown = shown_name(self._events_file)
            raise UsageError(f"cannot write {shown}: {(error.strerror or str(error)).lower()}") from error
        with self._lines:
            yield

    def event(self, event: Event) -> None:
        if event.execution_id != self._execution_id:
            return
        if self._lines is not None:
            self._append(self._lines, event)
        self.watcher.event(event)

    def _append(self, lines: IO[bytes], event: Event) -> None:
        try:
            lines.write(to_line(event))
        except OSError as error:
            # The store has the whole log: a copy that cannot be written does not end the execution.
            reason = (error.strerror or str(error)).lower()
            print(f"cannot write {shown_name(str(self._events_file))} any more: {reason}", file=sys.stderr)
            self._lines = None

    async def redraw(self) -> None:
        """Draws again and again, until it is cancelled."""
        while True:
            self.watcher.redraw()
            await asyncio.sleep(REDRAW_SECONDS)


def last_seq_in(file: Path, execution_id: str) -> int:
    """How far a file of events has the log of an execution; a last line that is cut off is removed."""
    if not file.is_file():  # a pipe or a terminal keeps nothing
        return 0
    found = whole = 0
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            with contextlib.suppress(msgspec.DecodeError):
                event = from_line(line)
                if event.execution_id == execution_id:
                    found = event.seq
    if whole < file.stat().st_size:
        os.truncate(file, whole)
    return found


def stopped() -> asyncio.Event:
    """Set by the first signal to stop; a second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopping() -> None:
        stop.set()
        for number in STOPPING_SIGNALS:
            loop.remove_signal_handler(number)

    for number in STOPPING_SIGNALS:
        loop.add_signal_handler(number, stopping)
    return stop


def _watcher(options: argparse.Namespace, settings: Settings) -> Watcher:
    # With --json standard output belongs to the document; a person at the terminal still sees what goes on.
    stream = sys.stderr if options.json else sys.stdout
    quiet = options.quiet or (options.json and not stream.isatty())
    return watcher_for(stream, paint_for(stream, settings), quiet=quiet)
