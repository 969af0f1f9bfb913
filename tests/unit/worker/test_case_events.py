# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""What the log tells about cases, sinks and the steps they belong to, and what `event` and `error` show."""

from __future__ import annotations

from noetl.testing import Run, fails, replies
from tests.unit.worker.case_plays import BUSY, played, step

NEXT = """
      - when: "{{ event.name == 'step.enter' }}"
        then: [{set: {ctx: {flag: 1}}}]
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: [{step: x}]}]"""


def types(run: Run, *prefixes: str) -> list[str]:
    return [event.event_type for event in run.events if event.event_type.startswith(prefixes)]


def test_each_evaluation_is_told_with_its_beginning_and_its_match() -> None:
    run = played(step(NEXT))
    assert types(run, "case.", "next.requested") == [
        *("case.started", "case.evaluated"),
        *("case.started", "case.evaluated", "next.requested"),
    ]
    assert [event.payload for event in run.named("case.started")] == [
        {"trigger_event": "step.enter", "case_mode": "exclusive", "eval_mode": "on_entry"},
        {"trigger_event": "call.done", "case_mode": "exclusive", "eval_mode": "on_entry"},
    ]
    assert [event.payload["matched"] for event in run.named("case.evaluated")] == [["case_0"], ["case_1"]]


def test_what_is_set_on_entry_of_a_loop_needs_no_event_of_its_own() -> None:
    run = played(
        """
  - step: start
    loop: {in: [1, 2], iterator: i}
    tool: {kind: python, code: pass, args: {n: "{{ base + i }}"}}
    case: [{when: "{{ event.name == 'step.enter' }}", then: {set: {ctx: {base: 10}}}}]
"""
    )
    assert [call.args["n"] for call in run.calls] == [11, 12]
    entered = [e for e in run.named("case.evaluated") if e.payload["trigger_event"] == "step.enter"]
    assert [event.payload["matched"] for event in entered] == [["case_0"]]


def test_every_evaluation_has_the_same_fields_also_of_a_step_that_is_skipped() -> None:
    run = played(step("""[{when: "{{ event.name == 'call.done' }}", then: [{skip: {}}]}]"""))
    fields = {"matched", "order", "case_mode", "eval_mode", "trigger_event", "case"}
    assert [event.payload.keys() for event in run.named("case.evaluated")] == [fields]
    assert run.state.steps["start"].status == "skipped"


def test_a_step_without_a_case_has_no_events_of_one() -> None:
    run = played("  - step: start\n    tool: {kind: python, code: pass}\n    next: end\n")
    assert types(run, "step.", "task.", "case.", "next.") == [
        *("step.scheduled", "step.started", "task.started", "task.done", "step.done", "next.evaluated")
    ]


def test_the_events_of_a_step_belong_to_its_workflow_run_whoever_wrote_them() -> None:
    run = played(step(NEXT))
    told = [e for e in run.events if e.event_type in ("step.started", "step.done", "step.scheduled")]
    assert {event.source for event in told} == {"server", "worker"}
    assert {event.parent_id for event in told} == {run.state.execution_id}


def test_a_loop_step_tells_that_it_started_with_its_args() -> None:
    run = played(
        "  - step: start\n    args: {a: 1}\n    loop: {in: [1], iterator: i}\n    tool: {kind: python, code: pass}\n"
    )
    assert types(run, "step.", "loop.")[:3] == ["step.scheduled", "step.started", "loop.started"]
    assert run.named("step.started")[0].payload == {"args": {"a": 1}}


def test_a_sink_whose_condition_does_not_hold_is_told_as_skipped() -> None:
    sink = '    sink: {when: "{{ false }}", tool: {kind: http, url: "http://x"}}'
    run = played(step("[]", rest=sink))
    (told,) = run.named("sink.processed")
    assert (told.status, told.payload["outcome"]["status"], run.named("sink.started")) == (
        "skipped",
        "skipped",
        [],
    )
    case = """[{when: "{{ event.name == 'call.done' }}", then: [{sink: {when: "{{ false }}", tool: {kind: http, url: "http://x"}}}, {next: [{step: x}]}]}]"""
    run = played(step(case))
    assert (run.named("sink.processed")[0].status, run.calls[-1].step) == ("skipped", "x")


