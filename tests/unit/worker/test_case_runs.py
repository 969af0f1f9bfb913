# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""What the case of a step does: its moments, its branches, its actions, and how they end the step."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.testing import Run, answers, replies
from tests.unit.worker.case_plays import BUSY, labels, played, step

# --- moments -----------------------------------------------------------------------------------------------


def test_entries_that_name_the_event_are_asked_at_every_moment_and_others_after_the_call() -> None:
    run = played(
        step(
            """
      - when: "{{ event.name == 'step.enter' }}"
        then: [{entered: {tool: {kind: python, code: pass}}}]
      - when: "{{ event.name == 'step.exit' }}"
        then: [{left: {tool: {kind: python, code: pass}}}]
      - when: "{{ true }}"
        then: [{called: {tool: {kind: python, code: pass}}}]"""
        )
    )
    assert [label for label in labels(run) if label in ("entered", "called", "left")] == [
        "entered",
        "called",
        "left",
    ]
    moments = [event.payload["trigger_event"] for event in run.named("case.evaluated")]
    assert moments == ["step.enter", "call.done", "step.exit"]


def test_a_failed_call_is_presented_as_call_error_before_call_done() -> None:
    case = """
      - when: "{{ event.name == 'call.done' }}"
        then: [{result: {from: "{{ 'done' }}"}}]
      - when: "{{ event.name == 'call.error' }}"
        then: [{result: {from: "{{ 'error ' ~ error ~ ' ' ~ error.status ~ ' ' ~ error.body.why }}"}}]"""
    run = played(step(case), {"start": BUSY})
    assert run.status == "completed"
    assert run.result == "error 503 503 busy"


def test_a_failed_call_that_no_entry_takes_as_an_error_is_presented_as_call_done() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' and error is defined and response is not defined }}"
        then: [{result: {from: error.kind}}]"""),
        {"start": BUSY},
    )
    assert (run.status, run.result) == ("completed", "http.status")


def test_entries_without_event_belong_to_the_second_pass_and_else_comes_last() -> None:
    case = """
      - when: "{{ error is not defined }}"
        then: [{result: {from: "{{ 'good' }}"}}]
      - else: {then: [{result: {from: "{{ 'otherwise' }}"}}]}"""
    assert played(step(case)).result == "good"
    assert played(step(case), {"start": BUSY}).result == "otherwise"


def test_a_failed_call_stays_a_failure_when_its_entry_only_goes_on() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.error' }}"
        then: [{set: {ctx: {a: 1}}}, {next: {to: [{step: x, args: {why: "{{ error.kind }}"}}]}}]"""),
        {"start": BUSY},
    )
    assert run.state.steps["start"].status == "failed"
    assert run.status == "completed"
    assert run.calls_of("x")[0].args == {"given": {"why": "http.status"}}


def test_a_step_that_failed_has_no_exit() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'step.exit' }}"
        then: [{left: {tool: {kind: python, code: pass}}}]"""),
        {"start/left": 1, "start": BUSY},
    )
    assert run.status == "failed"
    assert "left" not in labels(run)


def test_variables_are_set_before_the_exit_and_seen_there() -> None:
    run = played(
        step(
            """
      - when: "{{ event.name == 'step.exit' }}"
        then: [{result: {from: "{{ vars.kept + 1 }}"}}]""",
            rest='    vars: {kept: "{{ result.n }}"}',
        )
    )
    assert (run.status, run.result, run.state.vars) == ("completed", 2, {"kept": 1})
    assert len(run.named("vars.set")) == 1


def test_a_step_without_a_tool_decides_at_its_exit() -> None:
    run = played("""
  - step: start
    case:
      - when: "{{ workload.n == 2 }}"
        then: [{next: {to: [{step: y}]}}]
      - else: {then: [{next: {to: [{step: x}]}}]}
  - step: x
    tool: {kind: python, code: pass}
  - step: y
    tool: {kind: python, code: pass}
""")
    assert [call.step for call in run.calls] == ["x"]


def test_a_guard_that_errs_fails_the_step_and_names_itself() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' and 1 / 0 > 1 }}"
        then: [{result: {from: "{{ 1 }}"}}]""")
    )
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["step"] == "start"
    assert not run.error["kind"].startswith("worker.")


# --- which branches ------------------------------------------------------------------------------------------


def three_branches(spec: str) -> Run:
    return played(
        step(
            """
      - when: "{{ event.name == 'call.done' }}"
        priority: 1
        then: [{a: {tool: {kind: python, code: pass}}}]
      - when: "{{ event.name == 'call.done' }}"
        priority: 5
        then: [{b: {tool: {kind: python, code: pass}}}]
      - when: "{{ event.name == 'call.done' }}"
        priority: 5
        then: [{c: {tool: {kind: python, code: pass}}}]""",
            spec=spec,
        )
    )


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ("{}", ["a"]),
        ("{case_mode: inclusive}", ["a", "b", "c"]),
        ("{branch_order: priority}", ["b"]),
        ("{case_mode: inclusive, branch_order: priority}", ["b", "c", "a"]),
    ],
)
def test_mode_and_order_say_which_branches_run_and_when(spec: str, chosen: list[str]) -> None:
    run = three_branches(spec)
    assert labels(run)[1:] == chosen


