"""What a case recorded, and what an execution takes over, is shortened value by value like all else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.engine.bodies import Bodies, is_ref, parted
from noetl.engine.facts import of_step
from noetl.engine.limits import EVENT_BYTES, fit, reference, shape

BIG = "x" * 70_000


def shortened(**payload: Any) -> dict[str, Any]:
    fact = of_step("task.done", "1", "2025-06-15T12:00:00Z", "s", "1.1", **payload)
    fit(fact, "1", Bodies())
    assert len(msgspec.json.encode(fact.payload)) <= EVENT_BYTES
    return fact.payload


def route(**args: Any) -> dict[str, Any]:
    return {"selected": [{"step": "t", "args": args}], "priority": 1}


def test_ways_out_and_results_of_a_case_are_shortened_and_all_else_of_it_stays() -> None:
    frame = {"routes": [route(a=BIG, b=1)], "result": [BIG], "queue": [0]}
    case = shortened(case={"frame": frame, "call": True})["case"]
    assert is_ref(case["frame"]["routes"][0]["selected"][0]["args"]["a"])
    assert case["frame"]["routes"][0]["selected"][0]["args"]["b"] == 1
    assert case["frame"]["routes"][0]["priority"] == 1
    assert is_ref(case["frame"]["result"][0])
    assert (case["frame"]["queue"], case["call"], "changes" in case) == ([0], True, False)


def test_what_a_chain_overrides_is_shortened_by_name_before_the_call_and_after() -> None:
    given = {"data": BIG, "params": {"page": 2}}
    frame = {"routes": [], "result": [], "overrides": given, "again": {"do": "call", "overrides": given}}
    short = shortened(case={"frame": frame})["case"]["frame"]
    assert short["overrides"] == short["again"]["overrides"]
    assert (is_ref(short["overrides"]["data"]), short["overrides"]["params"]) == (True, {"page": 2})
    assert short["again"]["do"] == "call"
    retried = {"routes": [], "result": [BIG], "again": {"do": "retry", "delay": 1}}
    assert shortened(case={"frame": retried})["case"]["frame"]["again"] == {"do": "retry", "delay": 1}


def test_what_was_set_is_shortened_by_name_and_what_was_collected_as_one_value_or_as_many() -> None:
    frame: dict[str, Any] = {"routes": [], "result": []}
    big = [BIG]
    changes: list[list[Any]] = [
        ["set", {"a": BIG, "b": 1}],
        ["collect", "pages", "append", big],
        ["collect", "pages", "extend", big],
        ["collect", "pages", "extend", BIG],
        ["collect", "pages", "extend", [1]],
    ]
    short: list[Any] = shortened(case={"frame": frame, "changes": changes})["case"]["changes"]
    assert (short[0][0], is_ref(short[0][1]["a"]), short[0][1]["b"]) == ("set", True, 1)
    assert [each[:3] for each in short[1:]] == [each[:3] for each in changes[1:]]
    assert [is_ref(each[3]) for each in short[1:]] == [True, True, True, False]
    assert [each[3].get("spread") for each in short[1:4]] == [None, True, None]


def test_the_way_that_a_step_chose_and_the_end_of_a_loop_are_shortened() -> None:
    short = shortened(next=route(a=BIG), ends={"route": route(b=BIG), "result": [BIG, 1], "kind": "k"})
    assert is_ref(short["next"]["selected"][0]["args"]["a"])
    assert is_ref(short["ends"]["route"]["selected"][0]["args"]["b"])
    assert (is_ref(short["ends"]["result"][0]), short["ends"]["result"][1], short["ends"]["kind"]) == (
        True,
        1,
        "k",
    )
    assert shortened(next=3, result=BIG)["next"] == 3


def test_what_is_taken_over_from_an_earlier_execution_is_shortened() -> None:
    kept = {"status": "done", "result": BIG, "results": {"t": BIG, "u": 1}}
    short = shortened(reused={"ctx": {"a": BIG}, "vars": {"b": BIG, "c": 1}, "steps": {"s": kept}})["reused"]
    assert is_ref(short["ctx"]["a"])
    assert (is_ref(short["vars"]["b"]), short["vars"]["c"]) == (True, 1)
    assert (is_ref(short["steps"]["s"]["result"]), short["steps"]["s"]["status"]) == (True, "done")
    assert (is_ref(short["steps"]["s"]["results"]["t"]), short["steps"]["s"]["results"]["u"]) == (True, 1)


def test_the_result_that_an_item_brings_to_its_join_is_shortened() -> None:
    (entry,) = shortened(selected=[{"step": "t", "args": {}, "result": BIG, "joins": {"index": 1}}])[
        "selected"
    ]
    assert (is_ref(entry["result"]), entry["joins"]) == (True, {"index": 1})


def test_a_list_with_stored_parts_stays_one_reference_and_what_is_large_in_it_goes_out_of_it() -> None:
    ref = reference("1", "other", b'"other"')[0]
    short = shortened(result=parted([ref, BIG, 1]))["result"]
    assert is_ref(short)
    assert [is_ref(part) for part in short["parts"]] == [True, True, False]
    assert "manifest" not in short


@pytest.mark.parametrize("value", [True, 5, 1.5, None])
def test_what_is_no_text_list_or_mapping_is_never_stored(value: Any) -> None:
    assert shortened(args={"a": value, "b": BIG})["args"]["a"] is value


def test_a_preview_shows_the_beginning_and_a_reference_names_its_execution() -> None:
    ref, stored = reference("7", {"a": 1}, b'{"a":1}' + b" " * 300)
    assert ref["preview"] == ('{"a":1}' + " " * 300)[:200]
    assert ref["ref"] == ref["key"] == stored.key == f"noetl://7/{ref['checksum'][:32]}"
    assert (ref["size"], ref["store"], ref["kind"]) == (307, "database", "result_ref")


def test_a_shape_names_the_first_fifty_keys() -> None:
    keys = shape({f"{number:03}": 1 for number in range(60)})["keys"]
    assert keys == [f"{number:03}" for number in range(50)]


def test_an_event_may_be_as_large_as_the_limit_and_not_a_byte_larger() -> None:
    around = len(msgspec.json.encode({"args": {"a": ""}}))
    assert shortened(args={"a": "x" * (EVENT_BYTES - around)})["args"]["a"].startswith("x")
    assert is_ref(shortened(args={"a": "x" * (EVENT_BYTES - around + 1)})["args"]["a"])
