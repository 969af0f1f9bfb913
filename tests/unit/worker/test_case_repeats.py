"""Calls that a case makes again: by `call`, by `retry`, by a chain that starts over, by a poll."""

from __future__ import annotations

import pytest

from noetl.records.event import Event
from noetl.testing import Run, after, answers, fails, replies
from tests.unit.worker.case_plays import BUSY, labels, played, step

RETRIED = """
      - when: "{{ event.name == 'call.error' }}"
        then: [{retry: {max_attempts: 3, initial_delay: 1, backoff_multiplier: 2}}]"""
ATTEMPT = '{kind: python, code: pass, args: {a: "{{ _attempt }}"}}'
PAGED = """
      - when: "{{ event.name == 'call.done' and result.page < 3 }}"
        then: [{call: {args: {page: "{{ result.page + 1 }}"}}}]"""
PAGING = "{kind: python, code: pass, args: {page: 1}}"


def of_task(run: Run, label: str, *types: str) -> list[Event]:
    return [event for event in run.events if event.task_label == label and event.event_type in types]


# --- one action, many attempts ----------------------------------------------------------------------------


def test_attempts_by_the_retry_action_are_one_action_that_counts_up() -> None:
    run = played(step(RETRIED, tool=ATTEMPT), {"start": replies(fails(), fails(), {"n": 7})})
    assert [(call.attempt, call.args["a"]) for call in run.calls] == [(1, 1), (2, 2), (3, 3)]
    assert len({call.action_id for call in run.calls}) == 1
    assert run.elapsed == 3


def test_the_retry_action_is_told_with_the_attempt_it_leads_to_and_its_end_once() -> None:
    run = played(step(RETRIED), {"start": replies(fails(), fails(), {"n": 7})})
    told = of_task(run, "task_1", "retry.started", "retry.processed")
    assert [(event.event_type, event.attempt) for event in told] == [
        ("retry.started", 2),
        ("retry.started", 3),
        ("retry.processed", 3),
    ]
    assert {event.action_id for event in told} == {run.calls[0].action_id}
    assert [event.payload.get("delay") for event in told] == [1.0, 2.0, None]
    assert (told[-1].payload, told[-1].status) == ({"attempts": 3}, "success")


def test_a_call_that_was_not_repeated_has_no_retry_in_the_log() -> None:
    run = played(step(RETRIED))
    assert run.named("retry.started") == run.named("retry.processed") == []


def test_attempts_go_on_counting_where_a_clause_and_an_action_repeat_one_call() -> None:
    case = """
      - when: "{{ event.name == 'call.error' }}"
        then: [{retry: {max_attempts: 2}}]"""
    run = played(step(case, rest="    retry: 2"), {"start": BUSY})
    assert [call.attempt for call in run.calls] == [1, 2, 3, 4]
    assert len({call.action_id for call in run.calls}) == 1
    assert [event.attempt for event in run.named("retry.processed")] == [4]


def test_another_page_is_another_action() -> None:
    run = played(
        step(PAGED, tool=PAGING), {"start": lambda call: answers({"page": call.args["page"]}), "x": 1, "y": 1}
    )
    assert [call.attempt for call in run.calls] == [1, 1, 1]
    assert len({call.action_id for call in run.calls}) == 3


def test_a_chain_that_starts_over_makes_the_same_actions_again() -> None:
    case = """
      - when: "{{ event.name == 'call.done' }}"
        retry: {scope: chain, max_attempts: 3, initial_delay: 2}
        then:
          - a: {tool: {kind: python, code: pass, args: {n: "{{ _attempt }}"}}}
          - b: {tool: {kind: python, code: pass}}"""
    run = played(step(case), {"start/b": replies(fails(), fails(), {"n": 1})})
    assert [(call.task_label, call.attempt) for call in run.calls][1:] == [
        *(("a", 1), ("b", 1)),
        *(("a", 2), ("b", 2)),
        *(("a", 3), ("b", 3)),
    ]
    assert [call.args["n"] for call in run.calls if call.task_label == "a"] == [1, 2, 3]
    assert len({call.action_id for call in run.calls}) == 3
    started = run.named("retry.started")
    assert [(event.task_label, event.attempt, event.payload["scope"]) for event in started] == [
        ("b", 2, "chain"),
        ("b", 3, "chain"),
    ]
    (ended,) = run.named("retry.processed")
    assert ended.payload == {"scope": "chain", "branch": "case_0", "attempts": 3}


