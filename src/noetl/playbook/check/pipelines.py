"""The inside of a step: labels, jumps, workbook calls, and the fields of each tool."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Table
from typing import Final

import msgspec

from noetl.playbook.check.cycles import in_cycles
from noetl.playbook.check.sql import check_sql
from noetl.playbook.fields import quoted
from noetl.playbook.findings import Findings
from noetl.playbook.model import (
    Block,
    Case,
    Node,
    Parallel,
    Playbook,
    Sink,
    SinkAction,
    Step,
    Task,
    TaskAction,
    Value,
    WorkbookEntry,
)
from noetl.records.tool import ToolDescription, field_types
from noetl.template import Template

SHORT_KINDS: Final = {
    "pg": "postgres",
    "postgresql": "postgres",
    "py": "python",
    "duck": "duckdb",
    "bash": "shell",
    "sh": "shell",
    "sql": "postgres",
    "subplaybook": "playbook",
}


def owners(playbook: Playbook) -> Iterator[Step | WorkbookEntry]:
    """Everything that has a body."""
    yield from playbook.steps
    yield from playbook.workbook


NOT_FIELDS: Final = {"type": "write `kind`", "as": "a task's result is read by its label"}
"""Words that mean something in no dialect, where a kind does not have them as a field."""

OTHER_WORDS: Final = {
    "retry": "repeat it by a rule: {when: …, then: {do: retry, attempts: …}}",
    "poll": "repeat it by a rule: {when: …, then: {do: retry, attempts: …}}",
    "with": "write `args`",
    "sink": "write another task after it",
    "loop": "put it on the step, or make a block: {loop: …, tool: …}",
}
"""What to write for words that other dialects have on a task."""


def tasks_in(nodes: tuple[Node, ...]) -> Iterator[Task]:
    """Every task of a body, sinks and case actions included."""
    for node in nodes:
        if isinstance(node, Task):
            yield node
            yield from sink_task(node.sink)
        elif isinstance(node, Block):
            yield from tasks_in(node.body)
            yield from sink_task(node.sink)
        elif isinstance(node, Parallel):
            yield from tasks_in(tuple(branch.node for branch in node.branches))
        else:
            yield from _case_tasks(node)


def sink_task(sink: Sink | None) -> Iterator[Task]:
    if sink is not None:
        yield sink.task


def _case_tasks(case: Case) -> Iterator[Task]:
    if case.call is not None:
        yield case.call
    for branch in case.branches:
        for action in branch.actions:
            if isinstance(action, TaskAction):
                yield action.task
            elif isinstance(action, SinkAction):
                yield action.sink.task


def check_pipelines(playbook: Playbook, kinds: Table[str, ToolDescription], findings: Findings) -> None:
    entries = {entry.name for entry in playbook.workbook}
    for owner in owners(playbook):
        _check_labels(owner.body, findings)
        for task in (*tasks_in(owner.body), *sink_task(owner.sink)):
            _check_tool(task, kinds, entries, findings)
    _check_recursion(playbook, findings)


def _check_labels(nodes: tuple[Node, ...], findings: Findings) -> None:
    """Labels are unique in their pipeline, and a jump stays inside it."""
    labels: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, Case):
            continue
        if node.label in labels:
            findings.report(
                "label.duplicate",
                node.at,
                f"two tasks of a pipeline are labelled `{node.label}`, first on line {labels[node.label]}",
            )
        labels.setdefault(node.label, node.at.line)
    for node in nodes:
        if isinstance(node, Task) and node.rules:
            _check_jumps(node, labels, findings)
        elif isinstance(node, Block):
            _check_labels(node.body, findings)
        elif isinstance(node, Parallel):
            _check_labels(tuple(branch.node for branch in node.branches), findings)


def _check_jumps(task: Task, labels: dict[str, int], findings: Findings) -> None:
    for rule in task.rules or ():
        to = rule.then.to
        if rule.then.do == "jump" and to is not None and to not in labels:
            meant = findings.guess(to, labels)
            findings.report(
                "jump.unknown_label",
                rule.then.at,
                f"no task of this pipeline is labelled `{to}`",
                f"did you mean `{meant}`?" if meant else f"labels here: {quoted(labels)}",
            )


def _check_tool(
    task: Task, kinds: Table[str, ToolDescription], entries: set[str], findings: Findings
) -> None:
    description = kinds.get(task.kind)
    if description is None:
        meant = SHORT_KINDS.get(task.kind) or findings.guess(task.kind, kinds)
        findings.report(
            "tool.unknown_kind",
            task.config_at.get("kind", task.at),
            f"there is no tool kind `{task.kind}`",
            f"did you mean `{meant}`?" if meant else f"kinds: {quoted(sorted(kinds))}",
        )
        return
    _check_fields(task, description, findings)
    check_sql(task, description, findings)
    if task.kind == "workbook":
        _check_workbook_name(task, entries, findings)


def _check_fields(task: Task, description: ToolDescription, findings: Findings) -> None:
    known = field_types(description)
    for name, written in task.config.items():
        at = task.config_at.get(name, task.at)
        info = known.get(name)
        if info is None:
            _report_unknown_field(task, name, known, findings)
        elif not has_template(written):
            try:
                msgspec.convert(written, info.type)
            except msgspec.ValidationError as error:
                findings.report(
                    "tool.field_value",
                    at,
                    f"`{name}` of tool kind `{task.kind}` does not fit: {_plain(error)}",
                )
    for name, info in known.items():
        if info.required and name not in task.config:
            findings.report("tool.missing_field", task.first_at, f"tool kind `{task.kind}` needs `{name}`")
    for group in description.one_of:
        if not any(name in task.config for name in group):
            findings.report(
                "tool.missing_field", task.first_at, f"tool kind `{task.kind}` needs {_either(group)}"
            )
    _check_synonyms(task, description, findings)


def _report_unknown_field(task: Task, name: str, known: Table[str, object], findings: Findings) -> None:
    at = task.config_at.get(name, task.at)
    if name in NOT_FIELDS:
        findings.report("key.replaced", at, f"a task has no `{name}`", NOT_FIELDS[name])
        return
    meant = findings.guess(name, known)
    findings.report(
        "tool.unknown_field",
        at,
        f"tool kind `{task.kind}` has no field `{name}`",
        f"did you mean `{meant}`?" if meant else OTHER_WORDS.get(name),
    )


def _check_synonyms(task: Task, description: ToolDescription, findings: Findings) -> None:
    written: dict[str, str] = {}
    for name in task.config:
        same = description.synonyms.get(name, name)
        if same in written:
            findings.report(
                "tool.same_field_twice",
                task.config_at.get(name, task.at),
                f"`{name}` and `{written[same]}` mean the same field",
                f"keep `{same}`",
            )
        written.setdefault(same, name)


def _plain(error: msgspec.ValidationError) -> str:
    return str(error).replace("`", "").rstrip(".")


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def has_template(written: Value) -> bool:
    if isinstance(written, Template):
        return True
    if isinstance(written, dict):
        return any(has_template(item) for item in written.values())
    return isinstance(written, list) and any(has_template(item) for item in written)


def _check_workbook_name(task: Task, entries: set[str], findings: Findings) -> None:
    name = task.config.get("name")
    at = task.config_at.get("name", task.at)
    if isinstance(name, Template):
        findings.report("value.template", at, "a workbook task is named by plain text", "name it directly")
    elif isinstance(name, str) and name not in entries:
        meant = findings.guess(name, entries)
        findings.report(
            "workbook.unknown",
            at,
            f"there is no workbook task `{name}`",
            f"did you mean `{meant}`?" if meant else None,
        )


def _check_recursion(playbook: Playbook, findings: Findings) -> None:
    """A workbook task that calls itself, directly or through others, would never end."""
    calls = {
        entry.name: [
            name
            for task in tasks_in(entry.body)
            if task.kind == "workbook" and isinstance(name := task.config.get("name"), str)
        ]
        for entry in playbook.workbook
    }
    recursive = in_cycles(calls)
    for entry in playbook.workbook:
        if entry.name in recursive:
            findings.report("workbook.recursive", entry.at, f"workbook task `{entry.name}` calls itself")
