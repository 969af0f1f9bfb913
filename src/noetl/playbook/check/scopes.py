"""Which names a template can read, place by place, as far as the playbook alone tells.

A payload may add workload keys that nobody declared, so an unknown bare name is never certain to
be wrong; a ctx key that nothing writes, or a keychain entry that is not declared, is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from noetl.playbook.check.flow import Flow, targets
from noetl.playbook.check.pipelines import tasks_in
from noetl.playbook.model import (
    Block,
    Case,
    CollectAction,
    Node,
    Parallel,
    Playbook,
    SetAction,
    Step,
    Task,
    TaskAction,
    WorkbookEntry,
)
from noetl.template import Template

EVERYWHERE: Final = frozenset({"workload", "ctx", "vars", "args", "keychain", "execution_id"})
PIPELINE: Final = EVERYWHERE | {"iter", "loop_index", "_prev", "_task", "_attempt", "_action_id"}
RULES: Final = PIPELINE | {"outcome"}
ARCS: Final = EVERYWHERE | {"event"}
MOMENTS: Final = PIPELINE | {"event", "response", "error", "result", "this"}
REPEATS: Final = PIPELINE | {
    *("attempt", "max_attempts", "status_code", "error", "success", "result", "data", "response")
}
OWN_RESULT: Final = frozenset({"result", "response", "data", "this"})
"""Names of an earlier task's result inside a pipeline."""


class PlaybookNames:
    """What the whole playbook declares or writes."""

    def __init__(self, playbook: Playbook, flow: Flow) -> None:
        self.flow = flow
        self.workload = frozenset(playbook.workload)
        self.keychain = frozenset(entry.name for entry in playbook.keychain)
        self.vars = frozenset(name for step in playbook.steps for name in step.vars)
        self.ctx = frozenset(_ctx_writes(playbook))
        self.steps = {step.name: step for step in playbook.steps}
        self.bound: dict[str, list[str]] = {}
        """The second names of steps' results, with the steps that give them."""
        for step in playbook.steps:
            if step.binds is not None:
                self.bound.setdefault(step.binds, []).append(step.name)
        self.spread_iterators = frozenset(
            step.spread.iterator for step in playbook.steps if step.spread is not None
        )
        self.token_args: dict[str, set[str]] = {name: set(step.args) for name, step in self.steps.items()}
        self.every_arg: set[str] = set()
        self._collect_args(playbook)
        self.entries = _names_for_entries(playbook)

    def _collect_args(self, playbook: Playbook) -> None:
        carried: set[str] = set()
        anywhere: set[str] = set()
        for step in playbook.steps:
            for target in targets(step):
                self.every_arg.update(target.args)
                if isinstance(target.step, Template):
                    anywhere.update(target.args)
                elif target.step in self.token_args:
                    self.token_args[target.step].update(target.args)
                    if target.carry:
                        carried.add(target.step)
        for name, known in self.token_args.items():
            known.update(anywhere)
            if name in carried:
                known.update(self.every_arg)


class BodyNames:
    """What is visible in one body besides the playbook's names: labels, iterators, args, `iter`."""

    __slots__ = ("args", "iter_keys", "iterators", "labels", "nested", "open")

    def __init__(
        self,
        labels: frozenset[str] = frozenset(),
        iterators: frozenset[str] = frozenset(),
        args: frozenset[str] = frozenset(),
        iter_keys: frozenset[str] = frozenset(),
        *,
        open: bool = False,  # noqa: A002 - says exactly what it means: any name may be there
        nested: bool = False,
    ) -> None:
        self.labels = labels
        self.iterators = iterators
        self.args = args
        self.iter_keys = iter_keys
        self.open = open
        self.nested = nested

    def inside(self, nodes: Iterable[Node], iterator: str | None = None, args: object = None) -> BodyNames:
        """The names inside a nested body, those outside it included."""
        nodes = tuple(nodes)
        added = frozenset((iterator,)) if iterator else frozenset[str]()
        return BodyNames(
            labels=self.labels | labels_of(nodes),
            iterators=self.iterators | added,
            args=self.args | keys_of(args),
            iter_keys=self.iter_keys | iter_writes(nodes) | added,
            open=self.open or isinstance(args, Template),
            nested=True,
        )

    def with_args(self, args: object) -> BodyNames:
        """The names a task's own fields see: its args come first."""
        if not args:
            return self
        return BodyNames(
            self.labels,
            self.iterators,
            self.args | keys_of(args),
            self.iter_keys,
            open=self.open or not isinstance(args, dict),
            nested=self.nested,
        )


