# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""Steps that wait for events: signals, timers, the ends of other steps, and what ends the wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from noetl.testing import Answer, At, FakeClock, Run, StalledError, after, fails, play

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: tests/p}\nworkflow:\n"

APPROVAL = """
  - step: start
    spec: {eval_mode: on_event, case_mode: exclusive, timeout: 1h}
    case:
      - when: "{{ event.name == 'message.received' and event.data.type == 'approval' }}"
        then: [{next: {to: [{step: approved, args: {by: "{{ event.payload.by }}"}}]}}]
      - when: "{{ event.name == 'timer.fired' and event.data.timer_id == 'timeout' }}"
        then: [{next: {to: [{step: late}]}}]
  - step: approved
    tool: {kind: python, code: pass, args: {by: "{{ args.by }}"}}
  - step: late
    tool: {kind: python, code: pass}
"""


def sends(name: str, data: object = None) -> At:
    async def send(engine: Any, execution_id: str) -> None:
        await engine.control.signal(execution_id, name, data)

    return send


def played(
    steps: str, tools: Mapping[str, Answer] | None = None, at: Mapping[float, At] | None = None
) -> Run:
    return play(HEAD + steps, tools={"python": {"n": 1}, **(tools or {})}, at=at)


def test_a_signal_that_an_entry_wants_ends_the_wait() -> None:
    run = played(APPROVAL, at={30: sends("message.received", {"type": "approval", "by": "ann"})})
    assert [call.args for call in run.calls] == [{"by": "ann"}]
    assert run.elapsed == 30


def test_signals_that_no_entry_wants_are_passed_over() -> None:
    run = played(
        APPROVAL,
        at={
            10: sends("message.received", {"type": "question"}),
            20: sends("other"),
            40: sends("message.received", {"type": "approval", "by": "bob"}),
        },
    )
    assert [call.args for call in run.calls] == [{"by": "bob"}]
    assert run.elapsed == 40


def test_the_timeout_is_an_event_like_any_other() -> None:
    run = played(APPROVAL)
    assert [call.step for call in run.calls] == ["late"]
    assert run.elapsed == 3600
    assert [event.payload["timer_id"] for event in run.named("timer.fired")] == ["timeout"]


def test_signals_from_before_the_step_are_kept_for_it() -> None:
    early = APPROVAL.replace("- step: start\n", "- step: wait\n")
    run = played(
        "  - {step: start, tool: {kind: python, code: pass}, next: [{step: wait}]}\n" + early,
        {"start": after(60, 1)},
        at={5: sends("message.received", {"type": "approval", "by": "cat"})},
    )
    assert run.elapsed == 60
    assert run.calls[-1].args == {"by": "cat"}


def test_a_signal_that_was_taken_is_not_seen_again() -> None:
    run = played(
        """
  - step: start
    spec: {eval_mode: on_event}
    case: [{when: "{{ event.name == 'go' }}", then: [{next: {to: [{step: second}]}}]}]
  - step: second
    spec: {eval_mode: on_event, timeout: 5s}
    case:
      - {when: "{{ event.name == 'go' }}", then: [{result: {from: event.data}}]}
      - {when: "{{ event.name == 'timer.fired' }}", then: [{result: {from: "{{ 'nothing' }}"}}]}
""",
        at={1: sends("go", 1)},
    )
    assert run.result == "nothing"


def test_every_entry_is_asked_at_every_event_and_several_can_react() -> None:
    run = played(
        """
  - step: start
    spec: {eval_mode: on_event, case_mode: inclusive, timers: {one: 1s, two: 2s}}
    case:
      - when: "{{ event.name == 'timer.fired' }}"
        then: [{collect: {from: event.data.timer_id, into: fired}}]
      - when: "{{ event.name == 'timer.fired' and ctx.fired | default([]) | length == 1 }}"
        then: [{tell: {tool: {kind: python, code: pass}}}, {result: {from: ctx.fired}}]
"""
    )
    assert (run.status, run.result) == ("completed", ["one", "two"])
    assert run.elapsed == 2


def test_the_ends_of_other_steps_are_events() -> None:
    run = played(
        """
  - {step: start, next: [{step: watch}, {step: good}, {step: bad}]}
  - {step: good, tool: {kind: python, code: pass}}
  - {step: bad, tool: {kind: python, code: pass}, case: [{when: "{{ event.name == 'call.error' }}", then: [{next: [{step: end}]}]}]}
  - step: watch
    spec: {eval_mode: on_event}
    case:
      - when: "{{ event.name == 'step.done' and event.step == 'good' }}"
        then: [{set: {ctx: {good: true}}}]
      - when: "{{ event.name == 'step.failed' and event.step == 'bad' }}"
        then: [{result: {from: "{{ [ctx.good, event.data.error.kind] }}"}}]
  - {step: end}
""",
        {"good": after(1, 1), "bad": after(2, fails("broken"))},
    )
    assert run.status == "completed", run.error
    assert run.state.steps["watch"].result == [True, "broken"]


