# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""Between steps: what an end of a step tells, which arcs are asked, and what an execution comes to."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.testing import Run, after, fails, play, replies

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\nworkload: {open: true}\n"
TASK = "tool: {kind: python, code: pass}"


def run(*steps: str, payload: dict[str, Any] | None = None, **tools: Any) -> Run:
    text = HEAD + "workflow:\n" + "".join(f"  - {{{step}}}\n" for step in steps)
    return play(text, payload, tools={"python": None, **tools})


def routed(found: Run, step: str) -> list[dict[str, Any]]:
    return [event.payload for event in found.named("next.evaluated") if event.step == step]


def entered(found: Run, step: str) -> list[dict[str, Any]]:
    return [event.payload["args"] for event in found.named("step.scheduled") if event.step == step]


def test_an_end_of_a_step_tells_where_its_tokens_go_and_what_it_was() -> None:
    found = run(
        f"step: start, {TASK}, next: {{spec: {{mode: inclusive}}, arcs: [{{step: a, args: {{n: 1}}}}, {{step: b}}]}}",
        f"step: a, {TASK}",
        f"step: b, {TASK}",
    )
    (told,) = routed(found, "start")
    assert told["selected"] == [
        {"step": "a", "args": {"n": 1}, "token": "2"},
        {"step": "b", "args": {}, "token": "3"},
    ]
    assert told["mode"] == "inclusive"
    assert (told["event"]["name"], told["event"]["step"]) == ("step.done", "start")
    assert (entered(found, "a"), entered(found, "b")) == ([{"n": 1}], [{}])
    assert routed(found, "b")[0]["selected"] == []


def test_the_end_of_a_loop_tells_its_arcs_how_many_items_failed() -> None:
    found = run(
        f"step: start, loop: {{in: '{{{{ [1, 2, 3] }}}}', iterator: n, spec: {{on_error: continue}}}}, {TASK}, "
        "next: {arcs: [{step: bad, when: '{{ event.data.failed == 1 and event.data.done == 2 }}'}, {step: good}]}",
        f"step: bad, {TASK}",
        f"step: good, {TASK}",
        start=replies(1, fails(), 3),
    )
    assert (len(entered(found, "bad")), len(entered(found, "good"))) == (1, 0)


def test_a_failure_that_no_arc_takes_is_routed_nowhere_and_its_error_is_the_executions() -> None:
    found = run(
        f"step: start, {TASK}, next: {{arcs: [{{step: on}}]}}", f"step: on, {TASK}", start=fails("boom")
    )
    assert routed(found, "start") == [{"selected": [], "mode": "exclusive"}]
    assert found.error is not None
    assert (found.error["kind"], found.error["step"]) == ("boom", "start")


def test_an_arc_that_takes_a_failure_can_ask_about_its_error() -> None:
    guard = '{{ event.name == \\"step.failed\\" and event.data.error.kind == \\"boom\\" }}'
    found = run(
        f'step: start, {TASK}, next: {{arcs: [{{step: on, when: "{guard}", args: {{why: "{{{{ event.payload.error.message }}}}"}}}}]}}',
        f"step: on, {TASK}",
        start=fails("boom", "it broke"),
    )
    assert (found.status, entered(found, "on")) == ("completed", [{"why": "it broke"}])


def test_an_arc_that_cannot_be_evaluated_fails_the_execution_and_names_its_step() -> None:
    found = run(
        f"step: start, {TASK}, next: {{arcs: [{{step: on, when: '{{{{ start.n / 0 }}}}'}}]}}",
        f"step: on, {TASK}",
        start={"n": 1},
    )
    assert found.error is not None
    assert found.error["message"].startswith("a way out of step `start`: ")
    assert found.error["step"] == "start"


def test_the_result_is_that_of_the_step_end_wherever_it_stands_and_else_of_the_last_to_end() -> None:
    fork = f"step: start, {TASK}, next: {{spec: {{mode: inclusive}}, arcs: [{{step: end}}, {{step: slow}}]}}"
    found = run(fork, f"step: end, {TASK}", f"step: slow, {TASK}", end="the end", slow=after(5, "slow"))
    assert (found.result, found.state.result_step) == ("the end", "end")
    found = run(
        fork.replace("end", "last"), f"step: last, {TASK}", f"step: slow, {TASK}", last=1, slow=after(5, 2)
    )
    assert (found.result, found.state.result_step) == (2, "slow")


ADMIT = "step: start, %s, spec: {policy: {admit: {rules: [%s]}}}"


