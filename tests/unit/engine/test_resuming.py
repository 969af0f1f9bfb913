"""Going on with an execution: nothing is handed out that somebody has, or is just being given."""

from __future__ import annotations

from noetl.engine import decide
from noetl.engine.bodies import Bodies
from noetl.engine.plan import Plan
from noetl.engine.state import State
from noetl.engine.turn import Turn
from noetl.playbook.load import load
from noetl.tools.registry import builtin_kinds

ONE_STEP = b"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: tests/p}
workflow: [{step: start, tool: {kind: python, code: pass}}]
"""
NOW = "2025-06-15T15:06:40.000000Z"


def begun() -> Turn:
    playbook = load(ONE_STEP, builtin_kinds()).playbook
    assert playbook is not None
    turn = Turn(Plan(playbook), State(execution_id="1"), NOW, Bodies())
    decide.request(turn, {})
    return turn


def test_work_that_is_handed_out_in_the_same_turn_is_not_handed_out_twice() -> None:
    turn = begun()
    decide.resume(turn, {"1.1"})
    assert turn.commands == {"1.1": "add"}


def test_work_that_a_worker_has_is_left_to_it_and_idle_work_is_handed_out() -> None:
    before = begun()
    held = Turn(before.plan, before.state, NOW, Bodies())
    decide.resume(held)
    assert held.commands == {}
    left = Turn(before.plan, before.state, NOW, Bodies())
    decide.resume(left, {"1.1"})
    assert left.commands == {"1.1": "free"}
