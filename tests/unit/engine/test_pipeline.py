"""The interpreter of a pipeline: what comes next, and what follows from an outcome."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.bodies import NO_BODIES
from noetl.engine.pipeline import Ended, Then, action_id, after, before, runaway, upcoming
from noetl.engine.state import Frame
from noetl.playbook.load import load
from noetl.playbook.model import Node, Task
from noetl.template import Scope
from noetl.tools.registry import builtin_kinds

ERROR: dict[str, Any] = {
    "status": "error",
    "result": None,
    "error": {"kind": "k", "message": "m", "retryable": True},
}
FINE: dict[str, Any] = {"status": "ok", "result": {"n": 1}, "error": None}


def body(rules: str) -> tuple[Node, ...]:
    """Two tasks, `first` and `second`; the first has these rules."""
    text = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: p}}
workflow:
  - step: start
    tool:
      - first: {{kind: noop, spec: {{policy: {{rules: {rules}}}}}}}
      - second: {{kind: noop}}
"""
    loaded = load(text.encode(), builtin_kinds())
    assert loaded.playbook is not None, loaded.diagnostics
    return loaded.playbook.steps[0].body


def follows(rules: str, outcome: dict[str, Any], frame: Frame | None = None, **names: Any) -> Then:
    nodes = body(rules)
    task = nodes[0]
    assert isinstance(task, Task)
    scope = Scope({"outcome": outcome, "iter": {}, "ctx": {}, **names})
    return after(task, nodes, frame or Frame(), outcome, scope, NO_BODIES, now=0.0)


def test_a_frame_comes_to_its_tasks_in_turn_and_then_to_the_end() -> None:
    nodes = body("[{else: {then: {do: continue}}}]")
    assert [getattr(upcoming(nodes, Frame(position=place)), "label", None) for place in (0, 1)] == [
        "first",
        "second",
    ]
    assert isinstance(upcoming(nodes, Frame(position=2)), Ended)


def test_the_first_rule_that_matches_decides() -> None:
    rules = "[{when: '{{ outcome.result.n == 1 }}', then: {do: break}}, {when: true, then: {do: fail}}]"
    assert follows(rules, FINE) == Then("break", 2)


def test_else_takes_what_no_rule_matched() -> None:
    rules = (
        "[{when: '{{ outcome.result.n == 2 }}', then: {do: break}}, {else: {then: {do: jump, to: second}}}]"
    )
    assert follows(rules, FINE) == Then("jump", 1)


def test_an_error_continues_where_rules_exist_but_none_matches() -> None:
    assert follows("[{when: '{{ outcome.result.n == 2 }}', then: {do: break}}]", ERROR) == Then("continue", 1)


def test_skip_rules_do_not_count_as_a_policy_for_outcomes() -> None:
    assert follows("[{when: false, then: {do: skip}}]", ERROR) == Then("fail", error=ERROR["error"])
    assert follows("[{when: false, then: {do: skip}}]", FINE) == Then("continue", 1)


def test_a_skip_rule_is_asked_before_the_tool_runs() -> None:
    nodes = body("[{when: '{{ ctx.seen }}', then: {do: skip, set_iter: {a: '{{ 1 + 1 }}'}}}]")
    task = nodes[0]
    assert isinstance(task, Task)
    assert before(task, Frame(), Scope({"ctx": {"seen": True}})) == Then("skip", 1, set_iter={"a": 2})
    assert before(task, Frame(), Scope({"ctx": {"seen": False}})) is None


def test_patches_are_rendered_together() -> None:
    patches = "set_ctx: {a: '{{ outcome.result.n }}'}, set_iter: {b: '{{ ctx.a }}'}"
    rules = f"[{{else: {{then: {{do: continue, {patches}}}}}}}]"
    decided = follows(rules, FINE, ctx={"a": 0})
    assert (decided.set_ctx, decided.set_iter) == ({"a": 1}, {"b": 0})


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ("delay: 2", [2, 2, 2]),
        ("delay: 2, backoff: linear", [2, 4, 6]),
        ("delay: 2, backoff: exponential", [2, 4, 8]),
        ("delay: 2, backoff: exponential, max_delay: 5", [2, 4, 5]),
        ("delay: '{{ 1 + 2 }}'", [3, 3, 3]),
    ],
)
def test_the_wait_grows_as_the_backoff_says(backoff: str, waits: list[float]) -> None:
    rules = f"[{{when: true, then: {{do: retry, attempts: 9, {backoff}}}}}]"
    assert [follows(rules, ERROR, Frame(attempt=attempt)).delay for attempt in (1, 2, 3)] == waits