@pytest.mark.parametrize(
    ("rules", "runs"),
    [
        ("{when: '{{ workload.open }}', then: {allow: true}}, {else: {then: {allow: false}}}", True),
        ("{when: '{{ workload.open }}', then: {allow: false}}, {else: {then: {allow: true}}}", False),
        ("{when: '{{ not workload.open }}', then: {allow: true}}, {else: {then: {allow: false}}}", False),
        ("{when: '{{ not workload.open }}', then: {allow: false}}, {else: {then: {allow: true}}}", True),
        ("{when: '{{ not workload.open }}', then: {allow: true}}", False),
    ],
)
def test_the_first_rule_that_holds_admits_or_not_and_else_decides_what_is_left(
    rules: str, runs: bool
) -> None:
    found = run(ADMIT % (TASK, rules))
    assert (len(found.calls), len(found.named("step.skipped"))) == ((1, 0) if runs else (0, 1))
    assert found.status == "completed"


def test_a_join_of_any_discards_what_comes_later_and_is_ready_for_another_round() -> None:
    both = "next: {spec: {mode: inclusive}, arcs: [{step: slow}, {step: fast}]}"
    found = run(
        f"step: start, {TASK}, {both}",
        f"step: slow, {TASK}, next: {{arcs: [{{step: meet, args: {{who: slow}}}}]}}",
        f"step: fast, {TASK}, next: {{arcs: [{{step: meet, args: {{who: fast}}}}]}}",
        f"step: meet, spec: {{join: {{of: [slow, fast], mode: any}}}}, {TASK}, "
        "next: {arcs: [{step: again, when: '{{ meet < 2 }}'}]}",
        f"step: again, {TASK}, {both}",
        slow=replies(after(5), after(1)),
        fast=replies(after(1), after(3)),
        meet=replies(1, 2),
        again=after(10),
    )
    assert found.status == "completed", found.error
    assert entered(found, "meet") == [{"who": "fast"}, {"who": "slow"}]
    discarded = [told["selected"][0].get("discarded", False) for told in routed(found, "slow")]
    assert discarded == [True, False]


def test_of_tokens_that_are_at_a_join_of_any_together_the_first_enters_and_the_others_are_gone() -> None:
    found = run(
        f"step: start, {TASK}, next: {{spec: {{mode: inclusive}}, arcs: [{{step: a}}, {{step: b}}]}}",
        "step: a, next: {arcs: [{step: meet, args: {who: a}}]}",
        "step: b, next: {arcs: [{step: meet, args: {who: b}}]}",
        f"step: meet, spec: {{join: {{of: [a, b], mode: any}}}}, {TASK}",
    )
    assert found.status == "completed", found.error
    assert len(entered(found, "meet")) == 1


def test_an_active_join_waits_for_a_branch_that_can_still_come() -> None:
    found = run(
        f"step: start, {TASK}, next: {{spec: {{mode: inclusive}}, arcs: [{{step: slow}}, {{step: fast}}]}}",
        f"step: slow, {TASK}, next: {{arcs: [{{step: meet, args: {{slow: 1}}}}]}}",
        f"step: fast, {TASK}, next: {{arcs: [{{step: meet, args: {{fast: 1}}}}]}}",
        f"step: meet, spec: {{join: {{of: [slow, fast], mode: active}}}}, {TASK}",
        slow=after(5),
    )
    assert entered(found, "meet") == [{"slow": 1, "fast": 1}]


def test_an_active_join_waits_for_a_token_that_has_still_to_enter_the_step_it_comes_by() -> None:
    found = run(
        f"step: start, {TASK}, next: {{spec: {{mode: inclusive}}, arcs: [{{step: near}}, {{step: far}}]}}",
        "step: near, next: {arcs: [{step: meet, args: {near: 1}}]}",
        "step: far, next: {arcs: [{step: farther}]}",
        "step: farther, next: {arcs: [{step: meet, args: {farther: 1}}]}",
        f"step: meet, spec: {{join: {{of: [near, farther], mode: active}}}}, {TASK}",
    )
    assert entered(found, "meet") == [{"near": 1, "farther": 1}]


CHOSEN = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - step: start
    tool: {kind: python, code: pass}
    case: [{when: "{{ event.name in ('call.done', 'call.error') }}", then: [{next: [{step: on}]}]}]
  - {step: on, args: {from: "{{ event.name }}", why: "{{ event.data }}"}, tool: {kind: python, code: pass}}
"""


def test_a_step_that_a_case_chose_hears_of_the_error_that_led_there_if_there_was_one() -> None:
    done = play(CHOSEN, tools={"python": 1})
    assert entered(done, "on") == [{"from": "step.done", "why": {}}]
    failed = play(CHOSEN, tools={"start": fails("boom"), "on": 1})
    (args,) = entered(failed, "on")
    assert (args["from"], args["why"]["error"]["kind"]) == ("step.failed", "boom")
