"""Lost workers and signals given away twice: what is handed out again, and when that ends."""

from __future__ import annotations

from noetl.engine import decide
from noetl.engine.bodies import Bodies
from noetl.engine.facts import Fact, of_step
from noetl.engine.plan import Plan
from noetl.engine.state import State
from noetl.engine.turn import Turn
from noetl.playbook.load import load
from noetl.tools.registry import builtin_kinds

TWO_TASKS = b"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: tests/p}
workflow:
  - step: start
    tool: [{one: {kind: python, code: pass}}, {two: {kind: python, code: pass}}]
"""
NOW = "2025-06-15T15:06:40.000000Z"


def begun() -> State:
    playbook = load(TWO_TASKS, builtin_kinds()).playbook
    assert playbook is not None
    turn = Turn(Plan(playbook), State(execution_id="1"), NOW, Bodies())
    decide.request(turn, {})
    return turn.state


def turn_on(state: State) -> Turn:
    playbook = load(TWO_TASKS, builtin_kinds()).playbook
    assert playbook is not None
    return Turn(Plan(playbook), state, NOW, Bodies())


def lost(state: State) -> Turn:
    turn = turn_on(state)
    decide.lose(turn, "1.1")
    return turn


def one_done(signal: int | None = None) -> Fact:
    payload = {"outcome": {"status": "ok", "result": 1}, "then": {"do": "continue", "next": 1}}
    return Fact(
        event_type="task.done",
        timestamp=NOW,
        source="worker",
        entity_type="tool",
        entity_id="1.1:1",
        status="success",
        step="start",
        step_run_id="1.1",
        task_run_id="1.1:1",
        task_label="one",
        attempt=1,
        payload=payload if signal is None else {**payload, "signal": signal},
    )


def test_three_losses_in_a_row_fail_the_step() -> None:
    state = begun()
    for _ in range(decide.MOST_LOSSES - 1):
        assert lost(state).commands == {"1.1": "free"}
    last = lost(state)
    assert last.commands == {"1.1": "remove"}
    assert state.status == "failed"
    assert state.error is not None
    assert state.error["kind"] == "worker.lost"


def test_a_task_that_was_finished_in_between_begins_the_count_anew() -> None:
    state = begun()
    for _ in range(decide.MOST_LOSSES - 1):
        lost(state)
    decide.report(turn_on(state), "1.1", [one_done()])
    for _ in range(decide.MOST_LOSSES - 1):
        assert lost(state).commands == {"1.1": "free"}
    assert state.status == "running"


def test_a_lease_that_was_given_back_in_between_begins_the_count_anew() -> None:
    state = begun()
    for _ in range(decide.MOST_LOSSES - 1):
        lost(state)
    parked = of_step(
        "step.paused", "1", NOW, "start", "1.1", "in_progress", lease=0, waits={"signals": ["go"]}
    )
    decide.report(turn_on(state), "1.1", [parked])
    decide.signal(turn_on(state), "go", None)
    for _ in range(decide.MOST_LOSSES - 1):
        assert lost(state).commands == {"1.1": "free"}
    assert state.status == "running"


def test_of_two_tasks_with_one_signal_the_later_waits_on_under_another_lease() -> None:
    state = begun()
    decide.signal(turn_on(state), "go", None)
    (place,) = state.mailbox
    state.mailbox.clear()  # the other task has used it
    turn = turn_on(state)
    assert decide.report(turn, "1.1", [one_done(place)]) == decide.Told(goes_on=False)
    assert (turn.facts, turn.commands) == ([], {"1.1": "free"})
