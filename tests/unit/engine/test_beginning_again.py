"""Beginning again from a step of an earlier execution: what is kept, and when nothing can begin."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.engine import decide
from noetl.engine.bodies import Bodies
from noetl.engine.facts import of_step
from noetl.engine.kept_items import done_items
from noetl.engine.plan import Plan
from noetl.engine.reuse import CannotRepeatError, Reuse, reuse_from
from noetl.engine.state import State, StepResult
from noetl.engine.turn import Turn
from noetl.playbook.load import load
from noetl.testing import Run, fails, play
from noetl.tools.registry import builtin_kinds

TEXT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - step: start
    tool: {kind: python, code: pass, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: 1}}}}]}}}
    next: {arcs: [{step: loop, args: {from: start}}]}
  - step: loop
    loop: {in: "{{ [10, 20, 30] }}", iterator: n, spec: {on_error: continue}}
    tool: {kind: python, code: pass, args: {n: "{{ n }}"}}
    next: {arcs: [{step: last}]}
  - step: last
    tool: {kind: python, code: pass, spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: fail, set_ctx: {seen: 2}}}]}}}
  - step: never
    tool: {kind: python, code: pass}
"""  # noqa: E501 - a task on one line reads better than folded


def run(**tools: Any) -> Run:
    def one(call: Any) -> Any:
        return fails() if call.args["n"] == 20 else call.args["n"]

    return play(TEXT, tools={"start": "begun", "loop": one, "last": fails(), **tools})


def again(earlier: Run, step: str | None = None, *, failed_items: bool = False) -> Reuse:
    playbook = load(TEXT.encode(), builtin_kinds()).playbook
    assert playbook is not None
    return reuse_from(Plan(playbook), "1", earlier.events, step, failed_items=failed_items)


def test_it_begins_at_the_step_that_failed_unless_another_is_named() -> None:
    earlier = run()
    assert earlier.status == "failed"
    assert again(earlier).step == "last"
    assert again(earlier, "loop").step == "loop"
    assert again(earlier).origin == {"execution_id": "1", "step": "last", "failed_items": False}


def test_results_of_steps_before_are_kept_and_of_steps_that_follow_are_not() -> None:
    earlier = run()
    assert {name: found.result for name, found in again(earlier).steps.items()} == {
        "start": "begun",
        "loop": [10, None, 30],
    }
    assert set(again(earlier, "loop").steps) == {"start"}
    assert again(earlier, "start").steps == {}


def test_context_and_arguments_are_as_they_were_when_the_step_was_scheduled() -> None:
    earlier = run()
    assert (again(earlier, "start").ctx, again(earlier, "start").args) == ({}, {})
    assert (again(earlier, "loop").ctx, again(earlier, "loop").args) == ({"seen": 1}, {"from": "start"})


def test_of_a_loop_only_the_failed_items_are_run_again_if_so_wished() -> None:
    earlier = run()
    assert again(earlier, "loop").items == {}
    assert again(earlier, "loop", failed_items=True).items == {0: 10, 2: 30}
    with pytest.raises(CannotRepeatError, match="`start` is not a loop"):
        again(earlier, "start", failed_items=True)


def test_without_a_failed_step_or_with_one_that_did_not_run_nothing_can_begin_again() -> None:
    fine = run(last="done")
    assert fine.status == "completed"
    with pytest.raises(CannotRepeatError, match="no failed step; say where to begin"):
        again(fine)
    with pytest.raises(CannotRepeatError, match="the playbook has no step `nowhere`"):
        again(fine, "nowhere")
    with pytest.raises(CannotRepeatError, match="step `never` did not run"):
        again(fine, "never")


LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - step: start
    loop: {in: "{{ [10, 20, 30] }}", iterator: n}
    tool: {kind: python, code: pass}
"""


def taking_over(items: dict[int, Any]) -> Turn:
    playbook = load(LOOP.encode(), builtin_kinds()).playbook
    assert playbook is not None
    turn = Turn(Plan(playbook), State(execution_id="1"), "2025-06-15T15:06:40.000000Z", Bodies())
    decide.request(turn, {}, reuse=Reuse({}, "start", {}, {}, {}, {}, items))
    return turn


def test_items_that_were_done_before_are_not_handed_out_and_count() -> None:
    turn = taking_over({0: "a", 2: "c"})
    run = turn.state.runs["1.1"]
    assert run.loop is not None
    assert list(run.loop.open) == [1]
    assert (run.loop.done, run.loop.results) == (2, {0: "a", 2: "c"})
    told = [(fact.iteration, fact.payload.get("reused")) for fact in turn.facts if fact.iteration is not None]
    assert told == [(0, True), (0, True), (2, True), (2, True), (1, None)]
    assert turn.commands == {"1.1": "add"}


def test_a_loop_whose_items_were_all_done_before_is_done_at_once() -> None:
    turn = taking_over({0: "a", 1: "b", 2: "c"})
    assert (turn.state.status, turn.state.result) == ("completed", ["a", "b", "c"])
    (done,) = [fact.payload for fact in turn.facts if fact.event_type == "loop.done"]
    assert (done["done"], done["failed"]) == (3, 0)


def test_a_result_is_that_of_a_step_of_its_own_however_late_the_kept_ones_came_in_the_earlier_log() -> None:
    playbook = load(TEXT.encode(), builtin_kinds()).playbook
    assert playbook is not None
    turn = Turn(Plan(playbook), State(execution_id="1"), "2025-06-15T15:06:40.000000Z", Bodies())
    kept = {"start": StepResult(status="done", result="kept", seq=900)}
    decide.request(turn, {}, reuse=Reuse({}, "last", {}, {}, {}, kept, {}))
    ended = of_step("step.done", "1", turn.now, "last", "1.1", result="own")
    decide.report(turn, "1.1", [ended])
    assert (turn.state.result, turn.state.result_step) == ("own", "last")
    assert turn.state.steps["start"].result == "kept"


def test_items_of_a_list_that_is_shorter_now_cannot_be_taken_over() -> None:
    turn = taking_over({3: "d"})
    assert turn.state.error is not None
    assert (turn.state.error["kind"], turn.state.error["step"]) == ("retry.items_changed", "start")
    assert "now has 3 elements" in turn.state.error["message"]
    assert turn.facts[-1].event_type == "playbook.processed"


def test_a_loop_that_sends_its_items_on_begins_again_as_a_whole_not_from_one_of_its_items() -> None:
    text = """
apiVersion: noetl.io/v1
kind: Playbook
name: p
path: p
workload: {items: [3, 1]}
workflow:
  - {step: start, next: [{step: many, with: {from: start}}]}
  - {step: many, loop: {in: "{{ workload.items }}", iterator: item}, call: {task: one, with: {v: "{{ item }}"}}, next: [{step: gather}]}
  - {step: gather, join: many, call: {task: one, with: {v: 0}}}
workbook: [{task: one, type: python, code: pass}]
"""  # noqa: E501
    earlier = play(text, tools={"python": lambda call: fails() if call.args["v"] == 0 else 1})
    playbook = load(text.encode(), builtin_kinds()).playbook
    assert playbook is not None
    reuse = reuse_from(Plan(playbook), "1", earlier.events, "many", failed_items=False)
    assert reuse.args == {"from": "start"}


def test_an_item_of_a_block_inside_a_loop_is_no_item_of_the_loop() -> None:
    earlier = run()
    done = earlier.named("loop.iteration.done")[0]
    inner = msgspec.structs.replace(done, iteration=1, payload={"block": "b", "result": 99})
    assert done_items([*earlier.events, inner], str(done.step_run_id)) == {0: 10, 2: 30}
