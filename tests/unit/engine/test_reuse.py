"""What an execution takes over from an earlier one."""

from __future__ import annotations

import msgspec

from noetl.engine.bodies import Bodies, is_ref
from noetl.engine.facts import of_playbook
from noetl.engine.fold import fold
from noetl.engine.limits import EVENT_BYTES, fit
from noetl.engine.reuse import Reuse, as_payloads
from noetl.engine.state import State, StepResult


def taken_over(steps: int, size: int) -> State:
    """The state after the events that tell of it, none of them too large."""
    results = {f"s{number}": StepResult(status="done", result="x" * size, seq=1) for number in range(steps)}
    values = {f"v{number}": number for number in range(steps)}
    reuse = Reuse({}, "s", {}, ctx=values, vars=values, steps=results, items={})
    state = State(execution_id="1")
    for place, part in enumerate(as_payloads(reuse)):
        workload = {"workload": {"w": 1}} if place == 0 else {}
        fact = of_playbook(
            "playbook.request.evaluated", "1", "2025-06-15T12:00:00Z", "success", reused=part, **workload
        )
        fit(fact, "1", Bodies())
        assert len(msgspec.json.encode(fact.payload)) <= EVENT_BYTES
        fold(state, fact)
    return state


def test_what_is_taken_over_from_very_many_steps_is_told_in_several_events() -> None:
    state = taken_over(500, 900)
    assert list(state.steps) == [f"s{number}" for number in range(500)]
    assert is_ref(state.steps["s499"].result) or state.steps["s499"].result == "x" * 900
    assert (len(state.ctx), state.vars["v499"], state.workload) == (500, 499, {"w": 1})


def test_little_or_nothing_is_told_in_one_event() -> None:
    assert len(as_payloads(Reuse({}, "s", {}, ctx={}, vars={}, steps={}, items={}))) == 1
    assert taken_over(2, 5).seq == 1
