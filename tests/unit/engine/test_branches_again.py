"""Beginning again beside other branches, inside loops, and with writes of items that are not run again."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine import decide, kept_items
from noetl.engine.bodies import Bodies
from noetl.engine.plan import Plan
from noetl.engine.reuse import CannotRepeatError, Reuse, reuse_from
from noetl.engine.state import State
from noetl.engine.turn import Turn
from noetl.playbook.load import load
from noetl.testing import Run, after, fails, play
from noetl.tools.registry import builtin_kinds

FORK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: a, args: {of: a}}, {step: b, args: {of: b}}]}
  - step: a
    tool: {kind: python, code: pass, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: a}}}}]}}}
    next: {arcs: [{step: j, args: {a: "{{ a }}"}}]}
  - step: b
    tool: {kind: python, code: pass}
    next: {arcs: [{step: j, args: {b: 2}}]}
  - step: j
    spec: {join: {of: [a, b], mode: all}}
    tool: {kind: python, code: pass}
    next: {arcs: [{step: last}]}
  - step: last
    tool: {kind: python, code: pass}
"""  # noqa: E501 - a task on one line reads better than folded


def plan_of(text: str) -> Plan:
    playbook = load(text.encode(), builtin_kinds()).playbook
    assert playbook is not None
    return Plan(playbook)


def again(earlier: Run, text: str, step: str | None = None, *, failed_items: bool = False) -> Reuse:
    return reuse_from(plan_of(text), "1", earlier.events, step, failed_items=failed_items)


def begun(text: str, reuse: Reuse) -> State:
    """The state once an execution has begun with what is kept."""
    turn = Turn(plan_of(text), State(execution_id="2"), "2025-06-15T15:06:40.000000Z", Bodies())
    decide.request(turn, {}, reuse=reuse)
    return turn.state


def where(state: State) -> tuple[list[str], list[tuple[str, str | None]]]:
    """The steps that are open, and the tokens that wait."""
    return [run.step for run in state.runs.values()], [(at.step, at.origin) for at in state.tokens.values()]


def test_what_another_branch_brought_to_a_join_is_there_again() -> None:
    earlier = play(FORK, tools={"a": 1, "b": after(1, fails()), "j": 3, "last": 4})
    reuse = again(earlier, FORK)
    assert (reuse.step, reuse.ctx, reuse.steps["a"].result) == ("b", {"seen": "a"}, 1)
    state = begun(FORK, reuse)
    assert where(state) == (["b"], [("j", "a")])
    assert [token.args for token in state.tokens.values()] == [{"of": "a", "a": 1}]


def test_a_branch_that_was_revoked_begins_again_with_the_step_it_was_at() -> None:
    earlier = play(FORK, tools={"a": after(9, 1), "b": after(1, fails()), "j": 3, "last": 4})
    state = begun(FORK, again(earlier, FORK))
    assert where(state) == (["b", "a"], [])
    assert [run.args for run in state.runs.values()] == [{"of": "b"}, {"of": "a"}]
    assert where(begun(FORK, again(earlier, FORK, "start"))) == (["a", "b"], [])


def test_a_join_begins_again_with_all_that_came_to_it() -> None:
    earlier = play(FORK, tools={"a": 1, "b": 2, "j": fails(), "last": 4})
    state = begun(FORK, again(earlier, FORK))
    assert where(state) == (["j"], [])
    assert [run.args for run in state.runs.values()] == [{"of": "b", "a": 1, "b": 2}]


def test_before_a_join_the_other_branch_is_kept_and_what_followed_the_join_is_not() -> None:
    earlier = play(FORK, tools={"a": 1, "b": 2, "j": 3, "last": 4})
    reuse = again(earlier, FORK, "b")
    assert set(reuse.steps) == {"start", "a"}
    assert where(begun(FORK, reuse)) == (["b"], [("j", "a")])


def test_the_step_that_failed_begins_again_even_if_another_branch_is_named() -> None:
    earlier = play(FORK, tools={"a": 1, "b": after(1, fails()), "j": 3, "last": 4})
    assert where(begun(FORK, again(earlier, FORK, "a"))) == (["a", "b"], [])


def test_a_join_that_has_fired_goes_on_discarding_what_comes_late() -> None:
    text = FORK.replace("mode: all", "mode: any")
    earlier = play(text, tools={"a": 1, "b": after(1, fails()), "j": 3, "last": 4})
    reuse = again(earlier, text)
    state = begun(text, reuse)
    assert (where(state), state.owed, reuse.steps["last"].result) == ((["b"], []), {"j": {"b": 1}}, 4)
    failed = play(text, tools={"a": 1, "b": after(1, 2), "j": after(2, 3), "last": fails()})
    assert where(begun(text, again(failed, text, "a"))) == (["a"], [])


def test_an_edited_playbook_must_have_the_steps_of_the_other_branches() -> None:
    earlier = play(FORK, tools={"a": after(9, 1), "b": after(1, fails())})
    edited = FORK.replace("step: a,", "step: c,").replace("- step: a\n", "- step: c\n")
    with pytest.raises(CannotRepeatError, match="no step `a`, where another branch"):
        again(earlier, edited.replace("of: [a, b]", "of: [c, b]"))