def test_an_action_may_bear_any_name_but_those_of_actions() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' }}"
        then:
          - alarm: {tool: {kind: python, code: pass}}
          - result: {from: "{{ alarm.result.n }}"}"""),
        {"start/alarm": {"n": 7}},
    )
    assert run.result == 7


# --- next ------------------------------------------------------------------------------------------------------


def two_ways(policy: str, more: str = "") -> Run:
    return played(
        step(
            f"""
      - when: "{{{{ event.name == 'call.done' }}}}"
        then:
          - next: {{to: [{{step: x}}]}}
          - after_a: {{tool: {{kind: python, code: pass}}}}
      - when: "{{{{ event.name == 'call.done' }}}}"
        then:
          - b: {{tool: {{kind: python, code: pass}}}}
          - next: {{to: [{{step: y}}]{more}}}""",
            spec=f"{{case_mode: inclusive, next_policy: {policy}}}",
        )
    )


def test_end_step_stops_the_chain_and_suppresses_the_other_branches() -> None:
    run = two_ways("end_step")
    assert labels(run)[1:] == ["task_1"] or [call.step for call in run.calls] == ["start", "x"]
    suppressed = run.named("case.branch.suppressed")
    assert [event.payload["branch"] for event in suppressed] == ["case_1"]


def test_break_chain_stops_only_the_chain_and_the_first_way_out_wins() -> None:
    run = two_ways("break_chain")
    assert "after_a" not in labels(run)
    assert "b" in labels(run)
    assert [call.step for call in run.calls][-1] == "x"
    assert not run.calls_of("y")


def test_defer_goes_on_with_the_chain() -> None:
    run = two_ways("defer")
    assert "after_a" in labels(run)
    assert "b" in labels(run)
    assert run.calls_of("x")
    assert not run.calls_of("y")


def test_of_several_ways_out_the_one_of_highest_priority_wins() -> None:
    run = two_ways("defer", more=", priority: 2")
    assert run.calls_of("y")
    assert not run.calls_of("x")


def test_a_way_out_may_have_a_policy_of_its_own() -> None:
    run = two_ways("defer", more=", policy: end_step, priority: 1")
    assert run.calls_of("y")


def test_several_targets_are_a_fork() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: {to: [{step: x, args: {a: 1}}, {step: y}]}}]""")
    )
    assert {call.step for call in run.calls} == {"start", "x", "y"}


def test_a_delayed_way_out_waits() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: {to: [{step: x}], spec: {delay: 90s}}}]""")
    )
    assert run.status == "completed"
    assert 90 <= run.elapsed < 91


def test_a_target_may_be_computed() -> None:
    case = """
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: {to: [{step: "{{ 'x' if result.n == 1 else 'nowhere' }}"}]}}]"""
    assert played(step(case)).calls_of("x")
    run = played(step(case), {"start": {"n": 2}})
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["kind"], run.error["step"]) == ("next.unknown_step", "start")


def test_without_a_way_out_of_its_own_a_case_leaves_by_the_steps_next() -> None:
    run = played(
        step(
            """
      - when: "{{ event.name == 'call.done' and false }}"
        then: [{next: {to: [{step: x}]}}]""",
            rest="    next: [{step: y}]",
        )
    )
    assert run.calls_of("y")
    assert not run.calls_of("x")


# --- actions -----------------------------------------------------------------------------------------------------


def test_retry_asks_again_up_to_its_attempts_and_waits_longer_each_time() -> None:
    case = """
      - when: "{{ event.name == 'call.error' }}"
        then:
          - retry: {max_attempts: 4, backoff: {type: exponential, delay_seconds: 10, max_delay_seconds: 15}}"""
    run = played(step(case), {"start": replies(BUSY, BUSY, BUSY, {"n": 4})})
    assert (run.status, run.result) == ("completed", {"n": 4})
    assert run.elapsed == 10 + 15 + 15
    run = played(step(case), {"start": BUSY})
    assert run.status == "failed"
    assert len(run.calls) == 4


def test_call_merges_its_overrides_deeply_and_collect_gathers_pages() -> None:
    def page(call: Any) -> Any:
        number = call.config["params"]["page"]
        assert call.config["params"]["size"] == 2
        return answers({"items": [number * 10, number * 10 + 1], "next": number + 1 if number < 3 else None})

    run = played(
        step(
            """
      - when: "{{ event.name == 'call.done' and response.next }}"
        then:
          - collect: {from: response.items, into: rows, mode: extend}
          - collect: {from: response.items, into: pages}
          - call: {params: {page: "{{ response.next }}"}}
      - when: "{{ event.name == 'call.done' }}"
        then:
          collect: {from: response.items, into: rows, mode: extend}
          result: {from: ctx.rows}""",
            tool='{kind: http, method: GET, url: "http://x.example", params: {page: 1, size: 2}}',
        ),
        {"http": page},
    )
    assert (run.status, run.result) == ("completed", [10, 11, 20, 21, 30, 31])
    assert len({call.action_id for call in run.calls}) == 3


def test_set_lives_with_the_step_run() -> None:
    run = played(
        step(
            """
      - when: "{{ event.name == 'call.done' }}"
        then: [{set: {ctx: {a: 1, b: 2}}}, {result: {from: "{{ ctx.a + ctx.b }}"}}]""",
            rest="    next: [{step: y}]",
        )
    )
    assert run.state.steps["start"].result == 3
    assert run.state.ctx == {}


def test_fail_fails_the_step_with_its_message() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' }}"
        then: [{fail: {message: "there are {{ result.n }}"}}]""")
    )
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["message"] == "there are 1"


