# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""What stays in the state of steps that ended: how, when, how often, and no more than can be read."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.facts import of_step as of_step_event
from noetl.engine.fold import fold
from noetl.engine.state import State, StepRun
from noetl.testing import Run, after, fails, play, replies

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\nworkflow:\n"
TASK = "tool: {kind: python, code: pass}"
SPREAD = """
apiVersion: noetl.io/v1
kind: Playbook
name: p
path: p
workload: {items: [3, 1, 2]}
workflow:
  - {step: start, next: [{step: many}]}
  - {step: many, loop: {in: "{{ workload.items }}", iterator: item}, next: [{step: work}]}
  - {step: work, call: {task: one, with: {v: "{{ item }}"}}, next: [{step: gather}]}
  - {step: gather, join: many, call: {task: one, with: {v: 0}}, next: [{step: end}]}
  - {step: end}
workbook: [{task: one, type: python, code: pass}]
"""


def run(*steps: str, **tools: Any) -> Run:
    return play(HEAD + "".join(f"  - {{{step}}}\n" for step in steps), tools=tools)


def test_a_step_that_ran_again_is_counted_and_shows_its_last_run() -> None:
    found = run(
        f"step: start, {TASK}, next: {{arcs: [{{step: start, when: '{{{{ start < 3 }}}}'}}]}}",
        start=replies(after(1, 1), after(2, 2), after(4, 3)),
    )
    step = found.state.steps["start"]
    assert (step.status, step.runs, step.result, step.duration_ms) == ("done", 3, 3, 4000)
    assert found.state.seq == len(found.events)


def test_a_failed_step_keeps_its_error_and_the_results_of_its_tasks() -> None:
    found = run(
        "step: start, tool: [{a: {kind: python, code: pass}}, {b: {kind: python, code: pass}}]",
        **{"start/a": 1, "start/b": after(2, fails("boom"))},
    )
    step = found.state.steps["start"]
    assert (step.status, step.results["a"], step.duration_ms) == ("failed", 1, 2000)
    assert step.error is not None
    assert step.error["kind"] == "boom"


def test_a_step_that_was_skipped_once_and_ran_before_keeps_what_it_gave() -> None:
    found = run(
        f"step: start, {TASK}, next: {{arcs: [{{step: on}}]}}",
        f"step: on, spec: {{policy: {{admit: {{rules: [{{when: '{{{{ start == 1 }}}}', then: {{allow: true}}}}]}}}}}}, {TASK}, "
        "next: {arcs: [{step: back}]}",
        f"step: back, {TASK}, next: {{arcs: [{{step: start, when: '{{{{ back == 1 }}}}'}}]}}",
        start=replies(1, 2),
        on="given",
        back=1,
    )
    assert found.status == "completed", found.error
    step = found.state.steps["on"]
    assert (step.status, step.runs, step.result) == ("done", 1, "given")
    assert len(found.named("step.skipped")) == 1


def test_of_steps_inside_a_spread_only_the_step_as_a_whole_is_left() -> None:
    found = play(SPREAD, tools={"python": lambda call: after(call.args["v"] or 0, call.args["v"])})
    assert found.status == "completed", found.error
    assert set(found.state.steps) == {"start", "many", "work", "gather", "end"}
    work = found.state.steps["work"]
    assert (work.status, work.runs, work.result, work.duration_ms) == ("done", 3, 3, 3000)
    assert found.state.steps["many"].result == [3, 1, 2]
    (done,) = found.named("loop.done")
    assert (done.payload["spread"], done.payload["result"]) == (True, [3, 1, 2])


def test_an_item_of_a_spread_that_fails_is_seen_in_the_step_as_a_whole() -> None:
    found = play(SPREAD, tools={"python": lambda call: fails("boom") if call.args["v"] == 1 else after(9, 1)})
    assert found.status == "failed"
    work = found.state.steps["work"]
    assert work.error is not None
    assert work.error["kind"] == "boom"


def test_when_an_execution_ends_everything_open_is_gone() -> None:
    found = run(
        f"step: start, {TASK}, next: {{spec: {{mode: inclusive}}, arcs: [{{step: a}}, {{step: b}}]}}",
        f"step: a, {TASK}",
        f"step: b, {TASK}",
        start=1,
        a=after(60, 1),
        b=after(1, fails("boom")),
    )
    state = found.state
    assert (state.status, state.steps["a"].status, state.runs, state.tokens) == (
        "failed",
        "cancelled",
        {},
        {},
    )
    assert state.finished_at == found.events[-1].timestamp


def test_a_step_that_is_done_keeps_the_results_of_its_tasks_by_name() -> None:
    found = run(
        "step: start, tool: [{a: {kind: python, code: pass}}, {b: {kind: python, code: pass}}]",
        **{"start/a": 1, "start/b": 2},
    )
    assert found.state.steps["start"].results == {"a": 1, "b": 2}


@pytest.mark.parametrize("of_step", [True, False])
def test_that_a_steps_own_sink_has_stored_is_remembered_and_of_another_sink_it_is_not(of_step: bool) -> None:
    run = StepRun(run_id="1.1", step="s", scope="", args={}, scheduled_at="")
    state = State(execution_id="1", runs={"1.1": run})
    about: dict[str, Any] = {"of_step": True} if of_step else {}
    fold(state, of_step_event("sink.processed", "1", "2025-06-15T12:00:00Z", "s", "1.1", **about))
    assert run.frame.stored is of_step
