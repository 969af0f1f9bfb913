"""How progress is shown: the tree of a terminal, the lines of a pipe."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from noetl.cli.diagnostics import Paint
from noetl.cli.progress import Progress
from noetl.cli.tree import draw, duration, fitted
from noetl.cli.waiting import waits_text
from noetl.cli.watching import Lines, Quiet, Tree, watcher_for
from noetl.engine.state import Waits
from noetl.records.event import Event
from tests.unit.cli.watched import BEGAN, Log

PLAIN = Paint(False)


def drawn(events: list[Event], at: float, width: int = 80, height: int = 24) -> list[str]:
    progress = Progress()
    for event in events:
        progress.apply(event)
    return draw(progress, BEGAN + at, width, height, PLAIN)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0s"), (9.96, "10.0s"), (12.9, "12s"), (185, "3m05s"), (3725, "1h02m")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_line_is_cut_by_cells_and_shows_control_characters() -> None:
    assert fitted("日本語", 5) == "日本…"
    assert fitted("a\x1b[31m", 20) == "a\\x1b[31m"
    assert fitted("short", 20) == "short"


def test_the_tree_shows_each_step_with_what_it_is_about() -> None:
    log = Log()
    events = [
        *log.begun(),
        log.event("step.scheduled", 0, "in_progress", step="first"),
        log.event("step.done", 1, step="first"),
        log.event("step.scheduled", 1, "in_progress", step="l"),
        log.event("loop.started", 1, "in_progress", step="l", payload={"total": 4}),
        log.event("loop.iteration.started", 1, "in_progress", step="l", iteration=0),
        log.event("loop.iteration.started", 1, "in_progress", step="l", iteration=1),
        log.event("loop.iteration.done", 2, step="l", iteration=0),
    ]
    lines = drawn(events, at=3)
    assert lines[0] == "demo  running  3.0s"
    assert lines[1].startswith("├─ ✓ first")
    assert lines[1].endswith("1.0s")
    assert lines[2].endswith("2.0s · 1/4, 1 in flight, 0.5/s, 6.0s left")


@pytest.mark.parametrize(
    ("waits", "text"),
    [
        ({"signals": ["paid"], "until": BEGAN}, "waits for the signal `paid`"),
        (
            {"signals": ["approval.a", "b"], "questions": {"approval.a": "Ship?"}},
            "waits for the signal `approval.a` (Ship?) or the signal `b`",
        ),
        ({"children": ["12"]}, "waits for execution 12"),
        ({"children": ["12", "13"]}, "waits for 2 executions"),
        ({"until": BEGAN + 60, "timers": {"t": BEGAN + 5}}, "waits until 2023-11-14 22:13:25 UTC"),
        ({"events": 4}, ""),
    ],
)
def test_what_is_waited_for_is_said_in_words(waits: dict[str, Any], text: str) -> None:
    assert waits_text(msgspec.convert(waits, Waits)) == text


def test_a_step_that_waits_says_for_what_until_it_goes_on() -> None:
    log = Log()
    waits = {"signals": ["paid"], "questions": {"paid": "Is it\x1b[31m paid?"}}
    events = [
        *log.begun(),
        log.event("step.scheduled", 0, "in_progress", step="a"),
        log.event("task.started", 0, "in_progress", step="a", task_label="get", attempt=1),
        log.event("step.paused", 1, "in_progress", step="a", payload={"lease": 0, "waits": waits}),
    ]
    said = "waits for the signal `paid` (Is it\\x1b[31m paid?)"
    assert drawn(events, at=2)[2].strip() == said
    stream = io.StringIO()
    lines = Lines(stream, PLAIN)
    for event in events:
        lines.event(event)
    assert stream.getvalue().splitlines()[-1] == f"a: {said}"
    resumed = log.event("step.resumed", 3, "in_progress", step="a", payload={"lease": 0, "cause": "signal"})
    assert drawn([*events, resumed], at=3)[2].strip() == "get"


def test_a_retry_that_waits_says_for_how_long() -> None:
    log = Log()
    task = {"step": "a", "task_label": "get"}
    events = [
        *log.begun(),
        log.event("step.scheduled", 0, "in_progress", step="a"),
        log.event("task.started", 0, "in_progress", attempt=1, **task),
        log.event("retry.started", 1, "in_progress", attempt=2, payload={"delay": 4}, **task),
    ]
    lines = drawn(events, at=2)
    assert lines[1].endswith("2.0s · attempt 2 · again in 3.0s")
    assert lines[2].strip() == "get"


def test_a_failed_step_shows_its_error_and_a_page_its_number() -> None:
    log = Log()
    jumped = {"outcome": {}, "then": {"do": "jump"}}
    events = [
        *log.begun(),
        log.event("step.scheduled", 0, "in_progress", step="a"),
        log.event("task.done", 1, step="a", task_label="get", payload=jumped),
        log.event("step.failed", 1, "error", step="a", payload={"error": {"message": "gone\nmore"}}),
    ]
    lines = drawn(events, at=2)
    assert lines[1].startswith("└─ ✗ a ")
    assert lines[1].endswith("page 2")
    assert lines[2].strip() == "gone"


def test_what_runs_is_shown_when_there_is_no_room_for_all() -> None:
    log = Log()
    events = log.begun()
    for number in range(50):
        events.append(log.event("step.scheduled", 0, "in_progress", step=f"s{number}"))
        if number != 7:
            events.append(log.event("step.done", 1, step=f"s{number}"))
    lines = drawn(events, at=1, height=10)
    assert len(lines) <= 9
    assert any(" s7 " in line for line in lines)
    assert any(" s49 " in line for line in lines), "and of the others the latest"
    assert lines[-1] == "└─ … 43 more"


def test_the_tree_is_drawn_over_itself_and_the_cursor_comes_back() -> None:
    log = Log()
    stream = io.StringIO()
    tree = Tree(stream, PLAIN, now=lambda: BEGAN)
    for event in log.begun():
        tree.event(event)
    tree.redraw()
    tree.event(log.event("step.scheduled", 0, "in_progress", step="a"))
    tree.log("a", "say", "hello there\n")
    tree.redraw()
    tree.close()
    first, second, third = stream.getvalue().split("\x1b[?25l")[1:]
    assert first.startswith("demo")
    assert second.startswith("\x1b[1F")
    assert "hello there" in second
    assert third.startswith("\x1b[3F")
    assert third.endswith("\x1b[?25h")


def lines_for(*events: Event) -> list[str]:
    stream = io.StringIO()
    lines = Lines(stream, PLAIN)
    for event in events:
        lines.event(event)
    return stream.getvalue().splitlines()


def test_a_pipe_gets_a_line_for_each_thing_that_happens() -> None:
    log = Log()
    task = {"step": "a", "task_label": "get"}
    shown = lines_for(
        *log.begun(),
        log.event("step.skipped", 0, "skipped", step="no", step_run_id=None),
        log.event("step.scheduled", 0, "in_progress", step="a"),
        log.event("retry.started", 1, "in_progress", attempt=2, payload={"delay": 4}, **task),
        log.event("retry.started", 5, "in_progress", attempt=3, payload={"delay": 0}, iteration=7, **task),
        log.event("step.failed", 6, "error", step="a", payload={"error": {"message": "gone"}}),
        log.event("execution.cancelled", 6, "error"),
    )
    assert shown == [
        "demo: execution 1",
        "no: skipped",
        "a: started",
        "a/get: attempt 2 in 4.0s",
        "a/get[7]: attempt 3",
        "a: failed in 6.0s: gone",
        "demo: cancelled",
    ]


def test_a_pipe_hears_of_a_loop_every_few_seconds_only() -> None:
    log = Log()
    events = [
        *log.begun(),
        log.event("step.scheduled", 0, "in_progress", step="l"),
        log.event("loop.started", 0, "in_progress", step="l", payload={"total": 12}),
    ]
    for i in range(12):
        events.append(log.event("loop.iteration.started", i, "in_progress", step="l", iteration=i))
        events.append(log.event("loop.iteration.done", i + 1, step="l", iteration=i))
    events.append(log.event("loop.done", 12, step="l"))
    assert lines_for(*events)[2:] == [
        "l: 5/12, 1.0/s, 7.0s left",
        "l: 10/12, 1.0/s, 2.0s left",
        "l: done in 12s, 12/12",
    ]


def test_printed_lines_stand_behind_their_task_and_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    Lines(stream, PLAIN).log("a", "say", "one\n\x1b[2Jtwo\n")
    assert stream.getvalue() == "a/say | one\na/say | \\x1b[2Jtwo\n"


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_went_away_does_not_end_the_execution() -> None:
    log = Log()
    lines = Lines(Gone(), PLAIN)
    for event in log.begun():
        lines.event(event)
    lines.close()
    assert lines.progress.status == "running"


def test_a_pipe_gets_lines_and_quiet_gets_nothing() -> None:
    assert isinstance(watcher_for(io.StringIO(), PLAIN, quiet=False), Lines)
    assert isinstance(watcher_for(io.StringIO(), PLAIN, quiet=True), Quiet)
