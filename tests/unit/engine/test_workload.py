"""The workload: the payload over the playbook's values, then the playbook's templates in order of need."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.workload import materialise
from noetl.errors import TemplateError
from noetl.playbook.load import load
from noetl.playbook.model import Value
from noetl.tools.registry import builtin_kinds


def workload(text: str) -> dict[str, Value]:
    playbook = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: p}}
workload: {text}
workflow: [{{step: start, tool: {{kind: noop}}}}]
"""
    loaded = load(playbook.encode(), builtin_kinds())
    assert loaded.playbook is not None, loaded.diagnostics
    return loaded.playbook.workload


def rendered(text: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
    return materialise(workload(text), payload or {}, "42")


def test_the_payload_is_merged_deeply_and_lists_replace() -> None:
    given = {"a": {"y": 3}, "list": [9]}
    assert rendered("{a: {x: 1, y: 2}, list: [1, 2]}", given) == {"a": {"x": 1, "y": 3}, "list": [9]}


def test_a_value_made_from_another_follows_the_payload() -> None:
    assert rendered("{url: '{{ host }}/x', host: a}", {"host": "b"}) == {"url": "b/x", "host": "b"}


def test_values_are_rendered_in_order_of_need_and_stay_in_the_order_written() -> None:
    found = rendered("{c: '{{ workload.b + 1 }}', b: '{{ workload.a + 1 }}', a: 1, deep: {d: ['{{ c }}']}}")
    assert found == {"c": 3, "b": 2, "a": 1, "deep": {"d": [3]}}
    assert list(found) == ["c", "b", "a", "deep"]


def test_text_of_the_payload_is_never_a_template() -> None:
    assert rendered("{a: 1}", {"a": "{{ 1 / 0 }}"}) == {"a": "{{ 1 / 0 }}"}


def test_the_id_of_the_execution_is_known() -> None:
    assert rendered("{a: 'run {{ execution_id }}'}") == {"a": "run 42"}


def test_a_value_that_cannot_be_rendered_is_named() -> None:
    with pytest.raises(TemplateError, match="`bad`"):
        rendered("{bad: '{{ 1 / n }}', n: 0}")


def test_values_that_need_each_other_are_refused() -> None:
    one, two = (workload(f"{{x: '{{{{ workload.{name} }}}}'}}")["x"] for name in ("two", "one"))
    both = {"one": one, "two": two}
    with pytest.raises(TemplateError, match="need each other: one, two"):
        materialise(both, {}, "42")
