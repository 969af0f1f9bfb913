"""Events stay small: large values become references, logs and messages are cut."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.engine.bodies import Bodies, is_ref, parted
from noetl.engine.facts import Fact, of_playbook, of_step
from noetl.engine.limits import EVENT_BYTES, fit, reference, shape

BIG = "x" * 70_000


def step_event(**payload: Any) -> Fact:
    return of_step("task.done", "1", "2025-06-15T12:00:00Z", "s", "1.1", **payload)


def shortened(**payload: Any) -> tuple[dict[str, Any], list[bytes]]:
    fact = step_event(**payload)
    taken = fit(fact, "1", Bodies())
    assert len(msgspec.json.encode(fact.payload)) <= EVENT_BYTES
    return fact.payload, [each.body for each in taken]


def test_a_small_event_stays_as_it_is() -> None:
    fact = step_event(args={"a": "x" * 9_000})
    assert fit(fact, "1", Bodies()) == []
    assert fact.payload == {"args": {"a": "x" * 9_000}}


@pytest.mark.parametrize("part", ["args", "workload", "patch", "payload", "vars"])
def test_a_large_value_of_a_mapping_is_stored(part: str) -> None:
    payload, bodies = shortened(**{part: {"big": BIG, "small": 1}})
    assert is_ref(payload[part]["big"])
    assert payload[part]["small"] == 1
    assert bodies == [msgspec.json.encode(BIG)]


@pytest.mark.parametrize("part", ["items", "result", "data"])
def test_a_large_part_is_stored_as_a_whole(part: str) -> None:
    payload, _ = shortened(**{part: [BIG]})
    assert payload[part]["schema_hint"] == {"type": "list", "length": 1}


def test_a_stored_value_is_at_hand_at_once() -> None:
    bodies = Bodies()
    fact = step_event(result=BIG)
    fit(fact, "1", bodies)
    assert bodies.get(fact.payload["result"]) == BIG


def test_patches_arguments_of_tokens_and_outcomes_are_shortened_too() -> None:
    payload, bodies = shortened(
        then={"do": "continue", "set_ctx": {"a": BIG}, "set_iter": {"b": BIG}},
        selected=[{"step": "t", "args": {"c": BIG}, "token": "1"}],
        tokens=["1"],
        outcome={"status": "ok", "result": "y" * 60_000, "error": None},
    )
    assert is_ref(payload["then"]["set_ctx"]["a"])
    assert is_ref(payload["then"]["set_iter"]["b"])
    assert is_ref(payload["selected"][0]["args"]["c"])
    assert payload["tokens"] == ["1"]
    assert is_ref(payload["outcome"]["result"])
    assert len(bodies) == 4


def test_many_values_that_are_large_only_together_are_stored() -> None:
    payload, bodies = shortened(args={str(number): "x" * 5_000 for number in range(20)})
    assert len(bodies) == 20
    assert is_ref(payload["args"]["0"])


def test_logs_and_messages_are_cut_before_anything_is_stored() -> None:
    error = {"kind": "k", "message": "m" * 50_000, "details": {"d": "d" * 50_000}}
    payload, bodies = shortened(
        log="l" * 40_000,
        outcome={"status": "error", "result": None, "error": error},
        event={"name": "step.failed", "data": {"error": error}},
    )
    assert bodies == []
    assert len(payload["log"]) == 2_000
    assert payload["outcome"]["error"] == {"kind": "k", "message": "m" * 2_000, "details": {}}
    assert payload["event"]["data"]["error"]["message"] == "m" * 2_000


def test_shapes_tell_what_was_stored() -> None:
    assert shape({"b": 1, "a": 2}) == {"type": "mapping", "keys": ["a", "b"]}
    assert shape([1, 2]) == {"type": "list", "length": 2}
    assert shape("abc") == {"type": "text", "length": 3}
    assert shape(1) == {"type": "int"}


def stored(value: Any) -> dict[str, Any]:
    return reference("1", value, msgspec.json.encode(value))[0]


@pytest.mark.parametrize("number", [200, 5_000])
def test_a_list_of_many_stored_parts_is_stored_itself(number: int) -> None:
    payload, bodies = shortened(result=parted([stored(f"{index:01000}") for index in range(number)]))
    assert (is_ref(payload["result"]), payload["result"]["manifest"]) == (True, True)
    assert payload["result"]["schema_hint"] == {"type": "list", "length": number}
    assert len(msgspec.json.decode(bodies[-1])) == number


@pytest.mark.parametrize(
    ("event_type", "part"),
    [("playbook.execution.requested", "payload"), ("playbook.request.evaluated", "workload")],
)
def test_a_payload_or_workload_of_very_many_small_values_is_stored_as_a_whole(
    event_type: str, part: str
) -> None:
    given = {f"name_{number}": number for number in range(10_000)}
    fact = of_playbook(event_type, "1", "2025-06-15T12:00:00Z", "success", **{part: given})
    bodies = Bodies()
    fit(fact, "1", bodies)
    assert len(msgspec.json.encode(fact.payload)) <= EVENT_BYTES
    assert bodies.get(fact.payload[part]) == given


def test_many_values_below_a_kilobyte_are_stored_with_short_references() -> None:
    payload, bodies = shortened(args={str(number): {"k" * 70: "x" * 800} for number in range(110)})
    assert len(bodies) == 110
    assert payload["args"]["0"]["preview"] is None


def test_references_are_cut_short_where_there_are_many() -> None:
    seen = {**stored(BIG), "extracted": {"field": "e" * 7_000}}
    payload, _ = shortened(args={str(number): seen for number in range(20)})
    assert payload["args"]["0"]["extracted"] == {}


def test_a_long_reason_is_cut() -> None:
    payload, _ = shortened(reason="r" * 70_000)
    assert len(payload["reason"]) == 2_000


def test_a_shape_has_only_so_much_of_long_names() -> None:
    assert len(msgspec.json.encode(shape({f"{number}{'k' * 5_000}": 1 for number in range(60)}))) < 5_000
