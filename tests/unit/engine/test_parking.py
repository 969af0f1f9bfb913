"""Leases that are given back until something happens: whenever it comes, it brings them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from noetl.engine import decide
from noetl.engine.bodies import Bodies
from noetl.engine.facts import Fact
from noetl.engine.parking import next_due, waits_payload
from noetl.engine.plan import Plan
from noetl.engine.state import State, Waits
from noetl.engine.turn import Turn
from noetl.ids import timestamp
from noetl.playbook.load import load
from noetl.tools.registry import builtin_kinds

PLAYBOOK = b"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: tests/p}
workflow: [{step: start, tool: {kind: wait, signal: go}}]
"""
START = 1_750_000_000.0


class Parked:
    """An execution whose one step run can be parked."""

    def __init__(self) -> None:
        loaded = load(PLAYBOOK, builtin_kinds())
        assert loaded.playbook is not None
        self.plan = Plan(loaded.playbook)
        self.state = State(execution_id="1")
        self.now = START
        self.take(lambda turn: decide.request(turn, {}))

    def take(self, act: Callable[[Turn], Any]) -> Turn:
        turn = Turn(self.plan, self.state, timestamp(self.now), Bodies())
        act(turn)
        return turn

    def park(self, waits: Waits) -> Turn:
        fact = Fact(
            event_type="step.paused",
            timestamp=timestamp(self.now),
            source="worker",
            entity_type="step",
            entity_id="1.1",
            status="in_progress",
            step="start",
            step_run_id="1.1",
            payload={"lease": 0, "waits": waits_payload(waits)},
        )
        return self.take(lambda turn: decide.report(turn, "1.1", [fact]))


def told(turn: Turn) -> list[str]:
    return [fact.event_type for fact in turn.facts]


def test_a_parked_lease_is_held_and_nobody_has_it() -> None:
    parked = Parked()
    turn = parked.park(Waits(signals=["go"]))
    assert (told(turn), turn.commands) == (["step.paused"], {"1.1": "hold"})
    assert parked.state.runs["1.1"].parked.keys() == {0}


def test_a_signal_that_came_before_the_lease_was_parked_brings_it_back_at_once() -> None:
    parked = Parked()
    parked.take(lambda turn: decide.signal(turn, "go", 1))
    turn = parked.park(Waits(signals=["go"]))
    assert (told(turn), turn.commands) == (["step.paused", "step.resumed"], {"1.1": "free"})


def test_an_event_that_came_before_the_lease_was_parked_brings_it_back_at_once() -> None:
    parked = Parked()
    seen = parked.state.heard
    parked.take(lambda turn: decide.signal(turn, "anything", 1))
    assert parked.park(Waits(events=seen)).commands == {"1.1": "free"}
    assert parked.park(Waits(events=parked.state.heard)).commands == {"1.1": "hold"}


@pytest.mark.parametrize(
    ("waits", "act"),
    [
        (Waits(signals=["go"]), lambda turn: decide.signal(turn, "go", 1)),
        (Waits(children=["7"]), lambda turn: decide.child_ended(turn, "7")),
        (Waits(until=START + 5), decide.wake),
        (Waits(timers={"t": START + 5}), decide.wake),
    ],
    ids=["signal", "child", "moment", "timer"],
)
def test_what_a_lease_waits_for_brings_it_back_and_nothing_else_does(
    waits: Waits, act: Callable[[Turn], Any]
) -> None:
    parked = Parked()
    parked.park(waits)
    for other in (
        lambda turn: decide.signal(turn, "stay", 1),
        lambda turn: decide.child_ended(turn, "8"),
        decide.wake,
    ):
        assert parked.take(other).commands == {}
    parked.now += 5
    turn = parked.take(act)
    assert "step.resumed" in told(turn)
    assert turn.commands == {"1.1": "free"}
    assert parked.state.runs["1.1"].parked == {}


def test_what_is_due_next_is_known_from_the_state_and_not_while_it_is_paused() -> None:
    parked = Parked()
    assert next_due(parked.state) is None
    parked.park(Waits(until=START + 9, timers={"t": START + 4}))
    assert next_due(parked.state) == START + 4
    parked.take(decide.pause)
    assert next_due(parked.state) is None
    assert parked.take(decide.resume).commands == {"1.1": "free"}


def test_a_timer_that_goes_off_is_told_once_and_with_its_name() -> None:
    parked = Parked()
    parked.park(Waits(timers={"soon": START + 5, "late": START + 9}))
    parked.now += 5
    turn = parked.take(decide.wake)
    assert [fact.payload.get("timer_id") for fact in turn.facts] == ["soon", None]
    assert turn.facts[1].payload == {"lease": 0, "cause": "time"}
    parked.park(Waits(timers={"soon": START + 5, "late": START + 9}))
    parked.now += 4
    assert [fact.payload.get("timer_id") for fact in parked.take(decide.wake).facts] == ["late", None]


def test_nothing_brings_back_a_lease_while_the_execution_is_paused_and_resuming_does() -> None:
    parked = Parked()
    parked.park(Waits(signals=["go"], children=["7"], until=START + 5))
    parked.take(decide.pause)
    parked.now += 9
    for act in (
        lambda turn: decide.signal(turn, "go", 1),
        lambda turn: decide.child_ended(turn, "7"),
        decide.wake,
    ):
        assert parked.take(act).commands == {}
    turn = parked.take(decide.resume)
    assert turn.commands == {"1.1": "free"}
    assert [fact.payload.get("cause") for fact in turn.facts] == [None, "resumed"]


def test_only_what_is_waited_for_is_told() -> None:
    assert waits_payload(Waits(signals=["go"])) == {"signals": ["go"]}
    assert waits_payload(Waits(until=5.0, timers={"t": 1.0})) == {"until": 5.0, "timers": {"t": 1.0}}


def test_a_lease_that_was_given_back_is_not_lost() -> None:
    parked = Parked()
    parked.park(Waits(signals=["go"]))
    turn = parked.take(lambda turn: decide.lose(turn, "1.1"))
    assert (turn.facts, turn.commands) == ([], {})
    assert parked.state.runs["1.1"].losses == {}
