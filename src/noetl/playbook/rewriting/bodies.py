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
from noetl.playbook.rewriting.expressions import Names, Rewriter, as_guard, expression, negation, operand
from noetl.playbook.rewriting.inexpressible import Report
from noetl.playbook.rewriting.reads import names_read
from noetl.playbook.rewriting.repeats import CONTINUE, FAIL, plain_rules
from noetl.playbook.rewriting.views import in_repeats, in_tasks
from noetl.template import Template

UNLABELLED: Final = "task_1"


class Labels:
    """Labels for one pipeline that hide nothing: new to it, and read by no template of the playbook."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = set(taken)

    @classmethod
    def of(cls, playbook: Playbook) -> Labels:
        return cls(names_read(playbook) | playbook.workload.keys() | _names_given(playbook))

    def beside(self, nodes: tuple[Node, ...]) -> Labels:
        """Labels for a pipeline that holds these nodes."""
        return Labels(frozenset(self._taken) | _labels(nodes))

    def fresh(self, wanted: str) -> str:
        label, number = wanted, 1
        while label in self._taken:
            number += 1
            label = f"{wanted}_{number}"
        self._taken.add(label)
        return label


def _names_given(value: Value) -> frozenset[str]:
    """Names of steps, iterators, args and kept values."""
    keys = ("args", "vars", "values", "set_iter", "set_ctx")
    return _collected(value, ("name", "iterator", "binds", "into"), keys)


def args_given(value: Value) -> frozenset[str]:
    """The names of all args, which hide results of the same name."""
    return _collected(value, (), ("args",))


def _labels(value: Value) -> frozenset[str]:
    return _collected(value, ("label",), ())


def _collected(value: Value, texts: tuple[str, ...], keys: tuple[str, ...]) -> frozenset[str]:
    """The texts and the keys of mappings that stand in these fields, anywhere inside."""
    found: set[str] = set()
    if isinstance(value, Record):
        for name in value.__struct_fields__:
            item = getattr(value, name)
            if name in texts and isinstance(item, str):
                found.add(item)
            elif name in keys and isinstance(item, dict):
                found |= item.keys()
            if not isinstance(item, Sink):  # its label is chosen anew
                found |= _collected(item, texts, keys)
    elif isinstance(value, dict):
        found = found.union(*(_collected(item, texts, keys) for item in value.values()))
    elif isinstance(value, list | tuple):
        found = found.union(*(_collected(item, texts, keys) for item in value))
    return frozenset(found)


class Bodies:
    """Rewrites bodies; what cannot be said goes to the report."""

    def __init__(self, labels: Labels, report: Report) -> None:
        self.labels = labels
        self.report = report

    def pipeline(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """The same nodes as tasks and loops in sequence."""
        groups: list[list[Node]] = []
        flat = [part for node in nodes for part in self._flattened(node, groups)]
        self._check_labels(flat, groups)
        found: list[Node] = []
        for index, node in enumerate(flat):
            others = [*flat[:index], *flat[index + 1 :]]
            found += self._node(node, others, last=index == len(flat) - 1)
        return tuple(found)

    def _flattened(self, node: Node, groups: list[list[Node]]) -> list[Node]:
        if isinstance(node, Parallel):
            return self._sequence(node, groups)
        if isinstance(node, Block) and node.loop is None:
            if node.args or node.when is not None:
                self.report.say("run-scope", node.at)
            inner = [part for child in node.body for part in self._flattened(child, groups)]
            if node.sink is not None and inner:
                inner[-1] = self._with_own_sink(inner[-1], node.sink)
            return self._renamed(node.label, inner, groups)
        return [node]

    def _with_own_sink(self, node: Node, sink: Sink) -> Node:
        if isinstance(node, Task) and node.sink is None:
            return msgspec.structs.replace(node, sink=sink)
        self.report.say("run-scope", sink.at)
        return node

    def _renamed(self, label: str, inner: list[Node], groups: list[list[Node]]) -> list[Node]:
        """A group is read by its own name; the last of its tasks takes that name."""
        if inner and isinstance(inner[-1], Task) and inner[-1].label != label:
            if inner[-1].label in names_read(tuple(inner)):
                self.report.say("run-scope", inner[-1].at)
            inner[-1] = msgspec.structs.replace(inner[-1], label=label)
        groups.append(inner)
        return inner

    def _sequence(self, parallel: Parallel, groups: list[list[Node]]) -> list[Node]:
        """Nodes of which each waits for the one before it."""
        branches = parallel.branches
        chained = all(index - 1 in branch.after for index, branch in enumerate(branches) if index)
        if not chained:
            self.report.say("parallel-run", parallel.at)
        if parallel.args or parallel.when is not None:
            self.report.say("run-scope", parallel.at)
        inner = [part for branch in branches for part in self._flattened(branch.node, groups)]
        return self._renamed(parallel.label, inner, groups)

    def _check_labels(self, nodes: list[Node], groups: list[list[Node]]) -> None:
        """Names must not clash, and nobody may read out of a group what only the group could see."""
        seen: set[str] = set()
        for node in nodes:
            if isinstance(node, Task | Block):
                if node.label in seen:
                    self.report.say("run-scope", node.at)
                seen.add(node.label)
        for group in groups:
            members = _labels(tuple(group))
            outside = tuple(node for node in nodes if not _labels((node,)) & members)
            if names_read(outside) & _labels(tuple(group[:-1])):
                self.report.say("run-scope", group[0].at)

    # --- one node -------------------------------------------------------------------------------------

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
        skip = Rule(when=as_guard([negation(expression(guard))]), then=Directive(do="skip"))
        return msgspec.structs.replace(task, rules=(skip, *(task.rules or (FAIL, CONTINUE))))

    def readable(self, task: Task) -> Task:
        """The task under a label that a template can read."""
        if task.label.isidentifier() and task.label != UNLABELLED:
            return task
        return msgspec.structs.replace(task, label=self.labels.fresh("call"))

    def renamed(self, task: Task, rewriter: Rewriter) -> Task:
        """The task with its names changed, and its repeats as rules, which read its own outcome."""
        own = Rewriter({name: to for name, to in rewriter.names.items() if name not in in_repeats(0)})
        changed: Task = rewriter.value(msgspec.structs.replace(task, retry=None, poll=None))
        changed = msgspec.structs.replace(changed, retry=own.value(task.retry), poll=own.value(task.poll))
        rewriter.failed += own.failed
        return self.task(changed)

    def stored(self, label: str, sink: Sink, names: Names, *, keep: bool) -> list[Node]:
        """The sink of the task `label` as a task behind it, then the result again if it must stay last."""
        rewriter = Rewriter(names)
        task = self.renamed(sink.task, rewriter)
        task = msgspec.structs.replace(task, label=self.labels.fresh(sink.task.label))
        if sink.when is not None:
            task = self.skipped_unless(task, rewriter.value(sink.when))
        if rewriter.failed:
            self.report.say("sink", sink.at)
        value = Template("{{ " + label + " }}")
        return [task, kept(self.labels.fresh("keep_result"), value)] if keep else [task]


def kept(label: str, value: Value) -> Task:
    """A task whose result is this value."""
    return Task(label=label, kind="python", args={"value": value}, config={"code": "result = value"})


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
    item = operand(expression(source))
    test = f"{item} is sequence and {item} is not string and {item} is not mapping"
    return Template("{{ " + f"{item} if {test} else [{item}]" + " }}", source.at)