def test_skip_leaves_the_step_skipped_and_takes_its_structural_way_out() -> None:
    for moment, calls in (("step.enter", 0), ("call.done", 1)):
        run = played(
            step(
                f"""
      - when: "{{{{ event.name == '{moment}' }}}}"
        then: [{{skip: {{}}}}]""",
                rest='    next: [{step: y}]\n    vars: {kept: "{{ result }}"}\n    sink: {tool: {kind: python, code: pass}}',
            )
        )
        assert run.state.steps["start"].status == "skipped"
        assert len(run.calls_of("start")) == calls
        assert run.calls_of("y")
        assert run.state.vars == {}


def test_then_as_a_mapping_runs_in_a_fixed_order() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' }}"
        then:
          next: [{step: x, args: {r: "{{ result }}"}}]
          tell: {tool: {kind: python, code: pass, args: {a: "{{ ctx.a }}"}}}
          sink: {tool: {kind: python, code: pass, args: {r: "{{ result }}"}}}
          result: {from: "{{ ctx.a + 1 }}"}
          set: {ctx: {a: 1}}""")
    )
    assert [call.args for call in run.calls[1:]] == [{"r": 2}, {"a": 1}, {"given": {"r": 2}}]


def test_a_named_task_that_fails_ends_its_chain_and_fails_the_step() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' }}"
        then:
          - bad: {tool: {kind: python, code: pass}}
          - never: {tool: {kind: python, code: pass}}"""),
        {"start/bad": BUSY},
    )
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["task"] == "bad"
    assert "never" not in labels(run)


def test_a_chain_is_tried_again_as_a_whole() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' }}"
        retry: {scope: chain, max_attempts: 3, backoff: {type: linear, delay_seconds: 10}}
        then:
          - one: {tool: {kind: python, code: pass}}
          - two: {tool: {kind: python, code: pass}}"""),
        {"start/two": replies(BUSY, BUSY, 5)},
    )
    assert run.status == "completed"
    assert labels(run)[1:] == ["one", "two"] * 3
    assert run.elapsed == 10 + 20


def test_a_call_after_a_deferred_way_out_is_made() -> None:
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' and result.n == 1 }}"
        then: [{next: {to: [{step: x}], policy: defer}}, {call: {args: {again: true}}}]"""),
        {"start": replies({"n": 1}, {"n": 2})},
    )
    assert [call.step for call in run.calls] == ["start", "start", "x"]


def test_conditions_of_a_retry_can_look_into_a_large_answer() -> None:
    big = {"rows": ["r" * 500] * 200, "ready": False}
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' and not result.ready }}"
        then: [{retry: {max_attempts: 5, initial_delay: 1, retry_when: "{{ result.rows | length == 200 }}"}}]"""),
        {"start": replies(big, big, {"ready": True})},
    )
    assert run.status == "completed"
    assert len(run.calls) == 3


def test_large_values_in_sets_results_and_ways_out_stay_out_of_the_events() -> None:
    big = {"text": "t" * 30_000}
    run = played(
        step("""
      - when: "{{ event.name == 'call.done' }}"
        then:
          - set: {ctx: {a: "{{ result.text }}", b: "{{ result.text ~ 'b' }}", c: "{{ result.text ~ 'c' }}"}}
          - collect: {from: "{{ [result.text, result.text] }}", into: all, mode: extend}
          - tell: {tool: {kind: python, code: pass, args: {b: "{{ ctx.b | length }}", n: "{{ ctx.all | length }}"}}}
          - result: {from: "{{ [ctx.a, ctx.b, ctx.c] }}"}
          - next:
              to: [{step: x, args: {a: "{{ ctx.a }}", b: "{{ ctx.b }}", c: "{{ ctx.c }}"}}]"""),
        {"start/tell": 1, "start": big, "x": {"n": 1}},
    )
    assert run.status == "completed", run.error
    assert run.calls[1].args == {"b": 30_001, "n": 2}
    assert [len(value) for value in run.calls_of("x")[0].args["given"].values()] == [30_000, 30_001, 30_001]
