"""Stored results at hand: as many as may be, those that are used, and all that one evaluation needs."""

from __future__ import annotations

import pytest

from noetl.engine.bodies import RECENT_USES, Bodies, BodiesNeeded
from noetl.engine.state import Data


def ref(name: str, size: int = 10) -> Data:
    return {"kind": "result_ref", "ref": name, "store": "database", "size": size}


def at_hand(bodies: Bodies, *names: str) -> list[str]:
    """Which of them are there; to look is no use of them."""
    return [name for name in names if name in bodies._loaded]


def age(bodies: Bodies) -> None:
    """Enough is used for everything before it to be old."""
    bodies.keep(ref("other", 0), None)
    for _ in range(RECENT_USES):
        bodies.get(ref("other"))


def test_what_was_used_longest_ago_goes_when_there_is_too_much() -> None:
    bodies = Bodies(25)
    for name in ("a", "b", "c"):
        bodies.keep(ref(name), name)
    bodies.get(ref("a"))
    age(bodies)
    bodies.trim()
    assert at_hand(bodies, "a", "b", "c") == ["a", "c"]
    with pytest.raises(BodiesNeeded) as needed:
        bodies.get(ref("b"))
    assert needed.value.refs == (ref("b"),)


def test_nothing_goes_while_there_is_room_or_while_it_is_likely_to_be_used_again() -> None:
    bodies = Bodies(20)
    for name in ("a", "b"):
        bodies.keep(ref(name), name)
    age(bodies)
    bodies.trim()
    assert at_hand(bodies, "a", "b") == ["a", "b"]
    bodies.keep(ref("large", 1_000), "large")
    bodies.trim()
    assert at_hand(bodies, "a", "b", "large") == ["large"]


def test_what_an_evaluation_needs_stays_until_it_is_over() -> None:
    bodies = Bodies(5)
    with bodies.needing() as need:
        need(ref("a"))
        bodies.keep(ref("a"), 1)
        bodies.keep(ref("b"), 2)
        with bodies.needing() as need_too:
            need_too(ref("a"))
        age(bodies)
        bodies.trim()
        assert at_hand(bodies, "a", "b") == ["a"]
    bodies.trim()
    assert at_hand(bodies, "a") == []


def test_what_is_loaded_twice_counts_once_and_what_is_forgotten_counts_no_more() -> None:
    bodies = Bodies(25)
    for _ in range(5):
        bodies.keep(ref("a"), 1)
    bodies.keep(ref("b"), 2)
    age(bodies)
    bodies.trim()
    assert at_hand(bodies, "a", "b") == ["a", "b"]
    bodies.forget()
    assert at_hand(bodies, "a", "b") == []
    bodies.keep(ref("c", 25), 3)
    age(bodies)
    bodies.trim()
    assert at_hand(bodies, "c") == ["c"]
