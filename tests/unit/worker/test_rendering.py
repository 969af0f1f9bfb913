"""Data is never taken for a template, wherever it came from."""

from __future__ import annotations

import pytest

from noetl.secrets.redaction import Redactor
from noetl.template import Scope, Template
from noetl.testing import play
from noetl.worker.calls import render_args

HOSTILE = "{{ workload.inner }} {{ 7 * 7 }} {% for x in [1] %}{{ x }}{% endfor %}"
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workload: {inner: hidden, given: ""}
workflow:
  - step: start
    tool:
      - fetch: {kind: http, url: "https://example.com"}
      - use: {kind: python, code: pass, args: {page: "{{ _prev }}", text: "got {{ _prev.body }}", own: "{{ workload.given }}"}}
    next: {arcs: [{step: last, args: {body: "{{ start.text }}"}}]}
  - step: last
    loop: {in: "{{ [args.body] }}", iterator: each}
    tool: {kind: python, code: pass, args: {each: "{{ iter.each }}"}}
"""  # noqa: E501 - a task on one line reads better than folded


@pytest.mark.parametrize("shape", ["{{ text }}", "{{ text | upper | lower }}", "{{ [text] | first }}"])
def test_what_a_template_gives_is_not_rendered_again(shape: str) -> None:
    text = HOSTILE.lower()
    assert render_args({"a": Template(shape)}, Scope({"text": text}), Redactor()) == {"a": text}
    assert render_args([Template(f"<{shape}>")], Scope({"text": text}), Redactor()) == [f"<{text}>"]


def test_results_payloads_arguments_and_elements_that_look_like_templates_stay_what_they_are() -> None:
    tools = {"start/fetch": {"body": HOSTILE}, "start/use": lambda call: call.args, "last": None}
    run = play(PLAYBOOK, {"given": HOSTILE}, tools=tools)
    assert run.status == "completed", run.error
    used = run.calls_of("start")[1].args
    assert used == {"page": {"body": HOSTILE}, "text": f"got {HOSTILE}", "own": HOSTILE}
    assert [call.args for call in run.calls_of("last")] == [{"each": f"got {HOSTILE}"}]


PIPELINE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workload: {other: 1}
workflow:
  - step: start
    tool:
      - one: {kind: http, url: "https://example.com"}
      - two: {kind: python, code: pass, args: {x: "{{ READ }}"}}
"""


@pytest.mark.parametrize(
    "read", ["result[0].n", "response[0].n", "data[0].n", "this.data[0].n", "result.rows[0].n"]
)
def test_the_last_result_has_the_names_that_it_has_in_cases(read: str) -> None:
    tools = {"http": [{"n": 5}], "python": lambda call: call.args["x"]}
    run = play(PIPELINE.replace("READ", read), tools=tools)
    assert (run.status, run.result) == ("completed", 5), run.error


def test_in_a_rule_it_is_the_result_of_the_task_itself() -> None:
    rule = "{when: '{{ result.n == 6 }}', then: {do: continue, set_ctx: {seen: '{{ result.n }}'}}}"
    rules = f"[{rule}, {{else: {{then: {{do: fail}}}}}}]"
    text = PIPELINE.replace('"{{ READ }}"}', f"1}}, spec: {{policy: {{rules: {rules}}}}}")
    run = play(text, tools={"http": [{"n": 5}], "python": {"n": 6}})
    assert (run.status, run.state.ctx) == ("completed", {"seen": 6}), run.error


def test_what_a_playbook_itself_calls_so_comes_first() -> None:
    text = PIPELINE.replace("other: 1", "result: mine").replace("READ", "result")
    assert play(text, tools={"http": [{"n": 5}], "python": lambda call: call.args["x"]}).result == "mine"


@pytest.mark.parametrize("read", ["result.n", "response", "outcome.result", "error.kind"])
def test_a_result_that_is_not_there_fails_with_the_names_to_use(read: str) -> None:
    text = PIPELINE.replace("https://example.com", "{{ " + read + " }}")
    run = play(text, tools={"http": 1, "python": None})
    assert run.error is not None
    assert run.error["kind"] == "template.undefined"
    assert "the result before is `_prev`, that of an earlier task its label" in run.error["message"]
