"""A parallel loop that several workers share: no more at once than it may, and no iteration twice."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine import decide
from noetl.engine.bodies import Bodies
from noetl.engine.facts import Fact
from noetl.engine.leases import command_id, leased, run_and_lease
from noetl.engine.plan import Plan
from noetl.engine.state import LoopRun, State
from noetl.engine.turn import Turn
from noetl.playbook.load import load
from noetl.tools.registry import builtin_kinds

NOW = "2025-06-15T15:06:40.000000Z"
RUN = "1.1"


class Shared:
    """A loop of so many items, of which so many may run at once; `more` is written to its step."""

    def __init__(self, items: int, at_once: int, more: bytes = b"") -> None:
        loaded = load(
            b"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: tests/p}\n"
            b"workflow: [{step: start, loop: {in: '{{ range(%d) | list }}', iterator: n, "
            b"spec: {mode: parallel, max_in_flight: %d}}, tool: {kind: python, code: pass}%b}]"
            % (items, at_once, more),
            builtin_kinds(),
        )
        assert loaded.playbook is not None
        self.plan = Plan(loaded.playbook)
        self.state = State(execution_id="1")
        self.begun: list[int] = []
        turn = self.turn()
        decide.request(turn, {})
        self.note(turn)
        self.leases = [run_and_lease(name)[1] for name in turn.commands]

    def turn(self) -> Turn:
        return Turn(self.plan, self.state, NOW, Bodies(), distributed=True)

    def note(self, turn: Turn) -> None:
        self.begun += [fact.iteration or 0 for fact in turn.facts if _begins(fact)]

    @property
    def loop(self) -> LoopRun:
        found = self.state.runs[RUN].loop
        assert found is not None
        return found

    def given(self, lease: int) -> set[int]:
        """The iterations that a worker is given with the lease."""
        share = leased(self.plan, self.state, self.state.runs[RUN], lease).loop
        assert share is not None
        return set(share.open)

    def end(self, lease: int, index: int) -> decide.Told:
        """A worker reports the end of an iteration."""
        turn = self.turn()
        told = decide.report(turn, RUN, [_ended(index)], lease=lease)
        self.note(turn)
        return told


def _begins(fact: Fact) -> bool:
    return fact.event_type == "loop.iteration.started"


def _ended(index: int, **more: Any) -> Fact:
    return Fact(
        event_type="loop.iteration.done",
        timestamp=NOW,
        source="worker",
        entity_type="loop",
        entity_id=f"{RUN}/{index}",
        status="success",
        step="start",
        step_run_id=RUN,
        iteration_id=f"{RUN}/{index}",
        iteration=index,
        payload={"result": index, **more},
    )


@pytest.mark.parametrize(("items", "at_once"), [(20, 5), (20, 1), (3, 8), (40, 13)])
def test_all_leases_together_run_no_more_than_may_run_at_once(items: int, at_once: int) -> None:
    shared = Shared(items, at_once)
    assert len(shared.leases) == min(items, at_once, 8)
    while not shared.state.is_over:
        assert len(shared.loop.open) == min(at_once, items - shared.loop.done)
        for lease in shared.leases:
            mine = shared.given(lease)
            if mine:
                told = shared.end(lease, min(mine))
                assert set(told.iterations).isdisjoint({min(mine)})
                break
    assert shared.state.status == "completed"
    assert shared.state.result == list(range(items))


def test_every_iteration_is_begun_once_and_given_to_one_lease() -> None:
    shared = Shared(30, 6)
    while not shared.state.is_over:
        shares = [shared.given(lease) for lease in shared.leases]
        assert sum(map(len, shares)) == len(set().union(*shares)) == len(shared.loop.open)
        lease = max(shared.leases, key=lambda each: len(shared.given(each)))
        shared.end(lease, max(shared.given(lease)))
    assert shared.begun == list(range(30))


def test_a_lease_that_finds_nothing_left_ends() -> None:
    shared = Shared(2, 2)
    turn = shared.turn()
    told = decide.report(turn, RUN, [_ended(0)], lease=0)
    assert told == decide.Told(goes_on=False)
    assert turn.commands == {command_id(RUN, 0): "remove"}


def test_while_the_execution_is_paused_a_lease_is_given_no_more_and_rests_until_it_is_resumed() -> None:
    shared = Shared(4, 2)
    decide.pause(shared.turn())
    turn = shared.turn()
    assert decide.report(turn, RUN, [_ended(0)], lease=0) == decide.Told(goes_on=False)
    assert [fact.event_type for fact in turn.facts] == ["loop.iteration.done", "step.paused"]
    assert turn.commands == {RUN: "hold"}
    turn = shared.turn()
    decide.resume(turn)
    assert turn.commands == {RUN: "free"}  # the other lease is with its worker
    assert (shared.given(0), shared.given(1)) == ({2}, {1})


CLOSED_BY_WORKER = b", vars: {kept: 1}"
"""Whoever has the only lease of such a loop asks for its iterations, and ends it."""


def test_a_lease_that_asks_for_its_first_iterations_during_a_pause_rests_and_is_given_them_later() -> None:
    shared = Shared(3, 2, CLOSED_BY_WORKER)
    decide.pause(shared.turn())
    turn = shared.turn()
    assert decide.report(turn, RUN, [], asks=True) == decide.Told(goes_on=False)
    assert turn.commands == {RUN: "hold"}
    turn = shared.turn()
    decide.resume(turn)
    assert turn.commands == {RUN: "free"}
    assert decide.report(shared.turn(), RUN, [], asks=True) == decide.Told(goes_on=True, iterations=(0, 1))


def test_of_a_loop_that_a_way_out_ended_early_no_iteration_is_begun_any_more() -> None:
    shared = Shared(3, 1, CLOSED_BY_WORKER)
    decide.report(shared.turn(), RUN, [], asks=True)
    way_out: dict[str, Any] = {"route": {"selected": []}, "result": [], "error": None}
    told = decide.report(shared.turn(), RUN, [_ended(0, ends=way_out)])
    assert told == decide.Told(goes_on=True)
    assert shared.given(0) == set()
