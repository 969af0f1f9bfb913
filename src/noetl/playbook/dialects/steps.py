"""What the steps and workbook entries of v2 and canonical have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from noetl.playbook.dialects.loops import read_loop
from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.specs import knobs
from noetl.playbook.dialects.tasks import body, read_sink
from noetl.playbook.fields import Fields
from noetl.playbook.knobs import TASK_KNOBS
from noetl.playbook.model import Step, WorkbookEntry
from noetl.playbook.reader import Mapping, Node

STEP_HINTS: Final = {
    "type": "write `tool: {kind: …}`",
    "as": "a step's result is read by the step's name",
    "call": "write `tool: {kind: workbook, name: …}`",
    "run": "write a list under `tool`",
    "with": "write `args`",
    "policy": "write `spec.policy`",
    "join": "write `spec.join`",
}
"""Keys of other dialects and likely slips, with what to write on a step instead."""

WORKBOOK_KEYS: Final = frozenset({"name", "desc", "tool", "loop", "spec", "sink"})


def open_step(low: Lowering, node: Node, known: Collection[str]) -> Fields | None:
    """The fields of a step that has a name."""
    if not isinstance(node, Mapping):
        low.findings.report("value.type", node, "a step must be a mapping with `step`, its name")
        return None
    refused = node.entries.keys() & STEP_HINTS.keys() - known
    for word in refused:
        low.findings.report(
            "key.replaced", node.entries[word].key, f"`{word}` is not a key of a step", STEP_HINTS[word]
        )
    if "when" in node.entries:
        low.findings.report(
            "step.when",
            node.entries["when"].key,
            "a step has no `when`",
            "decide entry by `spec.policy.admit.rules`, or routing on the way that leads here",
        )
    written = getattr(node.get("step"), "value", None)
    what = f"step `{written}`" if isinstance(written, str) else "a step"
    fields = Fields(low.findings, node, what, known, reported={*refused, "when"})
    fields.require("step")
    name = fields.name("step")
    if name is not None:
        low.declare("a step", name, fields.place("step"))
    return fields


def step_spec(low: Lowering, step: Fields) -> Fields:
    """The fields of a step's `spec`, empty where it has none."""
    node = step.mapping("spec")
    if node is None:
        node = Mapping(step.node.line, step.node.column, {})
    return Fields(low.findings, node, f"`spec` of {step.what}", node.entries)


def unique_steps(low: Lowering, steps: Iterable[Step | None]) -> tuple[Step, ...]:
    """All steps that could be read; a name used twice is reported."""
    found = tuple(step for step in steps if step is not None)
    seen: dict[str, int] = {}
    for step in found:
        if step.name in seen:
            low.findings.report(
                "step.duplicate",
                step.at,
                f"step `{step.name}` is defined twice, first on line {seen[step.name]}",
            )
        seen.setdefault(step.name, step.at.line)
    return found


def unique_entries(low: Lowering, entries: Iterable[WorkbookEntry | None]) -> tuple[WorkbookEntry, ...]:
    found = tuple(entry for entry in entries if entry is not None)
    seen: dict[str, int] = {}
    for entry in found:
        if entry.name in seen:
            low.findings.report(
                "workbook.duplicate",
                entry.at,
                f"workbook task `{entry.name}` is defined twice, first on line {seen[entry.name]}",
            )
        seen.setdefault(entry.name, entry.at.line)
    return found


def workbook_entry(low: Lowering, node: Node) -> WorkbookEntry | None:
    """A named task, pipeline or block."""
    fields = low.fields(node, "a workbook entry", WORKBOOK_KEYS)
    if fields is None:
        return None
    fields.require("name", "tool")
    name = fields.name("name")
    loop = read_loop(low, fields)
    spec = fields.mapping("spec")
    own = {} if spec is None else knobs(low, Fields(low.findings, spec, "spec", spec.entries), TASK_KNOBS, {})
    nodes = body(low, fields.raw("tool"), loop)
    sink = read_sink(low, fields)
    if name is None:
        return None
    return WorkbookEntry(
        name=name,
        description=fields.text("desc"),
        loop=loop,
        body=nodes,
        sink=sink,
        spec=own,
        at=position(fields.place("name")),
    )
