"""Results that are stored elsewhere read like any other, and are loaded no sooner than they are read."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.bodies import (
    Bodies,
    BodiesNeeded,
    BodyView,
    ResultView,
    StoredMapping,
    StoredValues,
    collected,
    is_ref,
    readable,
    stored_path,
    whole,
)
from noetl.engine.limits import reference
from noetl.template import UNDEFINED


def stored(value: Any, **about: Any) -> dict[str, Any]:
    return {**reference("1", value, str(value).encode())[0], **about}


def at_hand(*values: Any) -> Bodies:
    bodies = Bodies()
    for value in values:
        bodies.keep(stored(value), value)
    return bodies


def test_only_a_mapping_that_says_so_is_a_reference() -> None:
    assert is_ref(stored("big"))
    assert not is_ref({"kind": "result_ref"})
    assert not is_ref({"kind": "other", "ref": "x"})
    assert not is_ref("result_ref")


def test_what_is_not_at_hand_is_asked_for_by_its_reference() -> None:
    with pytest.raises(BodiesNeeded) as needed:
        BodyView(stored({"a": 1}), Bodies()).lookup("a")
    assert needed.value.refs == (stored({"a": 1}),)
    assert stored({"a": 1})["ref"] in str(needed.value)


def test_bodies_that_were_forgotten_are_asked_for_again() -> None:
    bodies = at_hand("big")
    assert bodies.get(stored("big")) == "big"
    bodies.forget()
    with pytest.raises(BodiesNeeded):
        bodies.get(stored("big"))


def test_a_stored_mapping_is_read_by_key_and_other_values_have_none() -> None:
    view = BodyView(stored({"a": 1}), at_hand({"a": 1}))
    assert (view.lookup("a"), view.lookup("b")) == (1, UNDEFINED)
    assert (view.plain(), str(view)) == ({"a": 1}, "{'a': 1}")
    assert BodyView(stored("text"), at_hand("text")).lookup("a") is UNDEFINED


def test_what_was_extracted_from_a_body_is_read_without_it() -> None:
    assert BodyView(stored({"a": 1}, extracted={"a": 1}), Bodies()).lookup("a") == 1


def test_the_place_of_a_body_is_known_only_where_it_is_a_file_of_ours() -> None:
    assert stored_path({"store": "file", "key": "1/ab/cd"}) == "ab/cd"
    assert stored_path({"store": "file", "key": "s3://bucket/1/ab"}) is UNDEFINED
    assert stored_path({"store": "database", "key": "1/ab"}) is UNDEFINED
    in_file = stored("big", store="file", key="1/ab")
    assert BodyView(in_file, Bodies()).lookup("stored_path") == "ab"
    assert ResultView(in_file, {}, Bodies()).lookup("stored_path") == "ab"
    assert ResultView({"stored_path": 7}, {}, Bodies()).lookup("stored_path") == 7


def test_a_mapping_with_stored_values_reads_like_the_whole_one() -> None:
    values = {"a": stored("big"), "b": 2}
    view = readable(values, at_hand("big"))
    assert isinstance(view, StoredValues)
    assert (list(view), len(view), "a" in view, "c" in view) == (["a", "b"], 2, True, False)
    assert (view.lookup("b"), view.lookup("c")) == (2, UNDEFINED)
    assert view.plain() == {"a": "big", "b": 2}
    assert str(view) == "{'a': 'big', 'b': 2}"
    assert whole(values, at_hand("big")) == {"a": "big", "b": 2}
    assert readable({"b": 2}, Bodies()) == {"b": 2}


def test_a_mapping_that_is_stored_as_a_whole_reads_like_any_other() -> None:
    view = readable(stored({"a": 1, "b": 2}), at_hand({"a": 1, "b": 2}))
    assert isinstance(view, StoredMapping)
    assert (list(view), len(view), "a" in view, "c" in view) == (["a", "b"], 2, True, False)
    assert (view["a"], view.lookup("b"), view.lookup("c")) == (1, 2, UNDEFINED)
    assert (view.plain(), str(view)) == ({"a": 1, "b": 2}, "{'a': 1, 'b': 2}")


def test_what_was_collected_is_one_list_whatever_of_it_is_stored() -> None:
    parts = [1, stored([2, 3], spread=True), stored([4])]
    found = collected({"pages": parts, "few": [1, 2], "name": "x"}, at_hand([2, 3], [4]))
    assert found["pages"].plain() == [1, 2, 3, [4]]
    assert str(found["pages"]) == "[1, 2, 3, [4]]"
    assert found["pages"].lookup("anything") is UNDEFINED
    assert (found["few"], found["name"]) == ([1, 2], "x")


def test_a_result_shows_its_own_keys_then_itself_then_what_is_known_about_it() -> None:
    view = ResultView({"status": "mine"}, {"status": "done", "meta": {"runs": 1}}, Bodies())
    assert (view.lookup("status"), view.lookup("meta")) == ("mine", {"runs": 1})
    assert view.lookup("result") is view
    assert view.lookup("data") is view
    assert view.lookup("rows") is UNDEFINED


def test_a_failed_result_shows_its_error_and_status_first() -> None:
    view = ResultView(
        {"status": "mine", "error": "mine", "n": 1}, {"status": "failed", "error": "ours"}, Bodies()
    )
    assert (view.lookup("status"), view.lookup("error"), view.lookup("n")) == ("failed", "ours", 1)


def test_a_stored_result_is_loaded_when_it_is_read_and_known_by_its_reference() -> None:
    rows = [{"a": 1}, {"a": 2}]
    view = ResultView(stored(rows), {"status": "done"}, at_hand(rows))
    assert (view.lookup("rows"), view.lookup("row_count")) == (rows, 2)
    assert (view.plain(), view.stored) == (rows, stored(rows))
    plain = ResultView(rows, {}, Bodies())
    assert (plain.plain(), plain.stored, plain.lookup("row_count")) == (rows, None, 2)
