"""Limits and waits that a playbook computes: what is no duration fails the task, and never means no limit."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.testing import Run, play

NO_DURATIONS = ["abc", None, -5, True, [3]]


def played(knobs: str, limit: Any, kind: str = "python") -> Run:
    text = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: p}}
workload: {{limit: 1}}
workflow:
  - step: start
    tool:
      - fetch: {{kind: {kind}, {knobs}}}
"""
    return play(text, {"limit": limit}, tools={"start": "fine"})


@pytest.mark.parametrize("limit", NO_DURATIONS)
def test_a_timeout_whose_template_gives_no_duration_fails_the_task_and_says_what_is_one(limit: Any) -> None:
    run = played('spec: {timeout: "{{ workload.limit }}"}, code: pass', limit)
    assert (run.status, run.calls) == ("failed", ())
    assert run.error is not None
    assert (run.error["kind"], run.error["task"]) == ("spec.invalid", "fetch")
    shown = "null" if limit is None else f"`{limit}`"
    assert f"but it is {shown}" in run.error["message"]
    assert "`timeout` must be a duration (seconds as a number, or `250ms`" in run.error["message"]


@pytest.mark.parametrize("limit", [2, 2.5, "2", "250ms", "1h"])
def test_a_timeout_may_be_computed(limit: Any) -> None:
    assert played('spec: {timeout: "{{ workload.limit }}"}, code: pass', limit).status == "completed"


def test_a_part_of_a_timeout_that_is_no_duration_is_named() -> None:
    knobs = 'url: "https://example.com", timeout: {connect: 3, total: "{{ workload.limit }}"}'
    run = played(knobs, "abc", "http")
    assert run.error is not None
    assert run.error["kind"] == "spec.invalid"
    assert "`timeout.total` must be a duration" in run.error["message"]
    assert played(knobs, "5s", "http").status == "completed"


def test_the_delay_of_a_retry_that_is_no_duration_fails_the_task_and_is_named() -> None:
    policy = '{rules: [{else: {then: {do: retry, delay: "{{ workload.limit }}"}}}]}'
    run = played(f"code: pass, spec: {{policy: {policy}}}", "abc")
    assert run.error is not None
    assert (run.error["kind"], run.error["task"]) == ("template.value", "fetch")
    assert "`delay` must be a duration" in run.error["message"]
    assert "`{{ workload.limit }}` gave `abc`" in run.error["message"]


@pytest.mark.parametrize(("field", "others"), [("interval", ""), ("deadline", ", interval: 1s")])
def test_a_poll_with_what_is_no_duration_fails_the_task_and_names_the_field(field: str, others: str) -> None:
    run = play(
        f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: p}}
workload: {{limit: soon}}
workflow:
  - step: start
    case:
      - when: "{{{{ event.name == 'step.enter' }}}}"
        then:
          - look:
              tool: {{kind: python, code: pass}}
              poll: {{until: "{{{{ false }}}}", {field}: "{{{{ workload.limit }}}}"{others}}}
""",
        tools={"start": "fine"},
    )
    assert run.error is not None
    assert (run.error["kind"], run.error["task"]) == ("template.value", "look")
    assert f"`{field}` must be a duration" in run.error["message"]
