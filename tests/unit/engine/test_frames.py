"""Frames: how finished tasks move them, and which iterations are left after a restart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.engine.facts import Fact
from noetl.engine.fold import fold
from noetl.engine.frames import (
    apply_task_done,
    begin_iteration,
    finished_result,
    iteration_path,
    leave_block,
    left_to_run,
    was_taken,
    writes_of,
)
from noetl.engine.state import BlockFrame, Frame, LoopRun, State, StepRun

AT = "2025-06-15T12:00:00.000000Z"
NOON = 1_749_988_800.0


def done(frame: Frame, label: str, result: Any, **then: Any) -> None:
    apply_task_done(frame, label, {"outcome": {"status": "ok", "result": result}, "then": then}, AT)


def loop(total: int) -> LoopRun:
    return LoopRun(items=list(range(total)), total=total, parallel=True, keeps_going=False)


def fact(
    event_type: str, iteration_id: str | None = None, iteration: int | None = None, **fields: Any
) -> Fact:
    return Fact(
        event_type=event_type,
        timestamp=AT,
        source="worker",
        entity_type="tool",
        entity_id="x",
        status="success",
        iteration_id=iteration_id,
        iteration=iteration,
        **fields,
    )


def test_continue_moves_on_and_hands_the_result_over() -> None:
    frame = Frame(attempt=3)
    done(frame, "fetch", {"n": 1}, do="continue", next=1, set_iter={"page": 2}, set_ctx={"seen": True})
    assert (frame.position, frame.attempt, frame.entry) == (1, 1, 2)
    assert frame.prev == {"n": 1}
    assert frame.iter == {"page": 2}
    assert frame.writes == {"seen": True}
    assert finished_result(frame) == {"n": 1}


def test_a_retry_stays_where_it_is_and_waits() -> None:
    frame = Frame()
    done(frame, "fetch", None, do="retry", delay=2.5)
    assert (frame.position, frame.attempt, frame.entry) == (0, 2, 1)
    assert frame.wake_at == NOON + 2.5
    done(frame, "fetch", 7, do="continue", next=1)
    assert frame.wake_at is None


def test_a_skipped_task_is_not_the_last_result() -> None:
    frame = Frame()
    done(frame, "fetch", 1, do="continue", next=1)
    payload = {"outcome": {"status": "skipped", "result": None}, "then": {"do": "skip", "next": 2}}
    apply_task_done(frame, "store", payload, AT)
    assert finished_result(frame) == 1
    assert frame.prev == 1
    assert frame.task_runs == 1


def test_a_pipeline_without_a_finished_task_gives_nothing() -> None:
    assert finished_result(Frame()) is None


def test_leaving_a_block_makes_its_list_the_last_result() -> None:
    frame = Frame(block=BlockFrame(items=[1], total=1))
    leave_block(frame, "rooms", ["a"], 4)
    assert frame.block is None
    assert (frame.position, frame.prev, frame.results) == (4, ["a"], {"rooms": ["a"]})


def test_iterations_that_were_reported_out_of_order_are_not_lost() -> None:
    running = loop(5)
    begin_iteration(running, 2)
    assert left_to_run(running) == [0, 1, 2, 3, 4]
    begin_iteration(running, 0)
    del running.open[2]
    assert left_to_run(running) == [0, 1, 3, 4]
    begin_iteration(running, 1)
    assert running.behind == []
    assert left_to_run(running) == [0, 1, 3, 4]


def test_the_writes_of_open_blocks_belong_to_the_pipeline() -> None:
    inner = BlockFrame(items=[1], total=1, open={0: Frame(writes={"b": 2})})
    assert writes_of(Frame(writes={"a": 1}, block=inner)) == {"a": 1, "b": 2}


def test_an_iteration_is_named_by_the_way_to_it() -> None:
    assert iteration_path("9.1", 3) == "9.1/3"
    assert iteration_path("9.1", None, 0) == "9.1/-/0"


def test_a_report_about_a_task_is_known_by_its_visit_and_attempt() -> None:
    run = StepRun(run_id="9.1", step="s", scope="", args={}, scheduled_at=AT, frame=Frame(entry=2, attempt=2))
    told: dict[str, Any] = {"task_run_id": "9.1:2", "attempt": 2}
    assert not was_taken(run, [fact("task.started"), fact("task.done", **told)])
    assert was_taken(run, [fact("task.done", **told | {"attempt": 1})])
    assert was_taken(run, [fact("task.done", **told | {"task_run_id": "9.1:1"})])


def test_a_report_that_moves_nothing_was_never_taken() -> None:
    run = StepRun(run_id="9.1", step="s", scope="", args={}, scheduled_at=AT)
    assert not was_taken(run, [fact("task.started", task_run_id="9.1:1", attempt=1)])
    assert not was_taken(run, [fact("step.started")])


def test_a_start_by_itself_is_known_by_its_moment_and_by_its_task() -> None:
    run = StepRun(run_id="9.1", step="s", scope="", args={}, scheduled_at=AT, frame=Frame(entry=2))
    state = State(execution_id="9", runs={"9.1": run})
    begun = fact("task.started", step_run_id="9.1", task_run_id="9.1:2", attempt=1)
    assert not was_taken(run, [begun])
    fold(state, begun)
    assert was_taken(run, [begun])
    assert was_taken(run, [fact("task.started", task_run_id="9.1:1", attempt=1)])
    # Under the next lease it begins once more, and is told of once.
    later = msgspec.structs.replace(begun, timestamp="2025-06-15T12:00:30.000000Z")
    assert not was_taken(run, [later])
    fold(state, later)
    assert was_taken(run, [later])
    assert run.frame.since == NOON


def test_the_start_of_a_sink_by_itself_counts_once() -> None:
    run = StepRun(run_id="9.1", step="s", scope="", args={}, scheduled_at=AT)
    first = fact("sink.started", step_run_id="9.1", task_run_id="9.1/sink/1:1", attempt=1)
    again = fact("sink.started", step_run_id="9.1", task_run_id="9.1/sink/1:1", attempt=2)
    state = State(execution_id="9", runs={"9.1": run})
    for each in (first, again):
        assert not was_taken(run, [each])
        fold(state, each)
        assert was_taken(run, [each])
    assert not was_taken(run, [again, fact("sink.processed", step_run_id="9.1"), fact("step.done")])


def test_an_attempt_of_a_sink_that_is_repeated_counts_once_also_when_the_next_has_begun() -> None:
    run = StepRun(run_id="9.1", step="s", scope="", args={}, scheduled_at=AT)
    state = State(execution_id="9", runs={"9.1": run})
    about: dict[str, Any] = {"step_run_id": "9.1", "task_run_id": "9.1/sink/1:1"}
    ended = fact("sink.processed", attempt=1, payload={"outcome": {}, "again": True}, **about)
    report = [ended, fact("retry.started", attempt=2, **about)]
    assert not was_taken(run, report)
    fold(state, ended)
    assert was_taken(run, report)
    fold(state, fact("sink.started", attempt=2, **about))
    assert was_taken(run, report)
    later = fact("sink.processed", attempt=2, payload={"outcome": {}, "again": True}, **about)
    assert not was_taken(run, [later])


@pytest.mark.parametrize("kind", ["loop.iteration.done", "task.done"])
def test_a_report_about_an_iteration_that_is_over_was_taken(kind: str) -> None:
    run = StepRun(run_id="9.1", step="s", scope="", args={}, scheduled_at=AT, loop=loop(3))
    assert was_taken(run, [fact(kind, "9.1/0", 0, task_run_id="9.1/0:1", attempt=1)])


def test_the_start_of_an_iteration_counts_once() -> None:
    running = loop(3)
    run = StepRun(run_id="9.1", step="s", scope="", args={}, scheduled_at=AT, loop=running)
    begin_iteration(running, 1)
    assert was_taken(run, [fact("loop.iteration.started", "9.1/1", 1)])
    assert not was_taken(run, [fact("loop.iteration.started", "9.1/0", 0)])


def test_reports_of_an_earlier_visit_of_a_block_were_taken() -> None:
    block = BlockFrame(items=[1, 2], total=2, open={1: Frame()}, cursor=2)
    run = StepRun(
        run_id="9.1", step="s", scope="", args={}, scheduled_at=AT, frame=Frame(entry=3, block=block)
    )
    path = "9.1/-/1"
    now: dict[str, Any] = {"payload": {"block": "b", "visit": ":3"}}
    before: dict[str, Any] = {"payload": {"block": "b", "visit": ":1"}}
    assert not was_taken(run, [fact("loop.iteration.done", path, 1, **now)])
    assert was_taken(run, [fact("loop.iteration.done", path, 1, **before)])
    assert was_taken(run, [fact("loop.iteration.started", path, 1, **now)])
    assert was_taken(run, [fact("loop.started", **now)])
    assert not was_taken(run, [fact("loop.done", **now)])
    assert was_taken(run, [fact("loop.done", **before)])
    assert not was_taken(run, [fact("task.done", path, 1, task_run_id=f"{path}:3:1", attempt=1)])
    assert was_taken(run, [fact("task.done", path, 1, task_run_id=f"{path}:1:1", attempt=1)])


@pytest.mark.parametrize("do", ["retry", "poll"])
def test_whatever_is_repeated_counts_its_time_from_when_it_was_first_begun(do: str) -> None:
    frame = Frame(since=NOON - 30)
    done(frame, "look", None, do=do, delay=2)
    assert (frame.polled_since, frame.since, frame.wake_at) == (NOON - 30, None, NOON + 2)
    frame.since = NOON - 5
    done(frame, "look", None, do=do)
    assert (frame.polled_since, frame.wake_at) == (NOON - 30, NOON)
    done(frame, "look", 1, do="continue", next=1)
    assert (frame.polled_since, frame.polls) == (None, 0)


def test_what_began_unheard_counts_its_time_from_its_first_end() -> None:
    frame = Frame()
    done(frame, "look", None, do="poll")
    assert frame.polled_since == NOON


def test_another_look_is_another_visit_and_another_attempt_is_not() -> None:
    frame = Frame(attempt=3)
    done(frame, "look", None, do="poll")
    assert (frame.position, frame.attempt, frame.entry, frame.polls) == (0, 1, 2, 1)
    done(frame, "look", None, do="retry")
    assert (frame.position, frame.attempt, frame.entry, frame.polls) == (0, 2, 2, 1)


def test_a_task_whose_condition_is_false_gives_null_and_the_next_sees_the_result_before_it() -> None:
    frame = Frame()
    done(frame, "fetch", 1, do="continue", next=1)
    payload = {"outcome": {"status": "skipped", "result": None}, "then": {"do": "null", "next": 2}}
    apply_task_done(frame, "store", payload, AT)
    assert finished_result(frame) is None
    assert (frame.prev, frame.results, frame.position) == (1, {"fetch": 1, "store": None}, 2)
