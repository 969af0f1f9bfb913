"""Playbook texts that carry their expected diagnostics, for the tests of dialects and checks.

`‹code›` stands directly before the character at which `code` must be reported. `marked` takes the marks out
and says where they stood, so that a test shows the mistake and its exact place in one line.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from textwrap import dedent, indent
from typing import Any

import yaml

from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.load import Loaded, load
from noetl.playbook.model import Playbook, Step, Task
from noetl.tools.registry import builtin_kinds

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo}\n"
_MARK = re.compile(r"‹([\w.]+)›")

Report = tuple[str, int, int]


def marked(text: str) -> tuple[str, list[Report]]:
    """The text without its marks, and the code, line and column of each."""
    expected = []
    clean = ""
    position = 0
    for mark in _MARK.finditer(text):
        clean += text[position : mark.start()]
        position = mark.end()
        expected.append((mark[1], clean.count("\n") + 1, len(clean) - clean.rfind("\n")))
    return clean + text[position:], sorted(expected, key=lambda report: report[1:])


def loaded(text: str) -> Loaded:
    return load(text.encode(), builtin_kinds())


def reports(found: tuple[Diagnostic, ...]) -> list[Report]:
    return [(one.code, one.line, one.column) for one in found]


def step(fields: str) -> str:
    """A playbook of one step with these fields, in flow style."""
    return f"{HEAD}workflow:\n  - {{step: start, {fields}}}\n"


def task(fields: str, kind: str = "noop") -> str:
    """A playbook of one task with these fields, in flow style."""
    return step(f"tool: {{kind: {kind}, {fields}}}")


def rules(written: str) -> str:
    """A playbook of one task with these rules, in flow style."""
    return task(f"spec: {{policy: {{rules: [{written}]}}}}")


def playbook(sections: str) -> str:
    """A playbook with these root sections."""
    return HEAD + dedent(sections).strip("\n") + "\n"


def workflow(steps: str) -> str:
    """A playbook with these steps."""
    return HEAD + "workflow:\n" + indent(dedent(steps).strip("\n"), "  ") + "\n"


ODD: tuple[Any, ...] = (
    None,
    [],
    {},
    "",
    5,
    -1.5,
    True,
    "{{ x }}",
    "{{ x",
    [None],
    {"a": "b"},
    [["x"]],
    {"{{ k }}": 1},
)


def mutants(text: str) -> Iterator[str]:
    """The document with each of its values in turn replaced by each of a few that rarely fit."""
    data = yaml.safe_load(text)
    for path in _paths(data):
        for odd in ODD:
            changed = copy.deepcopy(data)
            owner = changed
            for key in path[:-1]:
                owner = owner[key]
            owner[path[-1]] = odd
            yield yaml.dump(changed, Dumper=yaml.CSafeDumper, sort_keys=False)


def _paths(data: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    for key, value in items:
        yield (*path, key)
        yield from _paths(value, (*path, key))


def assert_never_raises(text: str) -> None:
    """Whatever stands anywhere: diagnostics with places, and a playbook only without errors."""
    for mutant in mutants(text):
        found = loaded(mutant)
        assert found.valid is not any(one.severity == "error" for one in found.diagnostics), mutant
        assert all(one.line >= 1 and one.column >= 1 for one in found.diagnostics), mutant


def only(text: str) -> Diagnostic:
    """The one diagnostic of a text whose one mark says where it stands."""
    clean, expected = marked(text)
    found = loaded(clean).diagnostics
    assert reports(found) == expected
    assert len(found) == 1
    return found[0]


def assert_reports(text: str) -> None:
    clean, expected = marked(text)
    found = sorted(reports(loaded(clean).diagnostics), key=lambda report: (report[1:], report[0]))
    assert found == sorted(expected, key=lambda report: (report[1:], report[0]))


def valid(text: str) -> Playbook:
    """The model of a playbook that nothing is said about."""
    found = loaded(text)
    assert found.diagnostics == ()
    assert found.playbook is not None
    return found.playbook


def first_step(text: str) -> Step:
    return valid(text).steps[0]


def first_task(text: str) -> Task:
    node = first_step(text).body[0]
    assert isinstance(node, Task)
    return node