def test_a_waiting_step_may_call_its_tool_first_and_again_on_an_event() -> None:
    run = played(
        """
  - step: start
    spec: {eval_mode: on_event}
    tool: {kind: python, code: pass, args: {v: 1}}
    case:
      - when: "{{ event.name == 'again' }}"
        then: [{call: {args: {v: "{{ event.data }}"}}}]
      - when: "{{ event.name == 'call.done' and result.v == 7 }}"
        then: [{result: {from: result.v}}]
""",
        {"start": lambda call: {"v": call.args["v"]}},
        at={3: sends("again", 7)},
    )
    assert (run.status, run.result) == ("completed", 7)
    assert len(run.calls) == 2


def test_fail_and_skip_end_the_wait() -> None:
    steps = """
  - step: start
    spec: {eval_mode: on_event}
    case:
      - {when: "{{ event.name == 'no' }}", then: [{fail: {message: "{{ event.data.why }}"}}]}
      - {when: "{{ event.name == 'pass' }}", then: [{skip: {}}]}
    next: [{step: x}]
  - {step: x, tool: {kind: python, code: pass}}
"""
    run = played(steps, at={1: sends("no", {"why": "too dear"})})
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["message"] == "too dear"
    run = played(steps, at={1: sends("pass")})
    assert run.state.steps["start"].status == "skipped"
    assert run.calls_of("x")


def test_a_deadline_ends_the_wait_as_a_failure() -> None:
    run = played(
        """
  - step: start
    spec: {eval_mode: on_event, deadline: 20s}
    case: [{when: "{{ event.name == 'never' }}", then: [{result: {from: "{{ 1 }}"}}]}]
"""
    )
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["kind"] == "deadline"
    assert run.elapsed == 20


def test_without_any_event_the_step_waits_for_ever() -> None:
    with pytest.raises(StalledError):
        play(
            HEAD
            + "  - {step: start, spec: {eval_mode: on_event}, case: [{when: \"{{ event.name == 'x' }}\", then: [{skip: {}}]}]}\n",
            clock=FakeClock(patience=0.05),
        )


def test_a_large_signal_can_be_read() -> None:
    run = played(
        """
  - step: start
    spec: {eval_mode: on_event}
    case: [{when: "{{ event.name == 'big' and event.data.rows | length == 900 }}", then: [{result: {from: "{{ event.data.rows[899] | length }}"}}]}]
""",
        at={1: sends("big", {"rows": ["r" * 100] * 900})},
    )
    assert (run.status, run.result) == ("completed", 100)


def test_a_waiting_step_that_ends_well_is_asked_about_its_exit_once() -> None:
    steps = """
  - step: start
    spec: {eval_mode: on_event}
    vars: {v: "{{ result }}"}
    case:
      - when: "{{ event.name == 'step.exit' }}"
        then: [{left: {tool: {kind: python, code: pass}}}]
      - when: "{{ event.name == 'go' }}"
        then: [{result: {from: "{{ 5 }}"}}, {next: [{step: x}]}]
  - step: x
    tool: {kind: python, code: pass, args: {v: "{{ vars.v }}"}}
"""
    run = played(steps, at={3: sends("go")})
    assert [call.task_label for call in run.calls] == ["left", "task_1"]
    assert run.calls[-1].args == {"v": 5}


@pytest.mark.parametrize("action", ["fail: {message: no}", "skip: {}"])
def test_a_waiting_step_that_does_not_end_well_has_no_exit(action: str) -> None:
    steps = f"""
  - step: start
    spec: {{eval_mode: on_event}}
    case:
      - when: "{{{{ event.name == 'step.exit' }}}}"
        then: [{{left: {{tool: {{kind: python, code: pass}}}}}}]
      - when: "{{{{ event.name == 'go' }}}}"
        then: [{{{action}}}]
"""
    assert not played(steps, at={3: sends("go")}).calls


def test_the_timers_of_a_waiting_step_are_told_once_when_they_are_set() -> None:
    run = played(APPROVAL, at={10: sends("other"), 20: sends("another")})
    (told,) = run.named("timer.scheduled")
    assert told.payload["timer_id"] == "timeout"
    (fired,) = run.named("timer.fired")
    assert told.payload["due"] == fired.timestamp


def test_a_sink_that_two_events_lead_to_stores_twice() -> None:
    steps = """
  - step: start
    spec: {eval_mode: on_event, timeout: 1m}
    case:
      - when: "{{ event.name == 'news' }}"
        then: [{sink: {tool: {kind: python, code: pass, args: {n: "{{ event.data }}"}}}}]
      - when: "{{ event.name == 'timer.fired' }}"
        then: [{result: {from: "{{ 'over' }}"}}]
"""
    run = played(steps, at={1: sends("news", 1), 2: sends("news", 2)})
    assert [call.args for call in run.calls] == [{"n": 1}, {"n": 2}]
    assert len({call.action_id for call in run.calls}) == 2