def keys_of(args: object) -> frozenset[str]:
    return frozenset(args) if isinstance(args, dict) else frozenset()


def labels_of(nodes: Iterable[Node]) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, Case):
            found.update(
                action.task.label
                for branch in node.branches
                for action in branch.actions
                if isinstance(action, TaskAction)
            )
            if node.call is not None:
                found.add(node.call.label)
        else:
            found.add(node.label)
            if isinstance(node, Parallel):
                found |= labels_of(branch.node for branch in node.branches)
    return frozenset(found)


def iter_writes(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset(
        name for task in tasks_in(tuple(nodes)) for rule in task.rules or () for name in rule.then.set_iter
    )


def step_body_names(step: Step, names: PlaybookNames) -> BodyNames:
    """The names in a step's body."""
    iterator = frozenset((step.loop.iterator,)) if step.loop is not None else frozenset[str]()
    joined = frozenset({"join_results"}) if step.join is not None and step.join.mode == "spread" else frozenset()
    return BodyNames(
        labels=labels_of(step.body),
        iterators=iterator,
        args=frozenset(names.token_args.get(step.name, ())) | joined,
        iter_keys=iter_writes(step.body) | iterator,
    )


def _ctx_writes(playbook: Playbook) -> Iterable[str]:
    for owner in (*playbook.steps, *playbook.workbook):
        for task in tasks_in(owner.body):
            for rule in task.rules or ():
                yield from rule.then.set_ctx
        for node in owner.body:
            if isinstance(node, Case):
                for branch in node.branches:
                    for action in branch.actions:
                        if isinstance(action, SetAction):
                            yield from action.values
                        elif isinstance(action, CollectAction):
                            yield action.into


def _names_for_entries(playbook: Playbook) -> dict[str, BodyNames]:
    """A workbook task sees what its callers give it, and their iterators."""
    calls: dict[object, list[tuple[Step | WorkbookEntry, Task]]] = {}
    for owner in (*playbook.steps, *playbook.workbook):
        for task in tasks_in(owner.body):
            if task.kind == "workbook" and isinstance(task.config.get("name"), str):
                calls.setdefault(task.config["name"], []).append((owner, task))
    return {entry.name: _names_for_entry(entry, calls.get(entry.name, [])) for entry in playbook.workbook}


def _names_for_entry(entry: WorkbookEntry, calls: list[tuple[Step | WorkbookEntry, Task]]) -> BodyNames:
    args = set(entry.args)
    iterators = set() if entry.loop is None else {entry.loop.iterator}
    for owner, task in calls:
        iterators |= _iterators_in(owner)
        args |= keys_of(task.args)
    return BodyNames(
        labels=labels_of(entry.body),
        iterators=frozenset(iterators),
        args=frozenset(args),
        iter_keys=iter_writes(entry.body) | frozenset(iterators),
        open=any(not isinstance(task.args, dict) for _, task in calls),
        nested=True,
    )


def _iterators_in(owner: Step | WorkbookEntry) -> set[str]:
    found = {owner.loop.iterator} if owner.loop is not None else set()
    waiting = list(owner.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, Block):
            waiting.extend(node.body)
            if node.loop is not None:
                found.add(node.loop.iterator)
    return found
