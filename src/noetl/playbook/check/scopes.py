"""Which names a template can read, place by place, as far as the playbook alone tells.

A payload may add workload keys that nobody declared, so an unknown bare name is never certain to
be wrong; a ctx key that nothing writes, or a keychain entry that is not declared, is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from noetl.playbook.check.flow import Flow, targets
from noetl.playbook.check.pipelines import owners, sink_task, tasks_in
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
        self.token_args = self._token_args(playbook)
        """What a token can bring to each step."""
        self.entries = _names_for_entries(playbook, self.token_args)
        self._labels: dict[str, frozenset[str]] = {}

    def labels_of_step(self, name: str) -> frozenset[str]:
        found = self._labels.get(name)
        if found is None:
            found = self._labels[name] = labels_of(self.steps[name].body)
        return found

    def _token_args(self, playbook: Playbook) -> dict[str, frozenset[str]]:
        given: dict[str, set[str]] = {name: set(step.args) for name, step in self.steps.items()}
        carried: set[str] = set()
        anywhere: set[str] = set()
        passed: set[str] = set()
        for step in playbook.steps:
            for target in targets(step):
                passed.update(target.args)
                if isinstance(target.step, Template):
                    anywhere.update(target.args)
                elif target.step in given:
                    given[target.step].update(target.args)
                    if target.carry:
                        carried.add(target.step)
        # Most steps of a canonical playbook can get every arg there is; they share one set, because a set
        # for each would grow with the square of the file.
        everything = frozenset(passed)
        found: dict[str, frozenset[str]] = {}
        for name, own in given.items():
            if name in carried:
                found[name] = everything if own <= everything else everything | own
            else:
                found[name] = frozenset(anywhere | own)
        return found


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
    args = names.token_args.get(step.name, frozenset())
    if step.join is not None and step.join.mode == "spread":
        args |= {"join_results"}
    return BodyNames(
        labels=labels_of(step.body),
        iterators=iterator,
        args=args,
        iter_keys=iter_writes(step.body) | iterator,
    )


def _ctx_writes(playbook: Playbook) -> Iterable[str]:
    for owner in owners(playbook):
        for task in (*tasks_in(owner.body), *sink_task(owner.sink)):
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


class _Call(NamedTuple):
    """A task that calls a workbook entry, and what is around it."""

    owner: Step | WorkbookEntry
    iterators: set[str]
    task: Task


def _names_for_entries(playbook: Playbook, token_args: dict[str, frozenset[str]]) -> dict[str, BodyNames]:
    """A workbook task sees what its callers give it, their tokens' args and their iterators."""
    calls: dict[object, list[_Call]] = {}
    for owner in owners(playbook):
        iterators = _iterators_in(owner)
        for task in tasks_in(owner.body):
            if task.kind == "workbook" and isinstance(task.config.get("name"), str):
                calls.setdefault(task.config["name"], []).append(_Call(owner, iterators, task))
    return {
        entry.name: _names_for_entry(entry, calls.get(entry.name, []), token_args)
        for entry in playbook.workbook
    }


def _names_for_entry(
    entry: WorkbookEntry, calls: list[_Call], token_args: dict[str, frozenset[str]]
) -> BodyNames:
    args = set(entry.args)
    iterators = set() if entry.loop is None else {entry.loop.iterator}
    for call in calls:
        iterators |= call.iterators
        args |= keys_of(call.task.args)
        if isinstance(call.owner, Step):
            args |= token_args[call.owner.name]
    return BodyNames(
        labels=labels_of(entry.body),
        iterators=frozenset(iterators),
        args=frozenset(args),
        iter_keys=iter_writes(entry.body) | frozenset(iterators),
        # What another workbook task passes on is its own callers' business.
        open=any(
            not isinstance(call.task.args, dict) or isinstance(call.owner, WorkbookEntry) for call in calls
        ),
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
