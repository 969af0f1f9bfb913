"""The changes that are drawn are small, and change what they say."""

from __future__ import annotations

import pytest

from tests.mutants.operators import Change, changes, drawn

SOURCE = '''
def f(a: int = 1 + 1) -> int | None:
    """a < b and c"""
    assert a < 2
    if a >= 3 and a is not None:
        return a + 1
    x = a not in (1,) or "é" == a
    if x:
        return None
    return g(a, a - 1)
'''


def test_operators_numbers_and_answers_are_changed_and_nothing_else_is() -> None:
    assert sorted((change.line, change.before, change.after) for change in changes(SOURCE)) == [
        (5, ">=", ">"),
        (5, "and", "or"),
        (5, "is not", "is"),
        (6, "+", "-"),
        (6, "a + 1", "None"),
        (7, "==", "!="),
        (7, "not in", "in"),
        (7, "or", "and"),
        (10, "-", "+"),
        (10, "g(a, a - 1)", "None"),
    ]


@pytest.mark.parametrize("change", list(changes(SOURCE)), ids=str)
def test_a_change_touches_only_its_place(change: Change) -> None:
    changed = change.applied(SOURCE)
    compile(changed, "f.py", "exec")
    before, after = SOURCE.splitlines(), changed.splitlines()
    assert [number for number, line in enumerate(before, 1) if line != after[number - 1]] == [change.line]
    assert change.after in after[change.line - 1]


def test_the_same_seed_draws_the_same_changes_and_all_of_them_can_be_made() -> None:
    first = drawn(["engine", "control"], 50, 7)
    assert first == drawn(["engine", "control"], 50, 7)
    assert len({file for file, _ in first}) > 10