SPREAD = """
apiVersion: noetl.io/v1
kind: Playbook
name: p
path: p
workflow:
  - {step: start, loop: {in: [1, 2, 3], iterator: x}, next: [{step: one}]}
  - {step: one, call: {task: t, with: {x: "{{ x }}"}}, next: [{step: gather}]}
  - {step: gather, join: start, call: {task: t, with: {x: 0}}}
workbook: [{task: t, type: python, code: pass}]
"""


def test_from_a_step_inside_a_loop_that_sends_its_items_on_only_the_whole_loop_begins_again() -> None:
    earlier = play(SPREAD, tools={"python": lambda call: fails() if call.args["x"] == 2 else call.args["x"]})
    with pytest.raises(CannotRepeatError, match=r"the loop of step `start`; .* --from start"):
        again(earlier, SPREAD)
    assert again(earlier, SPREAD, "start").tokens == [{"step": "start", "args": {}}]


LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - step: work
    loop: {in: "{{ [1, 2, 3] }}", iterator: n, spec: {mode: parallel, on_error: continue, reduce: {total: sum, seen: append}}}
    tool: {kind: python, code: pass, args: {n: "{{ n }}"}, spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: fail}}, {else: {then: {do: continue, set_ctx: {total: "{{ n }}", seen: "{{ n }}"}}}}]}}}
    next: {arcs: [{step: other}]}
  - step: other
    loop: {in: "{{ [1, 2, 3] }}", iterator: n, spec: {on_error: continue}}
    tool: {kind: python, code: pass, args: {n: "{{ n }}"}}
"""  # noqa: E501


def but(*bad: int) -> Any:
    return lambda call: fails() if call.args["n"] in bad else call.args["n"]


def test_what_kept_items_gave_to_a_reducer_counts_again_in_the_order_of_the_items() -> None:
    earlier = play(LOOP, tools={"work": but(2), "other": 1})
    reuse = again(earlier, LOOP, failed_items=True)
    assert (reuse.step, reuse.items, reuse.ctx) == ("work", {0: 1, 2: 3}, {})
    state = begun(LOOP, reuse)
    assert state.ctx == {"total": 1, "seen": [1]}
    (run,) = state.runs.values()
    assert run.loop is not None
    assert run.loop.waiting == {2: {"total": ["sum", 3], "seen": ["append", 3]}}


def test_with_another_reducer_or_mode_what_they_wrote_cannot_be_counted() -> None:
    earlier = play(LOOP, tools={"work": but(2), "other": 1})
    with pytest.raises(CannotRepeatError, match=r"`total`.* another reducer .*--from work"):
        again(earlier, LOOP.replace("total: sum", "total: max"), failed_items=True)
    with pytest.raises(CannotRepeatError, match=r"another mode .*--from work"):
        again(earlier, LOOP.replace("mode: parallel, ", ""), failed_items=True)


def test_more_writes_than_fit_into_an_event_are_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = play(LOOP, tools={"work": but(2), "other": 1})
    monkeypatch.setattr(kept_items, "MOST_NOTED", 1)
    assert again(earlier, LOOP, failed_items=True).items == {0: 1, 2: 3}
    monkeypatch.setattr(kept_items, "MOST_NOTED_BYTES", 10)
    with pytest.raises(CannotRepeatError, match="very many values to reducers"):
        again(earlier, LOOP, failed_items=True)


def test_the_only_loop_with_failed_items_is_meant_and_of_several_one_must_be_named() -> None:
    several = play(LOOP, tools={"work": but(2), "other": but(1)})
    with pytest.raises(CannotRepeatError, match=r"several loops failed: `work`, `other`; .*--from STEP"):
        again(several, LOOP, failed_items=True)
    one = play(LOOP, tools={"work": but(), "other": but(1)})
    assert again(one, LOOP, failed_items=True).items == {1: 2, 2: 3}
    fine = play(LOOP, tools={"work": but(), "other": but()})
    with pytest.raises(CannotRepeatError, match="neither a failed step nor a loop with failed items"):
        again(fine, LOOP, failed_items=True)


IN_SEQUENCE = LOOP.replace("mode: parallel, ", "").replace(", reduce: {total: sum, seen: append}", "")


def test_a_loop_in_sequence_goes_on_with_what_the_items_before_wrote() -> None:
    stopped = IN_SEQUENCE.replace("on_error: continue", "on_error: fail", 1)
    earlier = play(stopped, tools={"work": but(3), "other": 1})
    state = begun(stopped, again(earlier, stopped, failed_items=True))
    assert state.ctx == {"total": 2, "seen": 2}


def test_items_that_wrote_after_one_that_is_run_again_cannot_be_kept() -> None:
    earlier = play(IN_SEQUENCE, tools={"work": but(2), "other": 1})
    with pytest.raises(CannotRepeatError, match=r"`total`, `seen`.* in the order of its items.*--from work"):
        again(earlier, IN_SEQUENCE, failed_items=True)
    assert again(earlier, IN_SEQUENCE, "work").ctx == {}


def test_what_a_case_gathers_item_by_item_is_not_taken_over() -> None:
    text = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - step: start
    loop: {in: [1, 2, 3], iterator: n, spec: {on_error: continue}}
    tool: {kind: python, args: {n: "{{ n }}"}, code: pass}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then: {collect: {from: result, into: acc, mode: append}}
"""
    earlier = play(text, tools={"start": but(2)})
    with pytest.raises(CannotRepeatError, match=r"gathers values in a case .`acc`.: .*--from start"):
        again(earlier, text, failed_items=True)
