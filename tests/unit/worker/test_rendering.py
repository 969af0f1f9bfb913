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