def test_the_attempts_of_a_sink_are_told_as_a_retry() -> None:
    sink = '    sink: {tool: {kind: http, url: "http://x", retry: 3}}'
    run = played(step("[]", rest=sink), {"start/sink": replies(fails(), {})})
    assert types(run, "sink.", "retry.") == [
        *(
            "sink.started",
            "sink.processed",
            "retry.started",
            "sink.started",
            "sink.processed",
            "retry.processed",
        )
    ]
    assert {event.task_label for event in run.named("retry.started")} == {"sink"}


def test_an_iteration_that_its_case_skips_is_null_and_told_as_skipped() -> None:
    run = played(
        """
  - step: start
    loop: {in: [1, 2, 3], iterator: i}
    tool: {kind: python, code: pass}
    case: [{when: "{{ i == 2 }}", then: {skip: {}}}]
""",
        {"start": {"n": 1}},
    )
    assert run.result == [{"n": 1}, None, {"n": 1}]
    assert [event.status for event in run.named("loop.iteration.done")] == ["success", "skipped", "success"]


# --- what conditions see -----------------------------------------------------------------------------------


def test_the_event_of_a_call_carries_what_came_of_it() -> None:
    case = """
      - when: "{{ event.name == 'call.error' and event.data.error.status == 503 and event.payload.error.message == '503' }}"
        then: [{retry: {max_attempts: 2}}]
      - when: "{{ event.name == 'call.done' and event.payload.response.n == 1 }}"
        then: [{result: {from: "{{ event.data.meta.attempt }}"}}]"""
    run = played(step(case), {"start": replies(BUSY, {"n": 1})})
    assert run.result == 2


def test_the_headers_of_a_refused_request_can_say_how_long_to_wait() -> None:
    refused = fails("http.status", "429", http={"status": 429, "headers": {"retry-after": "7"}})
    case = """
      - when: "{{ event.name == 'call.error' and error.status == 429 }}"
        then: [{retry: {max_attempts: 2, initial_delay: "{{ error.headers['retry-after'] | int }}"}}]"""
    run = played(step(case), {"start": replies(refused, {"n": 1})})
    assert (run.status, run.elapsed) == ("completed", 7)


def test_an_error_is_its_message_in_conditions() -> None:
    tool = "{kind: python, code: pass}"
    retry = """    retry: {max_attempts: 5, retry_when: "{{ 'busy' in error and error != 'gone' and error.startswith('too') }}"}"""
    text = f"  - step: start\n    tool: {tool}\n{retry}\n    next: end\n"
    run = played(text, {"start": replies(fails("x", "too busy"), fails("x", "too busy"), {"n": 1})})
    assert (run.status, len(run.calls)) == ("completed", 3)


# --- workbook tasks ----------------------------------------------------------------------------------------


def test_the_sink_of_a_workbook_task_sees_the_args_of_its_call() -> None:
    head = """workbook:
  - name: t
    tool: {kind: http, url: "http://x/{{ city }}"}
    sink: {tool: {kind: python, code: pass, args: {c: "{{ city }}"}}}
  - name: many
    loop: {in: [1, 2], iterator: i}
    tool: {kind: http, url: "http://x/{{ city }}"}
    sink: {tool: {kind: python, code: pass, args: {c: "{{ city }}", n: "{{ result | length }}"}}}
"""
    steps = """
  - step: start
    tool: {kind: workbook, name: t, args: {city: Oslo}}
    next: [more]
  - step: more
    tool: {kind: workbook, name: many, args: {city: Rome}}
    next: end
"""
    run = played(steps, {"http": {"n": 1}}, head)
    assert run.status == "completed", run.error
    assert [call.args for call in run.calls if call.kind == "python"] == [
        {"c": "Oslo"},
        {"c": "Rome", "n": 2},
    ]


def test_an_iterator_can_be_the_tool_of_a_step_with_a_case() -> None:
    tool = '{kind: iterator, collection: "{{ [1, 2] }}", element: e, task: {kind: python, code: pass, args: {c: "{{ e }}"}}}'
    case = """[{when: "{{ event.name == 'call.done' and result | length == 2 }}", then: {next: [{step: x, args: {r: "{{ result }}"}}]}}]"""
    run = played(step(case, tool=tool))
    assert run.status == "completed", run.error
    assert run.calls[-1].args == {"given": {"r": [{"n": 1}, {"n": 1}]}}
