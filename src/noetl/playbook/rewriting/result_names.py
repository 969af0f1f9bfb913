"""Reads results by the names of steps, where v1 read them by the names of tasks and joins.

A step of v1 binds its result to the name of the task it calls, and the step behind an iterator reads
`join_results`. A task's name can stand for several steps; it is changed only where exactly one of them
can have run before.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from noetl.playbook.model import Block, Node, Parallel, Playbook, Router, Step, Task, WorkbookEntry
from noetl.playbook.rewriting.bodies import args_given
from noetl.playbook.rewriting.expressions import Rename, Rewriter, to
from noetl.playbook.rewriting.inexpressible import Report
from noetl.playbook.rewriting.reads import names_read
from noetl.playbook.rewriting.routes import given_args

Named = TypeVar("Named", Step, Router, WorkbookEntry)


def name_results(playbook: Playbook, report: Report) -> Playbook:
    """The playbook with joins of iterators and names of tasks replaced by names of steps."""
    joined = tuple(_without_join(step, playbook, report) for step in playbook.steps)
    playbook = msgspec.structs.replace(playbook, steps=joined)
    naming = _Naming(playbook, report)
    return msgspec.structs.replace(
        playbook,
        steps=tuple(naming.step(step) for step in playbook.steps),
        workbook=tuple(naming.entry(entry) for entry in playbook.workbook),
    )


def _without_join(step: Step, playbook: Playbook, report: Report) -> Step:
    if step.join is None or step.join.mode != "spread":
        return step
    (name,) = step.join.of
    loop = next(other for other in playbook.steps if other.name == name)
    if loop.spread is not None:  # reported where the loop stands
        return msgspec.structs.replace(step, join=None)
    sources = {other.name for other in playbook.steps if _leads(other, step.name)}
    if sources != {name}:
        report.say("join-sources", step.join.at)
    if not name.isidentifier() or name in args_given(playbook):
        report.say("step-name", loop.at)
    changed: Step = Rewriter({"join_results": to(name)}).value(step)
    return msgspec.structs.replace(changed, join=None)


def _leads(step: Step, name: str) -> bool:
    return any(target.step == name for arc in step.router.arcs for target in arc.targets)


class _Naming:
    def __init__(self, playbook: Playbook, report: Report) -> None:
        self._playbook = playbook
        self._report = report
        self._steps = {step.name: step for step in playbook.steps}
        self._given = given_args(playbook.steps)
        self._args = args_given(playbook)
        self._binders: dict[str, list[str]] = {}
        for step in playbook.steps:
            if step.binds is not None:
                self._binders.setdefault(step.binds, []).append(step.name)

    def step(self, step: Step) -> Step:
        names = self._names(step, self._before(step))
        args = self._given.get(step.name, frozenset()) | step.args.keys()
        outer = self._rewritten(msgspec.structs.replace(step, router=Router(at=step.at)), names, args)
        if step.binds is not None:
            names = names | {step.binds: [step.name]}
        router = self._rewritten(step.router, names, args)
        return msgspec.structs.replace(outer, router=router, binds=None)

    def entry(self, entry: WorkbookEntry) -> WorkbookEntry:
        """A workbook task may be called from anywhere, so any step may have run before it."""
        called = [
            node.args.keys()
            for step in self._playbook.steps
            for node in step.body
            if isinstance(node, Task) and node.kind == "workbook" and node.config.get("name") == entry.name
        ]
        own = set(entry.args).union(*called, _labels(entry.body))
        names = {name: steps for name, steps in self._binders.items() if name not in own}
        return self._rewritten(entry, names)

    def _can_read(self, step: str) -> bool:
        return step.isidentifier() and step not in self._args

    def _before(self, step: Step) -> frozenset[str]:
        """The steps that may have run before it."""
        if any(other.spread or _forks(other) for other in self._playbook.steps):
            return frozenset(self._steps)
        found: set[str] = set()
        waiting = [other for other in self._playbook.steps if _leads(other, step.name)]
        while waiting:
            source = waiting.pop()
            if source.name not in found:
                found.add(source.name)
                waiting += [other for other in self._playbook.steps if _leads(other, source.name)]
        return frozenset(found)

    def _names(self, step: Step, before: frozenset[str]) -> dict[str, list[str]]:
        inside = _labels(step.body) if step.loop is not None else frozenset()
        return {
            name: [binder for binder in binders if binder in before]
            for name, binders in self._binders.items()
            if name not in inside
        }

    def _rewritten(
        self, part: Named, names: dict[str, list[str]], args: frozenset[str] = frozenset()
    ) -> Named:
        """The part with each name replaced by the one step that it can mean."""
        renames: dict[str, Rename] = {}
        for name in names_read(part) & names.keys():
            steps = names[name]
            if steps == [name] or not steps:
                continue
            if len(steps) > 1 or name in args or name in self._steps or not self._can_read(steps[0]):
                self._report.say("result-name", part.at)
            renames[name] = to(steps[0])
        changed: Named = Rewriter(renames).value(part)
        return changed


def _forks(step: Step) -> bool:
    return step.router.mode == "inclusive" or any(len(arc.targets) > 1 for arc in step.router.arcs)


def _labels(nodes: tuple[Node, ...]) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, Task | Block):
            found.add(node.label)
        if isinstance(node, Block):
            found |= _labels(node.body)
        if isinstance(node, Parallel):
            found |= {label for branch in node.branches for label in _labels((branch.node,))}
    return frozenset(found)
