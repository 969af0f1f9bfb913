"""Steps and loops without a tool: their variables, sinks, results, and what their cases are asked."""

from __future__ import annotations

import pytest

from noetl.testing import answers
from tests.unit.worker.case_plays import labels, played

TOLD = {"n": lambda call: answers(call.args["c"]), "http": {}}
SINK = 'sink: {tool: {kind: http, url: "http://x/{{ result }}"}}'


def last(expression: str) -> str:
    return f'  - step: n\n    tool: {{kind: python, code: pass, args: {{c: "{{{{ {expression} }}}}"}}}}\n'


def test_a_step_without_a_tool_sets_its_variables_and_runs_its_sink() -> None:
    run = played(
        f"""
  - step: start
    args: {{a: 3}}
    vars: {{v: "{{{{ args.a }}}}"}}
    {SINK}
    next: n
{last("vars.v")}""",
        TOLD,
    )
    assert run.result == 3
    assert labels(run) == ["sink", "task_1"]
    assert [event.payload for event in run.named("vars.set")] == [{"vars": {"v": 3}}]


def test_a_step_without_tool_variables_or_sink_needs_no_worker() -> None:
    run = played("  - step: start\n    args: {a: 3}\n    next: end\n")
    assert run.status == "completed"
    assert {event.source for event in run.events} == {"server"}


def test_the_variables_of_a_step_without_a_tool_see_what_its_case_has_set() -> None:
    run = played(
        f"""
  - step: start
    vars: {{v: "{{{{ result }}}}"}}
    {SINK}
    case: [{{when: "{{{{ true }}}}", then: {{result: {{from: "{{{{ 4 }}}}"}}}}}}]
    next: n
{last("vars.v")}""",
        TOLD,
    )
    assert run.result == 4
    assert run.calls[0].config["url"] == "http://x/4"


def test_the_result_of_a_step_without_a_tool_is_that_of_its_last_named_task() -> None:
    run = played(
        f"""
  - step: start
    case:
      - when: "{{{{ true }}}}"
        then: [{{a: {{tool: {{kind: http, url: "http://a"}}}}}}, {{b: {{tool: {{kind: http, url: "http://b"}}}}}}]
    next: n
{last("start")}""",
        {**TOLD, "start/a": 1, "start/b": 2},
    )
    assert run.result == 2


def loop(case: str) -> str:
    return f"""
  - step: start
    loop: {{in: "{{{{ [5, 1, 9] }}}}", iterator: i}}
    case: {case}
    next: n
{last("start")}"""


def test_a_loop_without_a_tool_gives_its_elements_also_with_a_case() -> None:
    case = """
      - when: "{{ event.name == 'step.exit' }}"
        then: {next: [{step: n, args: {r: "{{ result }}"}}]}"""
    run = played(loop(case), TOLD)
    assert run.result == [5, 1, 9]
    assert run.named("loop.done")[0].payload["done"] == 3


def test_the_case_of_a_loop_without_a_tool_is_asked_about_each_element() -> None:
    case = """
      - when: "{{ i == 1 }}"
        then: [{result: {from: "{{ 'one' }}"}}]
      - when: "{{ event.name == 'call.done' and result == 9 }}"
        then: [{a: {tool: {kind: http, url: "http://{{ i }}"}}}]
      - else: [{result: {from: "{{ result * 2 }}"}}]"""
    run = played(loop(case), {**TOLD, "start/a": "asked"})
    assert run.result == [10, "one", "asked"]


@pytest.mark.parametrize("extra", ['vars: {v: "{{ result | length }}"}', SINK])
def test_a_loop_without_a_tool_sets_its_variables_and_runs_its_sink(extra: str) -> None:
    run = played(
        f"""
  - step: start
    loop: {{in: "{{{{ [5, 1, 9] }}}}", iterator: i}}
    {extra}
    next: n
{last("[start, vars.v | default(0)]")}""",
        TOLD,
    )
    assert run.result in ([[5, 1, 9], 3], [[5, 1, 9], 0])
    assert len(run.named("vars.set")) + len(run.named("sink.processed")) == 1
    assert run.named("loop.done")[0].payload["done"] == 3