def test_jitter_spreads_the_wait_between_half_and_all_of_it() -> None:
    nodes = body("[{when: true, then: {do: retry, delay: 8, jitter: true}}]")
    task = nodes[0]
    assert isinstance(task, Task)
    scope = Scope({"outcome": ERROR})
    waits = [
        after(task, nodes, Frame(), ERROR, scope, NO_BODIES, now=0.0, chance=chance).delay
        for chance in (0.0, 1.0)
    ]
    assert waits == [4, 8]


def test_attempts_count_the_first_execution() -> None:
    rules = "[{when: true, then: {do: retry, attempts: 2}}]"
    assert follows(rules, ERROR, Frame(attempt=1)).do == "retry"
    assert follows(rules, ERROR, Frame(attempt=2)) == Then("fail", error=ERROR["error"])
    exhausted = follows(rules, FINE, Frame(attempt=2)).error
    assert exhausted is not None
    assert exhausted["kind"] == "retry.exhausted"


def test_a_rule_that_cannot_be_evaluated_fails_the_task() -> None:
    broken = follows("[{when: '{{ 1 / 0 }}', then: {do: continue}}]", FINE)
    assert broken.do == "fail"
    assert broken.error is not None
    assert "1 / 0" in broken.error["message"] or "zero" in broken.error["message"]


def test_a_number_of_attempts_must_be_a_number() -> None:
    assert follows("[{when: true, then: {do: retry, attempts: \"{{ 'x' }}\"}}]", ERROR).do == "fail"


def test_a_rule_can_fail_a_good_outcome() -> None:
    failed = follows("[{else: {then: {do: fail}}}]", FINE)
    assert failed.error is not None
    assert failed.error["kind"] == "task.failed"


def test_an_action_has_the_same_id_for_all_attempts_and_for_no_other_visit() -> None:
    assert action_id("1.1", None, 0, 1) == action_id("1.1", None, 0, 1)
    ids = {
        action_id("1.1", where, place, entry)
        for where in (None, "1.1/0")
        for place in (0, 1)
        for entry in (1, 2)
    }
    assert len(ids) == 8


def test_a_pipeline_may_run_so_many_tasks_and_no_more() -> None:
    assert runaway(Frame(task_runs=9), 10) is None
    error = runaway(Frame(task_runs=10), 10)
    assert error is not None
    assert error["kind"] == "pipeline.runaway"


def test_a_task_that_a_rule_ended_says_why_and_that_another_try_would_end_no_other_way() -> None:
    exhausted = follows("[{when: true, then: {do: retry, attempts: 2}}]", FINE, Frame(attempt=2))
    assert exhausted.error == {
        "kind": "retry.exhausted",
        "message": "the condition for a retry still held after 2 attempts",
        "retryable": False,
    }
    assert follows("[{else: {then: {do: fail}}}]", FINE).error == {
        "kind": "task.failed",
        "message": "a rule of the task's policy failed it",
        "retryable": False,
    }
    assert follows("[{else: {then: {do: fail}}}]", ERROR).error == ERROR["error"]
    broken = follows("[{when: '{{ 1 / 0 }}', then: {do: continue}}]", FINE).error
    assert broken is not None
    assert broken["retryable"] is False
    ran_away = runaway(Frame(task_runs=10), 10)
    assert ran_away is not None
    assert ran_away["retryable"] is False
    assert "ran 10 tasks" in ran_away["message"]


def test_what_follows_is_written_without_what_it_does_not_say() -> None:
    assert Then("continue", 0).to_data() == {"do": "continue", "next": 0}
    assert Then("retry", delay=2.0).to_data() == {"do": "retry", "delay": 2.0}
    assert Then("fail", error={"kind": "k"}, set_ctx={"a": 1}, set_iter={"b": 2}).to_data() == {
        "do": "fail",
        "error": {"kind": "k"},
        "set_ctx": {"a": 1},
        "set_iter": {"b": 2},
    }


def test_of_several_else_rules_the_first_counts() -> None:
    assert follows("[{else: {then: {do: break}}}, {else: {then: {do: fail}}}]", FINE) == Then("break", 2)
