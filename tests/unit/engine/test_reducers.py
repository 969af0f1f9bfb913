"""Writes of parallel iterations: combined in iteration order, or refused where they contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.bodies import is_ref, parted, parts_of
from noetl.engine.limits import reference
from noetl.engine.reducers import REDUCERS, apply_writes, conflicting_key, note_writes, same, unfit
from noetl.engine.state import LoopRun, State


def stored(value: Any) -> dict[str, Any]:
    return reference("1", value, b'"' + str(value).encode() + b'"')[0]


def combined(reducer: str, writes: dict[int, Any], order: list[int]) -> Any:
    """`ctx.key` after iterations that ended in `order` wrote these values."""
    state = State(execution_id="1")
    loop = LoopRun(items=[], total=len(order), parallel=True, keeps_going=False)
    for index in order:
        wrote = {"key": writes[index]} if index in writes else {}
        apply_writes(state, loop, index, wrote, {"key": reducer})
    return state.ctx.get("key")


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [
        ("sum", 6),
        ("min", 1),
        ("max", 3),
        ("append", [3, 1, 2]),
        ("extend", [3, 1, 2]),
        ("union", [3, 1, 2]),
        ("last", 2),
    ],
)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_the_order_in_which_iterations_end_does_not_matter(
    reducer: str, expected: Any, order: list[int]
) -> None:
    assert combined(reducer, {0: 3, 1: 1, 2: 2}, order) == expected


def test_an_iteration_that_wrote_nothing_does_not_hold_up_the_others() -> None:
    assert combined("append", {0: "a", 2: "c"}, [2, 1, 0]) == ["a", "c"]


def test_lists_are_added_element_by_element_or_as_one() -> None:
    assert combined("extend", {0: [1], 1: [1, 2]}, [0, 1]) == [1, 1, 2]
    assert combined("union", {0: [1], 1: [1, 2]}, [0, 1]) == [1, 2]


def test_a_union_keeps_true_beside_one_and_takes_equal_numbers_for_one() -> None:
    values = {0: [1, True, 1.0], 1: [0, False, None, "1"], 2: [[True], [1], {"a": 0}, {"a": False}, [True]]}
    found = combined("union", values, [0, 1, 2])
    assert str(found) == str([1, True, 0, False, None, "1", [True], [1], {"a": 0}, {"a": False}])
    assert combined("append", {0: [1], 1: [1, 2]}, [0, 1]) == [[1], [1, 2]]


def test_two_different_values_for_one_key_are_a_conflict_unless_it_is_reduced() -> None:
    loop = LoopRun(items=[], total=2, parallel=True, keeps_going=False, written={"key": 1})
    assert conflicting_key(loop, {"key": 2}, {}) == "key"
    assert conflicting_key(loop, {"key": True}, {}) == "key"
    assert conflicting_key(loop, {"key": 1, "other": 2}, {}) is None
    assert conflicting_key(loop, {"key": 2}, {"key": "sum"}) is None


def test_a_value_is_the_same_as_the_reference_to_it() -> None:
    assert same(stored("big"), "big")
    assert same("big", stored("big"))
    assert not same(stored("big"), "small")


def test_only_numbers_are_added_and_compared() -> None:
    assert unfit("sum", "1")
    assert unfit("max", True)
    assert not unfit("min", 1.5)
    assert not unfit("append", "1")
    assert unfit("union", stored("big"))


def test_a_list_with_stored_elements_is_one_reference() -> None:
    whole = combined("append", {0: stored("big"), 1: 2}, [1, 0])
    assert is_ref(whole)
    assert whole["schema_hint"] == {"type": "list", "length": 2}
    assert parts_of(whole) == [stored("big"), 2]
    assert parted([1, 2]) == [1, 2]
    assert parts_of("text") is None


def test_every_write_of_an_iteration_counts() -> None:
    noted: dict[str, list[Any]] = {}
    reducers = {"total": "sum", "rows": "append", "best": "max", "name": "last"}
    for number in (1, 5, 2):
        patch = {"total": number, "rows": f"r{number}", "best": number, "name": f"n{number}", "other": number}
        note_writes(noted, patch, reducers)
    assert noted == {"total": [8], "rows": ["r1", "r5", "r2"], "best": [5], "name": ["n2"]}
    state = State(execution_id="1")
    running = LoopRun(items=[], total=2, parallel=True, keeps_going=False)
    last = {"total": 2, "rows": "r2", "best": 2, "name": "n2", "other": 2}
    apply_writes(state, running, 1, {"total": 10, "rows": "later"}, reducers, {})
    apply_writes(state, running, 0, last, reducers, noted)
    assert state.ctx == {
        "total": 18,
        "rows": ["r1", "r5", "r2", "later"],
        "best": 5,
        "name": "n2",
        "other": 2,
    }


def test_a_write_to_a_key_without_a_reducer_hides_none_that_follows_it() -> None:
    noted: dict[str, list[Any]] = {}
    note_writes(noted, {"other": 1, "total": 2}, {"total": "sum"})
    assert noted == {"total": [2]}


def test_a_write_that_does_not_fit_is_kept_to_be_refused() -> None:
    noted: dict[str, list[Any]] = {}
    for value in (1, "many", 2):
        note_writes(noted, {"total": value}, {"total": "sum"})
    assert noted == {"total": [1, "many", 2]}


def listed(*values: Any) -> dict[str, Any]:
    """A list that is stored as a whole."""
    return reference("1", list(values), str(list(values)).encode())[0]


def test_a_list_that_is_stored_as_a_whole_comes_before_what_is_added() -> None:
    for reducer in ("append", "extend", "union"):
        assert parts_of(REDUCERS[reducer](listed(1, 2), 3)) == [{**listed(1, 2), "spread": True}, 3]


def test_a_stored_value_that_is_no_list_gives_way_to_one() -> None:
    assert REDUCERS["append"](stored("text"), 3) == [3]


def test_the_elements_of_a_stored_list_are_added_and_a_stored_text_is_one_element() -> None:
    assert parts_of(REDUCERS["extend"]([0], listed(1, 2))) == [0, {**listed(1, 2), "spread": True}]
    assert parts_of(REDUCERS["append"]([0], listed(1, 2))) == [0, listed(1, 2)]
    assert parts_of(REDUCERS["extend"]([0], stored("text"))) == [0, stored("text")]


def test_the_first_number_replaces_whatever_is_no_number() -> None:
    for reducer in ("sum", "min", "max"):
        assert REDUCERS[reducer]("many", 3) == 3
        assert REDUCERS[reducer](True, 3) == 3
        assert REDUCERS[reducer](None, 3) == 3


def test_two_references_are_the_same_if_they_are_equal() -> None:
    assert same(stored("big"), stored("big"))
    assert not same(stored("big"), stored("small"))
    assert not same(1, True)
    assert same(True, True)


@pytest.mark.parametrize("reducer", ["append", "extend"])
def test_a_list_that_is_stored_as_a_whole_is_where_a_reducer_begins(reducer: str) -> None:
    whole = stored([1, 2])
    assert parts_of(REDUCERS[reducer](whole, 3)) == [{**whole, "spread": True}, 3]
