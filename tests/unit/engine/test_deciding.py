"""What follows from what happens to an execution: its request, its deadlines, a pause, a cancellation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from noetl.engine import decide
from noetl.engine.bodies import Bodies
from noetl.engine.facts import Fact
from noetl.engine.parking import next_due
from noetl.engine.plan import Plan
from noetl.engine.state import State
from noetl.engine.turn import Turn, error_data
from noetl.ids import timestamp
from noetl.playbook.load import load
from noetl.tools.registry import builtin_kinds

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: tests/p}\n"
ONE_STEP = HEAD + "workflow: [{step: start, tool: {kind: python, code: pass}}]\n"
FORK = HEAD + (
    "workflow:\n"
    "  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}\n"
    "  - {step: a, tool: {kind: python, code: pass}}\n"
    "  - {step: b, tool: {kind: python, code: pass}}\n"
)
IN_TIME = HEAD + (
    "workload: {within: 60}\n"
    "executor: {spec: {deadline: '{{ workload.within }}'}}\n"
    "workflow: [{step: start, spec: {deadline: 20}, tool: {kind: python, code: pass},"
    " next: {arcs: [{step: late, when: '{{ event.name == \"step.failed\" }}'}]}},"
    " {step: late, tool: {kind: python, code: pass}}]\n"
)
START = 1_750_000_000.0


class Execution:
    def __init__(self, text: str = ONE_STEP, payload: dict[str, Any] | None = None, **about: Any) -> None:
        playbook = load(text.encode(), builtin_kinds()).playbook
        assert playbook is not None
        self.plan = Plan(playbook)
        self.state = State(execution_id="1")
        self.now = START
        self.first = self.take(lambda turn: decide.request(turn, payload or {}, **about))

    def take(self, act: Callable[[Turn], Any]) -> Turn:
        turn = Turn(self.plan, self.state, timestamp(self.now), Bodies())
        act(turn)
        return turn


def step_done() -> Fact:
    """What a worker says that has run the first step."""
    return Fact(
        event_type="step.done",
        timestamp=timestamp(START),
        source="worker",
        entity_type="step",
        entity_id="1.1",
        status="success",
        step="start",
        step_run_id="1.1",
        payload={"result": 1},
    )


def told(turn: Turn) -> list[str]:
    return [fact.event_type for fact in turn.facts]


def of_type(turn: Turn, event_type: str) -> Fact:
    (found,) = [fact for fact in turn.facts if fact.event_type == event_type]
    return found


def test_a_request_is_told_with_its_playbook_its_payload_and_its_trace() -> None:
    execution = Execution(payload={"a": 1}, trace="00-abc")
    first = execution.first
    assert (execution.state.trace, execution.state.payload) == ("00-abc", {"a": 1})
    assert execution.state.requested_at == timestamp(START)
    requested = of_type(first, "playbook.execution.requested")
    assert requested.payload == {
        "playbook": {"name": "p", "path": "tests/p", "dialect": "canonical"},
        "payload": {"a": 1},
        "trace": "00-abc",
    }
    assert requested.status == "in_progress"
    assert requested.workflow_run_id is None
    assert of_type(first, "workflow.started").workflow_run_id == "1"
    assert told(first) == [
        "playbook.execution.requested",
        "playbook.request.evaluated",
        "playbook.started",
        "workflow.started",
        "step.scheduled",
    ]
    assert first.commands == {"1.1": "add"}


def test_an_execution_is_requested_once() -> None:
    execution = Execution()
    assert execution.take(lambda turn: decide.request(turn, {})).facts == []


def test_a_request_that_cannot_be_carried_out_is_over_at_once() -> None:
    problem = error_data("keychain.missing", "there is no key")
    execution = Execution(problem=problem)
    assert told(execution.first)[1:] == ["playbook.request.evaluated", "playbook.processed"]
    assert {fact.status for fact in execution.first.facts[1:]} == {"error"}
    assert (execution.state.status, execution.state.error) == ("failed", problem)


def test_a_deadline_that_is_none_is_told_as_the_reason() -> None:
    execution = Execution(IN_TIME, {"within": "soon"})
    assert execution.state.status == "failed"
    assert execution.state.error is not None
    assert "`deadline`" in execution.state.error["message"]


def test_what_is_due_first_happens_first_and_neither_before_its_moment() -> None:
    execution = Execution(IN_TIME)
    assert next_due(execution.state) == START + 20
    execution.now += 19.9
    assert execution.take(decide.wake).facts == []
    execution.now = START + 20
    turn = execution.take(decide.wake)
    assert of_type(turn, "step.failed").payload["error"] == error_data(
        "deadline", "the step was not over after 20 seconds", step="start"
    )
    assert of_type(turn, "step.scheduled").step == "late"
    assert next_due(execution.state) == START + 60
    execution.now = START + 60
    execution.take(decide.wake)
    assert execution.state.error == error_data("deadline", "the execution was not over after 60 seconds")
    assert next_due(execution.state) is None
    assert execution.take(decide.wake).facts == []


def test_a_deadline_holds_also_while_the_execution_is_paused() -> None:
    execution = Execution(IN_TIME)
    execution.take(decide.pause)
    execution.now += 60
    execution.take(decide.wake)
    assert execution.state.status == "failed"


def test_a_cancellation_says_why_and_ends_what_is_open() -> None:
    execution = Execution(FORK)
    turn = execution.take(lambda turn: decide.cancel(turn, "enough"))
    assert told(turn) == ["execution.cancelled", "workflow.finished", "playbook.processed"]
    assert {fact.status for fact in turn.facts} == {"error"}
    assert turn.facts[0].payload == {"reason": "enough"}
    assert execution.state.error == error_data("execution.cancelled", "enough")
    assert execution.state.status == "cancelled"
    assert {name: step.status for name, step in execution.state.steps.items()} == {
        "start": "done",
        "a": "cancelled",
        "b": "cancelled",
    }
    assert (execution.state.runs, execution.state.tokens) == ({}, {})
    assert execution.take(decide.cancel).facts == []


def test_a_cancellation_without_a_reason_says_so_much() -> None:
    execution = Execution()
    execution.take(decide.cancel)
    assert execution.state.error == error_data("execution.cancelled", "the execution was cancelled")


def test_only_what_runs_can_be_paused_and_only_what_is_not_over_goes_on() -> None:
    execution = Execution()
    assert told(execution.take(decide.pause)) == ["execution.paused"]
    assert execution.take(decide.pause).facts == []
    assert told(execution.take(decide.resume)) == ["execution.resumed"]
    execution.take(decide.cancel)
    for act in (decide.pause, decide.resume, decide.wake, lambda turn: decide.signal(turn, "go", 1)):
        assert execution.take(act).facts == []


@pytest.mark.parametrize("paused", [False, True])
def test_lost_work_is_handed_out_again_unless_the_execution_is_paused(paused: bool) -> None:
    execution = Execution()
    if paused:
        execution.take(decide.pause)
    turn = execution.take(lambda turn: decide.lose(turn, "1.1"))
    expired = of_type(turn, "command.expired")
    assert (expired.payload, expired.status) == ({"losses": 1, "lease": 0}, "error")
    assert turn.commands == {"1.1": "hold" if paused else "free"}


def test_a_step_whose_worker_is_lost_too_often_says_how_often() -> None:
    execution = Execution()
    for _ in range(decide.MOST_LOSSES):
        execution.take(lambda turn: decide.lose(turn, "1.1"))
    assert execution.state.error == error_data(
        "worker.lost",
        "its worker was lost 3 times in a row without a task finished in between",
        step="start",
        retryable=True,
    )
    assert execution.take(lambda turn: decide.lose(turn, "1.1")).facts == []


def test_a_report_about_work_that_is_over_changes_nothing_and_stops_the_worker() -> None:
    execution = Execution()
    execution.take(decide.cancel)
    answers = []
    turn = execution.take(lambda turn: answers.append(decide.report(turn, "1.1", [])))
    assert (answers, turn.facts) == ([decide.Told(goes_on=False)], [])


def test_while_an_execution_is_paused_no_step_is_begun_and_then_it_goes_on() -> None:
    execution = Execution(FORK.replace("{step: start,", "{step: start, tool: {kind: python, code: pass},"))
    execution.take(decide.pause)
    turn = execution.take(lambda turn: decide.report(turn, "1.1", [step_done()]))
    assert told(turn) == ["step.done", "next.evaluated"]
    assert len(execution.state.tokens) == 2
    assert told(execution.take(decide.resume)) == ["execution.resumed", "step.scheduled", "step.scheduled"]


def test_a_step_that_is_entered_again_runs_again_and_shows_its_last_result_meanwhile() -> None:
    execution = Execution(ONE_STEP.replace("code: pass}", "code: pass}, next: {arcs: [{step: start}]}"))
    execution.take(lambda turn: decide.report(turn, "1.1", [step_done()]))
    step = execution.state.steps["start"]
    assert (step.status, step.runs, step.result) == ("running", 2, 1)


def test_work_that_is_over_in_the_turn_that_made_it_is_handed_to_nobody() -> None:
    playbook = load(IN_TIME.encode(), builtin_kinds()).playbook
    assert playbook is not None
    turn = Turn(Plan(playbook), State(execution_id="1"), timestamp(START), Bodies())
    decide.request(turn, {})
    turn.now = timestamp(START + 20)
    decide.wake(turn)
    assert told(turn)[-3:] == ["step.failed", "next.evaluated", "step.scheduled"]
    assert turn.commands == {"1.2": "add"}
