# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""Sinks of steps and workbook entries, cases around loops, and steps whose errors do not matter."""

from __future__ import annotations

import pytest

from noetl.testing import replies
from tests.unit.worker.case_plays import BUSY, played, step

# --- sinks ---------------------------------------------------------------------------------------------------------


def test_a_step_sink_runs_after_a_way_out_was_decided_and_its_failure_fails_the_step() -> None:
    text = step(
        """
      - when: "{{ event.name == 'call.done' }}"
        then: [{next: {to: [{step: x}]}}]""",
        rest='    sink: {tool: {kind: http, method: POST, url: "http://x.example", body: {n: "{{ result.n }}"}}}',
    )
    run = played(text, {"http": 1})
    assert [call.config.get("body") for call in run.calls] == [None, {"n": 1}, None]
    run = played(text, {"http": BUSY})
    assert run.state.steps["start"].status == "failed"


def test_a_sink_whose_condition_is_false_is_not_called() -> None:
    run = played(
        step(
            "[]",
            rest='    sink: {tool: {kind: http, method: POST, url: "http://x.example"}, when: "{{ result.n > 1 }}"}',
        ).replace("    case: []\n", ""),
    )
    assert run.status == "completed"
    assert len(run.calls) == 1


def test_a_workbook_entrys_sink_runs_after_each_call_of_it() -> None:
    run = played(
        """
  - step: start
    loop: {in: [1, 2], iterator: item}
    tool: {kind: workbook, name: one, args: {v: "{{ item }}"}}
    vars: {all: "{{ result }}"}
""",
        {"http": 1},
        head="""workbook:
  - name: one
    tool: {kind: python, code: pass}
    sink: {tool: {kind: http, method: POST, url: "http://x.example", body: {n: "{{ result.n }}"}}}
""",
    )
    assert run.status == "completed", run.error
    assert [call.config.get("body") for call in run.calls] == [None, {"n": 1}, None, {"n": 1}]
    assert run.state.vars == {"all": [{"n": 1}, {"n": 1}]}


# --- loops and errors -------------------------------------------------------------------------------------------------


def looping(mode: str, case: str, rest: str = "") -> str:
    return f"""
  - step: start
    loop: {{in: [1, 2, 3], iterator: item, mode: {mode}}}
    tool: {{kind: python, code: pass, args: {{v: "{{{{ item }}}}"}}}}
    case: {case}
{rest}
  - step: x
    tool: {{kind: python, code: pass}}
"""


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_what_iterations_collect_is_joined_in_index_order(mode: str) -> None:
    run = played(
        looping(
            mode,
            """
      - when: "{{ event.name == 'step.enter' }}"
        then: [{collect: {from: "{{ 0 }}", into: seen}}]
      - when: "{{ event.name == 'call.done' }}"
        then: [{collect: {from: result.v, into: seen}}, {set: {ctx: {last: "{{ item }}"}}}]
      - when: "{{ event.name == 'step.exit' }}"
        then: [{result: {from: "{{ [ctx.seen, ctx.last, result | length] }}"}}]""",
            "    vars: {all: \"{{ result | map(attribute='v') | list }}\"}",
        ),
        {"python": lambda call: {"v": call.args["v"]}},
    )
    assert (run.status, run.result) == ("completed", [[0, 1, 2, 3], 3, 3]), run.error
    assert run.state.vars == {"all": [1, 2, 3]}
    assert len([e for e in run.named("case.evaluated") if e.payload["trigger_event"] == "step.exit"]) == 1


@pytest.mark.parametrize(("mode", "seen"), [("sequential", [1, 2]), ("parallel", [1])])
def test_sequential_iterations_share_what_was_set_and_parallel_ones_do_not(
    mode: str, seen: list[int]
) -> None:
    run = played(
        looping(
            mode,
            """
      - when: "{{ event.name == 'call.done' }}"
        then: [{collect: {from: result.v, into: seen}}, {result: {from: ctx.seen}}]""",
        ),
        {"python": lambda call: {"v": call.args["v"]}},
    )
    assert run.result[1] == (seen if mode == "sequential" else [2])


def test_next_in_a_loop_ends_it_early_and_its_result_is_the_steps() -> None:
    run = played(
        looping(
            "sequential",
            """
      - when: "{{ event.name == 'call.done' and item == 2 }}"
        then: [{result: {from: result.v}}, {next: {to: [{step: x}]}}]""",
        ),
        {"start": lambda call: {"v": call.args["v"]}},
    )
    assert [call.args.get("v") for call in run.calls_of("start")] == [1, 2]
    assert run.state.steps["start"].result == 2
    assert run.calls_of("x")


def test_an_error_that_is_ignored_leaves_the_step_done_without_a_result() -> None:
    run = played(
        "  - {step: start, spec: {on_error: ignore}, tool: {kind: python, code: pass}, next: [{step: x}]}\n"
        "  - {step: x, tool: {kind: python, code: pass}}\n",
        {"start": BUSY},
    )
    found = run.state.steps["start"]
    assert (found.status, found.result) == ("done", None)
    assert found.error is not None
    assert found.error["kind"] == "http.status"
    assert run.calls_of("x")


def test_on_error_retry_is_three_attempts_or_the_steps_own() -> None:
    plain = "  - {step: start, spec: {on_error: retry}, tool: {kind: python, code: pass}, next: x}\n  - {step: x}\n"
    assert len(played(plain, {"start": BUSY}).calls) == 3
    own = plain.replace("tool:", "retry: {max_attempts: 5}, tool:")
    assert len(played(own, {"start": BUSY}).calls) == 5


def test_a_workbook_entry_keeps_its_retry_and_its_sink_when_a_case_calls_it() -> None:
    run = played(
        """
  - step: start
    tool: {kind: workbook, name: one}
    case: [{when: "{{ event.name == 'call.done' }}", then: [{two: {tool: {kind: workbook, name: one}}}]}]
""",
        {"python": replies(BUSY, 1, BUSY, 2), "http": 1},
        head="""workbook:
  - name: one
    tool: {kind: python, code: pass, retry: {max_attempts: 2}}
    sink: {tool: {kind: http, method: POST, url: "http://x.example"}}
""",
    )
    assert run.status == "completed", run.error
    assert [call.kind for call in run.calls] == ["python", "python", "http"] * 2
