"""The changes that are drawn are small, change what they say, and reach the functions that are in use."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.changes import Change, changes
from tests.mutants.forked import swapped
from tests.mutants.operators import PACKAGE, PARTS, SURVIVORS, Key, drawn, reasons, row

SOURCE = '''
TOP = 1 < 2


def f(a: int = 1 + 1) -> int | None:
    """a < b and c"""
    assert a < 2
    if a >= 3 and a is not None:
        return a + 1
    x: bool = a not in (b,) or "é" == a
    if not x:
        g.y = [i for i in x if i.z]
        raise g(
            a,
        )
    return g(a, True)


class C:
    def m(self) -> bool:
        match self.x:
            case 1 if self.y:
                self.x += "b"
                g(f"{1}")
        for each in self.y if self else self.x:
            continue
        return False
'''


def test_what_functions_do_is_changed_and_nothing_else_is() -> None:
    assert sorted((change.line, change.before, change.after) for change in changes(SOURCE)) == [
        (8, "3", "4"),
        (8, ">=", ">"),
        (8, "a >= 3 and a is not None", "(not (a >= 3 and a is not None))"),
        (8, "and", "or"),
        (8, "is not", "is"),
        (9, "+", "-"),
        (9, "1", "2"),
        (9, "a + 1", "None"),
        (10, '"é"', "'é-'"),
        (10, "==", "!="),
        (10, "not in", "in"),
        (10, "or", "and"),
        (11, "not x", "(x)"),
        (12, "g.y = [i for i in x if i.z]", "pass"),
        (12, "i.z", "(not (i.z))"),
        (13, "raise g(\n            a,\n        )", "pass"),
        (16, "True", "False"),
        (16, "g(a, True)", "None"),
        (22, "self.y", "(not (self.y))"),
        (23, 'self.x += "b"', "pass"),
        (24, 'g(f"{1}")', "pass"),
        (25, "self", "(not (self))"),
        (26, "continue", "break"),
        (27, "False", "True"),
    ]


def test_a_change_knows_its_function_and_its_statement() -> None:
    found = {change.before: (change.function, change.lines) for change in changes(SOURCE)}
    assert found[">="] == ("f", (8, 8))
    assert found["raise g(\n            a,\n        )"] == ("f", (13, 15))
    assert found["continue"] == ("C.m", (26, 26))


@pytest.mark.parametrize("change", list(changes(SOURCE)), ids=str)
def test_a_change_touches_only_its_place_and_moves_no_line(change: Change) -> None:
    changed = change.applied(SOURCE)
    compile(changed, "f.py", "exec")
    before, after = SOURCE.splitlines(), changed.splitlines()
    first, last = change.line, change.line + change.before.count("\n")
    assert [number for number, line in enumerate(before, 1) if line != after[number - 1]] == [
        *range(first, last + 1)
    ]
    assert change.after in after[first - 1]
    assert len(after) == len(before)


def test_the_same_seed_draws_the_same_changes_and_more_of_them_go_on_from_there() -> None:
    first = drawn(PARTS, 50, 7)
    assert first == drawn(PARTS, 100, 7)[:50]
    assert first != drawn(PARTS, 50, 8)
    assert len({file for file, _ in first}) > 10


def test_functions_that_are_in_use_get_the_changed_code() -> None:
    module = ModuleType("changed")
    file = str(Path("a", "changed.py"))
    source = (
        "class C:\n    def m(self): return [n for n in (1, 2) if n < 2]\n\n"
        "def make(n):\n    return lambda: n\n"
    )
    exec(compile(source, file, "exec"), module.__dict__)
    bound = module.C().m
    assert bound() == [1]
    assert swapped(file, source.replace("n < 2", "n <= 2"))
    assert bound() == [1, 2]
    made = module.make(5)
    assert not swapped(file, source.replace("lambda: n", "lambda: 0"))
    assert made() == 5


def test_a_reason_is_found_again_whatever_the_texts_hold() -> None:
    key = Key("engine/x.py", "C.m", "if a | b and `c`:", "a | b → None")
    assert reasons(row(key, "makes no difference: a | b")) == {key: "makes no difference: a | b"}


def test_whatever_has_a_reason_is_in_a_function_that_there_still_is() -> None:
    there = {
        (file.relative_to(PACKAGE).as_posix(), change.function) for file, change in drawn(PARTS, None, 1)
    }
    assert {(key.file, key.function) for key in reasons(SURVIVORS.read_text("utf-8"))} <= there
