"""Mutations of a playbook's data: those that may break it, and those that keep it a valid playbook.

They change the tree they are given. A tree may end up holding one subtree twice; the dumper then writes an
anchor and aliases, which is welcome.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

from noetl.tools.registry import BUILTIN
from tests.fuzz.corpus import readable
from tests.fuzz.templates import GOOD, any_template

Tree = dict[str, Any]
Slot = tuple[Any, Any]
"""A list or mapping, and the index or key of one of its values."""
Mutation = Callable[[Random, Tree, Tree], None]
"""Changes the first tree; the second is one to borrow from."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 10**30, 0.5, -0.0, 1e308, float("inf"), float("nan"), "", " ", "text",
    "5s",
    "never", "1e3", "012", "on", "2024-01-01", "a.b.c", "\x7f\u2028", "é\U0001f600", "x" * 3000, [], {}, [[]],
    [None], {"": None}, {"a": {"b": {}}}, ["a", 1, None], {"kind": "noop"}, {"then": {"do": "retry"}},
)  # fmt: skip
NAMES = (
    "start",
    "end",
    "iter",
    "ctx",
    "result",
    "outcome",
    "event",
    "_prev",
    "args",
    "task_1",
    "",
    "no such",
)
VERSIONS = ("noetl.io/v1", "noetl.io/v2", "noetl.io/v3", "noetl/v2", 2, None)


@cache
def vocabulary() -> tuple[str, ...]:
    """Every key that some document of the corpus uses, once each."""
    found: dict[str, None] = {}
    for document in readable():
        for holder, key in slots(document.tree):
            if isinstance(holder, dict) and isinstance(key, str):
                found[key] = None
    return tuple(found)


def slots(tree: Any) -> list[Slot]:
    """Every place of a tree where a value stands."""
    found: list[Slot] = []
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def _some_slot(rng: Random, tree: Tree) -> Slot | None:
    found = slots(tree)
    return rng.choice(found) if found else None


def _some_holder(rng: Random, tree: Tree, kind: type) -> Any:
    found = [holder[key] for holder, key in slots(tree) if isinstance(holder[key], kind) and holder[key]]
    return rng.choice(found) if found else None


def rename_key(rng: Random, tree: Tree, _: Tree) -> None:
    mapping = _some_holder(rng, tree, dict) or tree
    if not mapping:
        return
    old = rng.choice(list(mapping))
    letters = list(str(old))
    if letters and rng.random() < 0.5:  # a slip of the finger
        letters[rng.randrange(len(letters))] = rng.choice("abcdefghijklmnopqrstuvwxyz_-. ")
        name = "".join(letters)
    else:
        name = rng.choice(vocabulary())
    renamed = {name if key == old else key: value for key, value in mapping.items()}
    mapping.clear()
    mapping.update(renamed)


def delete_key(rng: Random, tree: Tree, _: Tree) -> None:
    slot = _some_slot(rng, tree)
    if slot is not None:
        holder, key = slot
        del holder[key]


def add_key(rng: Random, tree: Tree, _: Tree) -> None:
    mapping = _some_holder(rng, tree, dict) or tree
    mapping[rng.choice(vocabulary())] = deepcopy(rng.choice(VALUES))


def duplicate_item(rng: Random, tree: Tree, _: Tree) -> None:
    items = _some_holder(rng, tree, list)
    if items is not None:
        items.insert(rng.randint(0, len(items)), deepcopy(rng.choice(items)))


def move_value(rng: Random, tree: Tree, _: Tree) -> None:
    source, target = _some_slot(rng, tree), _some_holder(rng, tree, dict)
    if source is None or target is None:
        return
    holder, key = source
    value = holder.pop(key)
    if not _holds(value, target):  # a tree that holds itself cannot be written down
        target[key if isinstance(key, str) else rng.choice(vocabulary())] = value


def replace_value(rng: Random, tree: Tree, _: Tree) -> None:
    slot = _some_slot(rng, tree)
    if slot is not None:
        holder, key = slot
        holder[key] = deepcopy(rng.choice(VALUES))


def borrow_value(rng: Random, tree: Tree, other: Tree) -> None:
    """Puts a subtree of another document in, preferably where one of the same name stood."""
    source = _some_slot(rng, other)
    if source is None:
        return
    theirs, name = source
    same = [(holder, key) for holder, key in slots(tree) if key == name and isinstance(key, str)]
    slot = rng.choice(same) if same and rng.random() < 0.7 else _some_slot(rng, tree)
    if slot is not None:
        holder, key = slot
        holder[key] = deepcopy(theirs[name])