def test_a_sink_of_a_chain_that_starts_over_is_the_same_action_too() -> None:
    case = """
      - when: "{{ event.name == 'call.done' }}"
        retry: {scope: chain, max_attempts: 2}
        then:
          - sink: {tool: {kind: http, url: "http://store"}}
          - b: {tool: {kind: python, code: pass}}"""
    run = played(step(case), {"http": {}, "start/b": replies(fails(), {"n": 1})})
    sinks = [call for call in run.calls if call.task_label == "sink"]
    assert [call.attempt for call in sinks] == [1, 2]
    assert len({call.action_id for call in sinks}) == 1


# --- pages ------------------------------------------------------------------------------------------------


def test_events_of_a_pagination_tell_its_page() -> None:
    run = played(step(PAGED, tool=PAGING), {"start": lambda call: answers({"page": call.args["page"]})})
    assert [event.page for event in run.named("task.done")] == [0, 1, 2]
    assert [event.page for event in run.named("case.evaluated")] == [0, 1, 2]
    assert {event.page for event in run.events if event.entity_type in ("step", "workflow")} == {None}


def test_a_case_without_the_action_call_has_no_pages() -> None:
    run = played(step(RETRIED), {"start": replies(fails(), {"n": 1})})
    assert {event.page for event in run.events} == {None}


# --- several branches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("{retry: {max_attempts: 2, initial_delay: 5}}", replies(fails(), {"n": 1})),
        ("{call: {}}", replies(fails(), {"n": 1})),
    ],
)
def test_a_call_that_one_branch_asks_for_waits_for_the_others(action: str, answer: Run) -> None:
    case = f"""
      - when: "{{{{ event.name == 'call.error' }}}}"
        then: [{action}, {{never: {{tool: {{kind: python, code: pass}}}}}}]
      - when: "{{{{ event.name == 'call.error' }}}}"
        then: [{{log: {{tool: {{kind: http, url: "http://x"}}}}}}]"""
    run = played(step(case, spec="{case_mode: inclusive}"), {"start": answer, "start/log": {}})
    assert labels(run) == ["task_1", "log", "task_1"]
    assert run.status == "completed"
    assert run.named("case.branch.suppressed") == []


def test_of_two_branches_that_ask_for_the_call_the_first_counts_and_the_other_is_told() -> None:
    case = """
      - when: "{{ event.name == 'call.done' and result.page < 3 }}"
        then: [{call: {args: {page: 3}}}]
      - when: "{{ event.name == 'call.done' and result.page < 3 }}"
        then: [{call: {args: {page: 9}}}]"""
    run = played(
        step(case, spec="{case_mode: inclusive}", tool=PAGING),
        {"start": lambda call: answers({"page": call.args["page"]})},
    )
    assert [call.args["page"] for call in run.calls] == [1, 3]
    (told,) = run.named("case.branch.suppressed")
    assert told.payload == {"branch": "case_1", "winner_branch": "case_0", "reason": "call"}


def test_a_way_out_that_ends_the_step_leaves_out_a_call_that_was_asked_for() -> None:
    case = """
      - when: "{{ event.name == 'call.done' }}"
        then: [{call: {}}]
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: [{step: x}]}]"""
    run = played(step(case, spec="{case_mode: inclusive}"))
    assert [call.step for call in run.calls] == ["start", "x"]


@pytest.mark.parametrize(
    ("action", "reason", "status"),
    [("skip: {}", "skip", "completed"), ("fail: {message: no}", "fail", "failed")],
)
def test_branches_that_an_end_of_the_step_leaves_out_are_told(action: str, reason: str, status: str) -> None:
    case = f"""
      - when: "{{{{ event.name == 'call.done' }}}}"
        then: [{{{action}}}]
      - when: "{{{{ event.name == 'call.done' }}}}"
        then: [{{log: {{tool: {{kind: http, url: "http://x"}}}}}}]"""
    run = played(step(case, spec="{case_mode: inclusive}"))
    assert (run.status, labels(run)) == (status, ["task_1"])
    (told,) = run.named("case.branch.suppressed")
    assert told.payload == {"branch": "case_1", "winner_branch": "case_0", "reason": reason}


