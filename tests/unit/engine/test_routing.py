"""Arcs, joins, admission and the end of an execution, on whole small playbooks with scripted tools."""

from __future__ import annotations

from typing import Any

from noetl.testing import Run, after, fails, play

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"
FORK = """
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: slow}, {step: fast}]}
  - step: slow
    tool: {kind: python, code: pass}
    next: {arcs: [{step: meet, args: {who: slow, slow: 1}}]}
  - step: fast
    tool: {kind: python, code: pass}
    next: {arcs: [{step: meet, args: {who: fast, fast: 2}}]}
"""


def run(workflow: str, **tools: Any) -> Run:
    return play(HEAD + "workflow:" + workflow, tools=tools)


def started(found: Run, step: str) -> int:
    return len([event for event in found.named("step.scheduled") if event.step == step])


def forked(mode: str) -> Run:
    meet = f"""
  - step: meet
    spec: {{join: {{of: [slow, fast], mode: {mode}}}}}
    tool: {{kind: python, code: pass, args: {{who: "{{{{ args.who }}}}"}}}}
"""
    return run(FORK + meet, slow=after(5), fast=None, meet=lambda call: call.args["who"])


def test_a_join_of_all_waits_for_each_and_merges_in_the_order_named() -> None:
    found = forked("all")
    assert (found.status, found.result, started(found, "meet")) == ("completed", "fast", 1)
    assert found.elapsed == 5


def test_a_join_of_any_takes_the_first_and_discards_the_rest() -> None:
    found = forked("any")
    assert (found.state.steps["meet"].result, started(found, "meet")) == ("fast", 1)


def test_an_active_join_does_not_wait_for_a_branch_that_went_elsewhere() -> None:
    found = run(
        """
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: one}, {step: two}]}
  - step: one
    tool: {kind: python, code: pass}
    next: {arcs: [{step: meet}]}
  - step: two
    tool: {kind: python, code: pass}
    next: {arcs: [{step: meet, when: "{{ two == 'never' }}"}, {step: aside}]}
  - step: aside
    tool: {kind: noop}
  - step: meet
    spec: {join: {of: [one, two], mode: active}}
    tool: {kind: python, code: pass}
""",
        one=1,
        two=after(3, "elsewhere"),
        meet="met",
    )
    assert (found.status, started(found, "meet")) == ("completed", 1)


def test_a_join_that_can_never_fire_says_what_it_waited_for() -> None:
    found = run(
        """
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: one}]}
  - step: one
    tool: {kind: noop}
    next: {arcs: [{step: meet}]}
  - step: two
    tool: {kind: noop}
    next: {arcs: [{step: meet}]}
  - step: meet
    spec: {join: {of: [one, two]}}
    tool: {kind: noop}
"""
    )
    assert found.status == "failed"
    assert found.error is not None
    assert found.error["kind"] == "join.stuck"
    assert "`two`" in found.error["message"]


def test_an_exclusive_step_takes_the_first_arc_that_holds() -> None:
    found = run(
        """
  - step: start
    tool: {kind: python, code: pass}
    next: {arcs: [{step: low, when: "{{ start < 3 }}"}, {step: high}]}
  - step: low
    tool: {kind: noop}
  - step: high
    tool: {kind: noop}
""",
        start=5,
    )
    assert (started(found, "low"), started(found, "high")) == (0, 1)


FAILING = """
  - step: start
    tool: {kind: python, code: pass}
    next: {arcs: [%s{step: on}]}
  - step: on
    tool: {kind: noop}
"""


def test_a_failure_takes_no_arc_without_a_guard() -> None:
    found = run(FAILING % "", start=fails("boom"))
    assert found.status == "failed"
    assert found.error is not None
    assert found.error["kind"] == "boom"
    assert started(found, "on") == 0


def test_a_failure_that_an_arc_takes_is_handled() -> None:
    found = run(FAILING % "{step: on, when: \"{{ event.name == 'step.failed' }}\"}, ", start=fails("boom"))
    assert found.status == "completed"
    assert found.state.steps["start"].status == "failed"


def test_a_failure_revokes_what_is_under_way() -> None:
    found = run(FORK + "\n  - step: meet\n    tool: {kind: noop}\n", slow=after(60, 1), fast=fails("boom"))
    assert found.status == "failed"
    assert found.state.steps["slow"].status == "cancelled"
    assert found.elapsed == 0


def test_a_token_that_is_not_admitted_is_consumed() -> None:
    found = run(
        """
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: guarded}]}
  - step: guarded
    spec:
      policy:
        admit:
          rules:
            - {when: "{{ workload.open is defined }}", then: {allow: true}}
            - {else: {then: {allow: false}}}
    tool: {kind: noop}
"""
    )
    assert found.status == "completed"
    assert [event.step for event in found.named("step.skipped")] == ["guarded"]


def test_steps_that_lead_to_each_other_without_a_tool_are_stopped() -> None:
    found = run("\n  - step: start\n    next: {arcs: [{step: start}]}\n")
    assert found.error is not None
    assert found.error["kind"] == "workflow.runaway"


def test_the_last_two_events_say_that_it_is_over() -> None:
    found = run("\n  - step: start\n    tool: {kind: noop}\n")
    assert [event.event_type for event in found.events[-2:]] == ["workflow.finished", "playbook.processed"]
