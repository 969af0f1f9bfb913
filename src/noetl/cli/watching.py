"""Those who watch an execution: a tree on a terminal, plain lines on a pipe, or nobody.

A watcher gets the events and log lines of one execution as they happen and writes to one stream. It is
asked to redraw from outside, so that a busy execution never draws more often than the eye can follow.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final, Protocol, TextIO

import msgspec

from noetl.cli.diagnostics import NARROWEST, Paint, visible
from noetl.cli.environment import variables
from noetl.cli.progress import Progress, StepProgress
from noetl.cli.tree import STYLES, draw, duration, first_line, loop_text
from noetl.cli.waiting import waits_text
from noetl.engine.state import Waits
from noetl.ids import seconds_of
from noetl.records.event import Event

LOOP_LINE_SECONDS: Final = 5.0
"""How often a pipe hears of the progress of a loop."""
USUAL_SIZE: Final = (80, 24)
HIDE_CURSOR: Final = "\x1b[?25l"
SHOW_CURSOR: Final = "\x1b[?25h"


class Watcher(Protocol):
    progress: Progress
    is_drawn: bool
    """Whether it wants to be asked to redraw."""

    def event(self, event: Event) -> None: ...

    def log(self, step: str, label: str, text: str) -> None: ...

    def redraw(self) -> None: ...

    def close(self) -> None:
        """Leaves the stream as it is to stay."""
        ...


class Quiet:
    """Knows, and says nothing."""

    is_drawn = False

    def __init__(self) -> None:
        self.progress = Progress()

    def event(self, event: Event) -> None:
        self.progress.apply(event)

    def log(self, step: str, label: str, text: str) -> None:
        pass

    def redraw(self) -> None:
        pass

    def close(self) -> None:
        pass


class Tree:
    """Redraws in place on a terminal."""

    is_drawn = True

    def __init__(self, stream: TextIO, paint: Paint, now: Callable[[], float] = time.time) -> None:
        self.progress = Progress()
        self._stream = stream
        self._paint = paint
        self._now = now
        self._drawn = 0

    def event(self, event: Event) -> None:
        self.progress.apply(event)

    def log(self, step: str, label: str, text: str) -> None:
        self.progress.take_log(step, text)

    def redraw(self) -> None:
        width, height = _size(self._stream)
        lines = draw(self.progress, self._now(), width - 1, height, self._paint)
        # A window that became smaller has scrolled: only what it still holds can be drawn over.
        up = min(self._drawn, height - 1)
        begin = HIDE_CURSOR + (f"\x1b[{up}F" if up else "")
        self._stream.write(begin + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._stream.flush()
        self._drawn = len(lines)

    def close(self) -> None:
        self.redraw()
        self._stream.write(SHOW_CURSOR)
        self._stream.flush()


class Lines:
    """One line for each thing worth telling."""

    is_drawn = False

    def __init__(self, stream: TextIO, paint: Paint) -> None:
        self.progress = Progress()
        self._stream = stream
        self._paint = paint
        self._told = 0.0

    def event(self, event: Event) -> None:
        self.progress.apply(event)
        line = self._line(event)
        if line is not None:
            self._write(line)

    def log(self, step: str, label: str, text: str) -> None:
        for line in text.splitlines():
            self._write(f"{step}/{label} | {visible(line)}")

    def redraw(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _write(self, line: str) -> None:
        # The reader of a pipe may go away; the execution does not end for that.
        with contextlib.suppress(BrokenPipeError):
            self._stream.write(line + "\n")
            self._stream.flush()

    def _line(self, event: Event) -> str | None:
        if event.step is None:
            return self._execution_line(event)
        view = self.progress.steps.get(event.step)
        if view is None:
            return None
        match event.event_type:
            case "step.scheduled":
                return f"{visible(view.name)}: started" + (f" (run {view.runs})" if view.runs > 1 else "")
            case "step.skipped":
                return f"{visible(view.name)}: {self._painted('skipped')}"
            case "step.done" | "step.failed" | "loop.done" if "block" not in event.payload:
                return self._end_line(view, event)
            case "step.paused" if event.payload["waits"].get("signals"):
                waits = msgspec.convert(event.payload["waits"], Waits)
                return f"{visible(view.name)}: {visible(waits_text(waits))}"
            case "retry.started":
                return _retry_line(event)
            case "loop.iteration.done" | "loop.iteration.failed" if view.loop is not None:
                return self._loop_line(view, event)
        return None

    def _execution_line(self, event: Event) -> str | None:
        match event.event_type:
            case "workflow.started":
                return f"{visible(self.progress.name)}: execution {event.execution_id}"
            case "execution.paused" | "execution.resumed" | "execution.cancelled":
                return f"{visible(self.progress.name)}: {event.event_type.partition('.')[2]}"
            case "signal.received":
                return f"{visible(self.progress.name)}: signal {visible(str(event.payload.get('name')))}"
        return None

    def _end_line(self, view: StepProgress, event: Event) -> str:
        at = seconds_of(event.timestamp)
        state = "failed" if event.event_type == "step.failed" else "done"
        line = f"{visible(view.name)}: {self._painted(state)} in {duration(view.elapsed(at))}"
        if view.loop is not None:
            line += f", {loop_text(view.loop, at, running=False)}"
        if state == "failed" and view.error is not None:
            line += f": {visible(first_line(str(view.error.get('message', ''))))}"
        return line

    def _loop_line(self, view: StepProgress, event: Event) -> str | None:
        at = seconds_of(event.timestamp)
        since = max(self._told, view.started)
        if at - since < LOOP_LINE_SECONDS or view.loop is None:
            return None
        self._told = at
        return f"{visible(view.name)}: {loop_text(view.loop, at, running=True)}"

    def _painted(self, state: str) -> str:
        return self._paint(STYLES[state], state)


def _retry_line(event: Event) -> str:
    where = f"{event.step}/{event.task_label}"
    if event.iteration is not None:
        where += f"[{event.iteration}]"
    delay = event.payload.get("delay") or 0
    wait = f" in {duration(delay)}" if delay else ""
    return f"{visible(where)}: attempt {event.attempt}{wait}"


def _size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines; a terminal that does not know its size says it has none."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # not a terminal after all
        return USUAL_SIZE
    return max(NARROWEST, found.columns or USUAL_SIZE[0]), found.lines or USUAL_SIZE[1]


def watcher_for(stream: TextIO, paint: Paint, *, quiet: bool) -> Watcher:
    if quiet:
        return Quiet()
    if stream.isatty() and variables().get("TERM") != "dumb":
        return Tree(stream, paint)
    return Lines(stream, paint)
