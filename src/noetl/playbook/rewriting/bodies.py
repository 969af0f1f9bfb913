"""Says the bodies of v1 and v2 as canonical pipelines.

Retries and tolerated errors become rules, sinks become tasks behind what they store, groups of tasks
become a part of the pipeline where that makes no difference. A task that only passes a value on
stands last where the step's result would otherwise be that of a sink.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from noetl.playbook.model import (
    Block,
    Case,
    Directive,
    Guard,
    Loop,
    Node,
    Parallel,
    Playbook,
    Record,
    Rule,
    Sink,
    Task,
    Value,
)
from noetl.playbook.rewriting.expressions import Names, Rewriter, as_guard, expression, negation
from noetl.playbook.rewriting.inexpressible import Report
from noetl.playbook.rewriting.reads import names_read
from noetl.playbook.rewriting.repeats import CONTINUE, FAIL, plain_rules
from noetl.playbook.rewriting.views import in_tasks
from noetl.template import Template

UNLABELLED: Final = "task_1"


class Labels:
    """Labels that hide nothing: new to the playbook and read by none of its templates."""

    def __init__(self, playbook: Playbook) -> None:
        self._taken = set(names_read(playbook) | playbook.workload.keys() | _names_given(playbook))

    def fresh(self, wanted: str) -> str:
        label, number = wanted, 1
        while label in self._taken:
            number += 1
            label = f"{wanted}_{number}"
        self._taken.add(label)
        return label


def _names_given(value: Value) -> frozenset[str]:
    """Names of steps, tasks, iterators and args."""
    found: set[str] = set()
    if isinstance(value, Record):
        for name in value.__struct_fields__:
            item = getattr(value, name)
            if name in ("name", "label", "iterator", "binds") and isinstance(item, str):
                found.add(item)
            elif name in ("args", "vars", "values", "set_iter", "set_ctx") and isinstance(item, dict):
                found |= item.keys()
            found |= _names_given(item)
    elif isinstance(value, dict):
        found = found.union(*(_names_given(item) for item in value.values()))
    elif isinstance(value, list | tuple):
        found = found.union(*(_names_given(item) for item in value))
    return frozenset(found)


class Bodies:
    """Rewrites bodies; what cannot be said goes to the report."""

    def __init__(self, playbook: Playbook, report: Report) -> None:
        self.labels = Labels(playbook)
        self.report = report

    @classmethod
    def sharing(cls, other: Bodies, report: Report) -> Bodies:
        """Another with the same labels that reports elsewhere."""
        found = cls.__new__(cls)
        found.labels = other.labels
        found.report = report
        return found

    def pipeline(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """The same nodes as tasks and loops in sequence."""
        flat = [part for node in nodes for part in self._flattened(node)]
        self._check_labels(flat)
        found: list[Node] = []
        for index, node in enumerate(flat):
            others = [*flat[:index], *flat[index + 1 :]]
            found += self._node(node, others, last=index == len(flat) - 1)
        return tuple(found)

    def _flattened(self, node: Node) -> list[Node]:
        if isinstance(node, Parallel):
            return self._sequence(node)
        if isinstance(node, Block) and node.loop is None:
            if node.args or node.when is not None:
                self.report.say("run-scope", node.at)
            inner = [part for child in node.body for part in self._flattened(child)]
            if node.sink is not None and inner:
                inner[-1] = self._with_own_sink(inner[-1], node.sink)
            return self._renamed(node.label, inner)
        return [node]

    def _with_own_sink(self, node: Node, sink: Sink) -> Node:
        if isinstance(node, Task) and node.sink is None:
            return msgspec.structs.replace(node, sink=sink)
        self.report.say("run-scope", sink.at)
        return node

    def _renamed(self, label: str, inner: list[Node]) -> list[Node]:
        """A group is read by its own name; the last of its tasks takes that name."""
        if inner and isinstance(inner[-1], Task) and inner[-1].label != label:
            if inner[-1].label in names_read(tuple(inner)):
                self.report.say("run-scope", inner[-1].at)
            inner[-1] = msgspec.structs.replace(inner[-1], label=label)
        return inner

    def _sequence(self, parallel: Parallel) -> list[Node]:
        """Nodes of which each waits for the one before it."""
        branches = parallel.branches
        chained = all(index - 1 in branch.after for index, branch in enumerate(branches) if index)
        if not chained:
            self.report.say("parallel-run", parallel.at)
        if parallel.args or parallel.when is not None:
            self.report.say("run-scope", parallel.at)
        inner = [part for branch in branches for part in self._flattened(branch.node)]
        return self._renamed(parallel.label, inner)

    def _check_labels(self, nodes: list[Node]) -> None:
        seen: set[str] = set()
        for node in nodes:
            if isinstance(node, Task | Block):
                if node.label in seen:
                    self.report.say("run-scope", node.at)
                seen.add(node.label)

    # --- one node -----------------------------------------------------------------------------------------

    def _node(self, node: Node, others: list[Node], *, last: bool) -> list[Node]:
        if isinstance(node, Block):
            assert node.loop is not None
            return [
                msgspec.structs.replace(node, loop=canonical_loop(node.loop), body=self.pipeline(node.body))
            ]
        assert isinstance(node, Task), "cases stand alone and are rewritten elsewhere"
        task = self.task(node)
        if node.when is not None:
            if last or node.label in names_read(tuple(others)) or "_prev" in names_read(tuple(others)):
                self.report.say("task-when", node.at)
            task = self.skipped_unless(task, node.when)
        if node.sink is None:
            return [task]
        task = self.readable(task)
        return [task, *self.stored(task.label, node.sink, in_tasks(task.label), keep=last)]

    def task(self, task: Task) -> Task:
        """The call itself, its repeats and tolerated errors as rules."""
        return msgspec.structs.replace(
            task,
            rules=plain_rules(task, self.report),
            retry=None,
            poll=None,
            sink=None,
            when=None,
            on_error="fail",
        )

    def skipped_unless(self, task: Task, guard: Guard) -> Task:
        text = expression(guard)
        if text is None:
            self.report.say("guard-text", task.at)
            return task
        skip = Rule(when=as_guard([negation(text)]), then=Directive(do="skip"))
        return msgspec.structs.replace(task, rules=(skip, *(task.rules or (FAIL, CONTINUE))))

    def readable(self, task: Task) -> Task:
        """The task under a label that a template can read."""
        if task.label.isidentifier() and task.label != UNLABELLED:
            return task
        return msgspec.structs.replace(task, label=self.labels.fresh("call"))

    def stored(self, label: str, sink: Sink, names: Names, *, keep: bool) -> list[Node]:
        """The sink of the task `label` as a task behind it, then the result again if it must stay last."""
        rewriter = Rewriter(names)
        task = self.task(rewriter.value(sink.task))
        task = msgspec.structs.replace(task, label=self.labels.fresh(sink.task.label))
        if sink.when is not None:
            task = self.skipped_unless(task, rewriter.value(sink.when))
        if rewriter.failed:
            self.report.say("sink", sink.at)
        return [task, self.kept(Template("{{ " + label + " }}"))] if keep else [task]

    def kept(self, value: Value, wanted: str = "keep_result", rules: tuple[Rule, ...] | None = None) -> Task:
        """A task whose result is this value."""
        return Task(
            label=self.labels.fresh(wanted),
            kind="python",
            args={"value": value},
            config={"code": "result = value"},
            rules=rules,
        )


def canonical_loop(loop: Loop) -> Loop:
    """The loop with a source that is always a list."""
    if not loop.wrap_scalar:
        return loop
    return msgspec.structs.replace(loop, source=_as_list(loop.source), wrap_scalar=False)


def _as_list(source: Value) -> Value:
    if isinstance(source, list):
        return source
    if not isinstance(source, Template) or not source.sole:
        return [source]
    text = expression(source)
    assert text is not None
    item = text if text.replace(".", "").isidentifier() else f"({text})"
    test = f"{item} is sequence and {item} is not string and {item} is not mapping"
    return Template("{{ " + f"{item} if {test} else [{item}]" + " }}", source.at)


def has_case(nodes: tuple[Node, ...]) -> bool:
    return any(isinstance(node, Case) for node in nodes)