def test_the_routing_tells_which_branches_it_left_out() -> None:
    case = """
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: [{step: x}]}]
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: [{step: y}]}]"""
    run = played(step(case, spec="{case_mode: inclusive}"))
    routed = run.named("next.evaluated")[0].payload
    assert {
        name: routed[name] for name in ("policy", "winner_branch", "suppressed_branches", "routing_committed")
    } == {
        "policy": "end_step",
        "winner_branch": "case_0",
        "suppressed_branches": ["case_1"],
        "routing_committed": True,
    }


# --- where there is no call to make -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "action"),
    [
        ("step.exit", "call: {}"),
        ("step.exit", "retry: {max_attempts: 4}"),
        ("step.enter", "retry: {max_attempts: 4}"),
    ],
)
def test_a_call_where_none_can_be_made_fails_the_step(moment: str, action: str) -> None:
    # A condition that does not plainly name one moment passes the checks of the playbook.
    case = f"""
      - when: "{{{{ event.name in ['{moment}'] }}}}"
        then: [{{{action}}}]"""
    run = played(step(case))
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["kind"], moment in run.error["message"]) == ("case.no_call", True)


def test_a_call_on_entry_changes_the_first_call() -> None:
    case = """
      - when: "{{ event.name == 'step.enter' }}"
        then: [{call: {args: {page: 5}}}]"""
    run = played(step(case, tool=PAGING))
    assert [call.args["page"] for call in run.calls] == [5]
    assert run.named("task.done")[0].page == 0


# --- failures after a way out was chosen ------------------------------------------------------------------


def test_a_way_out_does_not_take_the_failure_of_a_task_that_came_after_it() -> None:
    case = """
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: [{step: x}]}]
      - when: "{{ event.name == 'call.done' }}"
        then: [{late: {tool: {kind: http, url: "http://x"}}}]"""
    run = played(
        step(case, spec="{case_mode: inclusive, next_policy: break_chain}"), {"start/late": fails("late")}
    )
    assert run.status == "failed"
    assert [call.step for call in run.calls] == ["start", "start"]


def test_a_way_out_does_not_take_the_failure_of_the_steps_sink() -> None:
    case = """
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: [{step: x}]}]"""
    run = played(
        step(case, rest='    sink: {tool: {kind: http, url: "http://x"}}'), {"start/sink": fails("late")}
    )
    assert (run.status, [call.step for call in run.calls]) == ("failed", ["start", "start"])


def test_a_way_out_takes_the_failure_of_the_call_it_was_chosen_for() -> None:
    case = """
      - when: "{{ event.name == 'call.error' }}"
        then: [{next: [{step: x}]}]"""
    run = played(step(case), {"start": BUSY})
    assert (run.status, run.state.steps["start"].status) == ("completed", "failed")


# --- polls ------------------------------------------------------------------------------------------------


def polling(call: str, poll: str) -> str:
    return f"""
  - step: start
    tool: {{kind: noop}}
    case:
      - when: "{{{{ event.name == 'call.done' }}}}"
        then: [{{a: {{tool: {call}, poll: {poll}}}}}]
"""


def test_no_look_begins_when_the_time_of_a_poll_is_over() -> None:
    poll = '{until: "{{ false }}", interval: 5s, max_attempts: 60, deadline: 12s}'
    run = played(polling("{kind: python, code: pass}", poll))
    assert run.error is not None
    assert (run.error["kind"], run.elapsed, len(run.calls)) == ("poll.exhausted", 10, 3)


def test_a_look_is_stopped_when_the_time_of_a_poll_is_over() -> None:
    poll = '{until: "{{ false }}", interval: 5s, deadline: 12s}'
    run = played(polling("{kind: http, url: 'http://x'}", poll), {"start/a": after(30, {"n": 1})})
    assert run.error is not None
    assert (run.error["kind"], run.elapsed, len(run.calls)) == ("poll.exhausted", 12, 1)


def test_a_poll_may_stand_in_the_steps_own_tool() -> None:
    tool = '{kind: python, code: pass, poll: {until: "{{ result.n == 3 }}", interval: 2}}'
    run = played(
        f"  - step: start\n    tool: {tool}\n    next: end\n",
        {"start": replies({"n": 1}, {"n": 2}, {"n": 3})},
    )
    assert (run.result, run.elapsed) == ({"n": 3}, 4)
    case = """
      - when: "{{ event.name == 'call.done' }}"
        then: [{result: {from: "{{ result.n * 10 }}"}}]"""
    run = played(step(case, tool=tool), {"start": replies({"n": 1}, {"n": 2}, {"n": 3})})
    assert (run.result, run.elapsed) == (30, 4)