def template_value(rng: Random, tree: Tree, _: Tree) -> None:
    texts = [(holder, key) for holder, key in slots(tree) if isinstance(holder[key], str)]
    if texts:
        holder, key = rng.choice(texts)
        holder[key] = any_template(rng)


def wrap_value(rng: Random, tree: Tree, _: Tree) -> None:
    slot = _some_slot(rng, tree)
    if slot is not None:
        holder, key = slot
        value = holder[key]
        holder[key] = rng.choice(([value], [value, deepcopy(value)], {rng.choice(vocabulary()): value}))


def unwrap_value(rng: Random, tree: Tree, _: Tree) -> None:
    inner = [
        (holder, key) for holder, key in slots(tree) if isinstance(holder[key], dict | list) and holder[key]
    ]
    if inner:
        holder, key = rng.choice(inner)
        value = holder[key]
        holder[key] = rng.choice(list(value.values()) if isinstance(value, dict) else value)


def change_kind(rng: Random, tree: Tree, _: Tree) -> None:
    kinds = [holder for holder, key in slots(tree) if key in ("kind", "type") and holder is not tree]
    if kinds:
        rng.choice(kinds)["kind"] = rng.choice((*BUILTIN, "pg", "htpp", "Python", ""))


def change_dialect(rng: Random, tree: Tree, _: Tree) -> None:
    tree["apiVersion"] = rng.choice(VERSIONS)


def change_name(rng: Random, tree: Tree, _: Tree) -> None:
    """Names a step, label, iterator or target like something else."""
    named = [
        (holder, key)
        for holder, key in slots(tree)
        if key in ("step", "iterator", "name", "to", "task", "join")
    ]
    if named:
        holder, key = rng.choice(named)
        holder[key] = rng.choice((*NAMES, rng.choice(vocabulary())))


BREAKING: tuple[Mutation, ...] = (
    rename_key, delete_key, add_key, duplicate_item, move_value, replace_value, borrow_value, template_value,
    template_value, wrap_value, unwrap_value, change_kind, change_dialect, change_name,
)  # fmt: skip


# --- what keeps a playbook valid ------------------------------------------------------------------------


def reorder_steps(rng: Random, tree: Tree, _: Tree) -> None:
    """All but the first, which may be the entry."""
    steps = tree.get("workflow")
    if isinstance(steps, list) and len(steps) > 2:
        rest = steps[1:]
        rng.shuffle(rest)
        steps[1:] = rest


def reorder_keys(rng: Random, tree: Tree, _: Tree) -> None:
    mapping = _some_holder(rng, tree, dict) or tree
    entries = list(mapping.items())
    rng.shuffle(entries)
    mapping.clear()
    mapping.update(entries)


def describe(rng: Random, tree: Tree, _: Tree) -> None:
    steps = [step for step in tree.get("workflow") or [] if isinstance(step, dict)]
    if steps:
        rng.choice(steps)["desc"] = rng.choice(
            ("one line", "two\nlines\n", "'quoted': # not a comment", "é\u2028x")
        )


def change_number(rng: Random, tree: Tree, _: Tree) -> None:
    numbers = [(holder, key) for holder, key in slots(tree) if type(holder[key]) in (int, float)]
    if numbers:
        holder, key = rng.choice(numbers)
        holder[key] += rng.randint(1, 9)


def add_input(rng: Random, tree: Tree, other: Tree) -> None:
    workload = tree.setdefault("workload", {})
    if isinstance(workload, dict):
        values = [value for value in VALUES if value == value and value not in (float("inf"), -float("inf"))]
        workload[f"input_{rng.randint(1, 99)}"] = rng.choice(values)


def template_a_value(rng: Random, tree: Tree, _: Tree) -> None:
    """Data of the workload may be any template that parses."""
    workload = tree.setdefault("workload", {})
    if isinstance(workload, dict):
        workload[f"made_{rng.randint(1, 99)}"] = rng.choice(GOOD[:1] + GOOD[4:6])


PRESERVING: tuple[Mutation, ...] = (
    reorder_steps, reorder_keys, describe, change_number, add_input, template_a_value,
)  # fmt: skip


def _holds(value: Any, target: Any) -> bool:
    if value is target:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_holds(item, target) for item in inner)
