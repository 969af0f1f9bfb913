"""Secrets are taken out of an event's data, and its words, names and references stay what they are."""

from __future__ import annotations

from typing import Any

from noetl.engine.limits import reference
from noetl.engine.masking import masked


def hide(value: Any) -> Any:
    return f"masked {value}"


def test_values_are_masked_one_by_one_and_their_names_are_not() -> None:
    assert masked({"args": {"a": 1, "b": [2]}, "vars": {"c": 3}}, hide) == {
        "args": {"a": "masked 1", "b": "masked [2]"},
        "vars": {"c": "masked 3"},
    }


def test_results_messages_and_logs_are_masked_as_a_whole() -> None:
    payload = {"result": {"a": 1}, "message": "m", "reason": "r", "log": "l", "items": [1]}
    assert masked(payload, hide) == {name: hide(part) for name, part in payload.items()}


def test_what_should_be_a_mapping_and_is_none_is_masked_too() -> None:
    assert masked({"args": "text", "workload": None}, hide) == {
        "args": "masked text",
        "workload": "masked None",
    }


def test_what_the_engine_goes_by_is_left_alone() -> None:
    payload = {
        "then": {"do": "retry", "set_ctx": {"a": 1}},
        "selected": [{"step": "s", "args": {"b": 2}}],
        "n": 5,
    }
    assert masked(payload, hide) == {
        "then": {"do": "retry", "set_ctx": {"a": "masked 1"}},
        "selected": [{"step": "s", "args": {"b": "masked 2"}}],
        "n": 5,
    }


def test_a_reference_is_left_alone_wherever_it_stands() -> None:
    ref = reference("1", "big", b'"big"')[0]
    assert masked({"result": ref, "args": {"a": ref, "b": 1}}, hide) == {
        "result": ref,
        "args": {"a": ref, "b": "masked 1"},
    }


def test_of_what_a_case_set_and_collected_only_the_values_are_masked() -> None:
    changes = [["set", {"a": 1}], ["collect", "pages", "append", "p"]]
    assert masked({"case": {"changes": changes}}, hide) == {
        "case": {"changes": [["set", {"a": "masked 1"}], ["collect", "pages", "append", "masked p"]]}
    }
