"""What a watcher of an execution knows, from its events alone."""

from __future__ import annotations

import pytest

from noetl.cli.progress import Progress
from noetl.records.event import Event
from tests.unit.cli.watched import BEGAN, Log


def after(*events: Event) -> Progress:
    progress = Progress()
    for event in events:
        progress.apply(event)
    return progress


def test_a_step_runs_from_its_scheduling_to_its_end() -> None:
    log = Log()
    begun = [*log.begun(), log.event("step.scheduled", 1, "in_progress", step="fetch")]
    running = after(*begun).steps["fetch"]
    assert (running.state, running.runs, running.elapsed(BEGAN + 3)) == ("running", 1, 2.0)
    done = after(*begun, log.event("step.done", 2.5, step="fetch")).steps["fetch"]
    assert (done.state, done.elapsed(BEGAN + 99)) == ("done", 1.5)


def test_a_step_that_runs_again_begins_anew() -> None:
    log = Log()
    progress = after(
        *log.begun(),
        log.event("step.scheduled", 1, "in_progress", step="a"),
        log.event("step.failed", 2, "error", step="a", payload={"error": {"message": "no"}}),
        log.event("step.scheduled", 5, "in_progress", step="a"),
    )
    view = progress.steps["a"]
    assert (view.state, view.runs, view.error, view.elapsed(BEGAN + 6)) == ("running", 2, None, 1.0)


def loop(log: Log, done: int, failed: int, begun: int, each: float) -> list[Event]:
    events = [
        log.event("step.scheduled", 0, "in_progress", step="l"),
        log.event("loop.started", 0, "in_progress", step="l", payload={"total": 100}),
    ]
    events += [
        log.event("loop.iteration.started", 0, "in_progress", step="l", iteration=i) for i in range(begun)
    ]
    events += [log.event("loop.iteration.done", (i + 1) * each, step="l", iteration=i) for i in range(done)]
    events += [
        log.event("loop.iteration.failed", done * each, "error", step="l", iteration=done + i)
        for i in range(failed)
    ]
    return events


def test_a_loop_has_counts_a_rate_and_the_time_that_is_left() -> None:
    log = Log()
    found = after(*log.begun(), *loop(log, done=18, failed=2, begun=24, each=0.1)).steps["l"].loop
    assert found is not None
    assert (found.total, found.done, found.failed, found.in_flight) == (100, 18, 2, 4)
    assert found.rate(BEGAN + 2) == pytest.approx(10.0)
    assert found.remaining(BEGAN + 2) == pytest.approx(8.0)


def test_the_rate_of_a_loop_is_that_of_its_last_seconds() -> None:
    log = Log()
    found = after(*log.begun(), *loop(log, done=50, failed=0, begun=50, each=0.01)).steps["l"].loop
    assert found is not None
    for second in range(1, 40):
        found.rate(BEGAN + second)
    assert found.rate(BEGAN + 40) is None, "nothing has ended for long, so nothing can be said"


def test_a_loop_inside_a_pipeline_is_not_the_loop_of_the_step() -> None:
    log = Log()
    block = {"block": "rooms"}
    progress = after(
        *log.begun(),
        log.event("step.scheduled", 0, "in_progress", step="a"),
        log.event("loop.started", 0, "in_progress", step="a", payload={"total": 2, **block}),
        log.event("loop.iteration.started", 0, "in_progress", step="a", iteration=0, payload=block),
        log.event("loop.done", 0, step="a", payload=block),
    )
    assert progress.steps["a"].loop is None
    assert progress.steps["a"].state == "running"


def test_attempts_retries_pages_and_log_lines_are_kept() -> None:
    log = Log()
    task = {"step": "a", "task_label": "page"}
    progress = after(
        *log.begun(),
        log.event("step.scheduled", 0, "in_progress", step="a"),
        log.event("task.started", 0, "in_progress", attempt=1, **task),
        log.event(
            "task.done", 1, "error", attempt=1, payload={"outcome": {}, "then": {"do": "retry"}}, **task
        ),
        log.event("retry.started", 1, "in_progress", attempt=2, payload={"delay": 4}, **task),
    )
    view = progress.steps["a"]
    assert (view.task, view.attempt, view.retries, view.retry_at) == ("page", 2, 1, BEGAN + 5)
    assert progress.failed_attempts == {("a", "page"): 1}
    payload = {"outcome": {}, "then": {"do": "jump"}, "log": "one\ntwo\n\n"}
    progress.apply(log.event("task.done", 6, attempt=2, payload=payload, **task))
    assert (view.jumps, view.log) == (1, "two")


def test_what_is_open_at_the_end_was_cancelled() -> None:
    log = Log()
    progress = after(
        *log.begun(),
        log.event("step.scheduled", 0, "in_progress", step="a"),
        log.event("step.scheduled", 0, "in_progress", step="b"),
        log.event("step.failed", 1, "error", step="b", payload={"error": {"message": "no"}}),
        log.event("workflow.finished", 1, "error"),
        log.event("playbook.processed", 2, "error"),
    )
    assert {name: view.state for name, view in progress.steps.items()} == {"a": "cancelled", "b": "failed"}
    assert (progress.status, progress.elapsed(BEGAN + 50)) == ("failed", 2.0)


def test_a_request_that_was_refused_has_failed() -> None:
    log = Log()
    assert after(log.event("playbook.processed", 0, "error")).status == "failed"


def test_pausing_resuming_and_cancelling_change_the_status() -> None:
    log = Log()
    progress = after(*log.begun())
    seen = []
    for name in ("execution.paused", "execution.resumed", "execution.cancelled", "workflow.finished"):
        progress.apply(log.event(name, 1, "error"))
        seen.append(progress.status)
    assert seen == ["paused", "running", "cancelled", "cancelled"]


def test_a_step_that_was_not_admitted_is_skipped() -> None:
    log = Log()
    progress = after(*log.begun(), log.event("step.skipped", 1, "skipped", step="a", step_run_id=None))
    assert progress.steps["a"].state == "skipped"
