"""The actions of one case entry as the directive that starts them and the tasks that carry them out.

The directive stands in the rules of the call, so it sees the outcome; the tasks behind it see the
call by its label. What is kept between actions is kept by `set_iter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noetl.playbook.model import (
    Action,
    CallAction,
    CaseBranch,
    CollectAction,
    Directive,
    FailAction,
    NextAction,
    Node,
    ResultAction,
    RetryAction,
    Rule,
    SetAction,
    SinkAction,
    SkipAction,
    Task,
    TaskAction,
    Value,
)
from noetl.playbook.rewriting.bodies import Bodies, kept
from noetl.playbook.rewriting.expressions import Names, Rewriter, literal, to
from noetl.playbook.rewriting.inexpressible import Report
from noetl.playbook.rewriting.reads import names_read
from noetl.playbook.rewriting.repeats import FAIL
from noetl.template import Template

ENDS = (CallAction, RetryAction, FailAction, SkipAction, NextAction)


class Chain(NamedTuple):
    """What an entry does, and how it ends; None: the step goes on as if there were no case."""

    branch: CaseBranch
    work: tuple[Action, ...]
    end: Action | None

    @property
    def target(self) -> NextAction | None:
        return self.end if isinstance(self.end, NextAction) else None

    @property
    def repeats(self) -> bool:
        """It ends by calling again, so the step's boundary never follows it."""
        return isinstance(self.end, CallAction | RetryAction)

    @property
    def acts(self) -> bool:
        """It ends by calling again or by failing, so no way out of a finished step follows it."""
        return self.repeats or isinstance(self.end, FailAction)

    @property
    def sets_result(self) -> bool:
        return any(isinstance(action, ResultAction) for action in self.work)

    @property
    def has_tasks(self) -> bool:
        return any(isinstance(action, TaskAction | SinkAction) for action in self.work)


def split(branch: CaseBranch, report: Report) -> Chain:
    """The actions up to the one that ends the chain."""
    for index, action in enumerate(branch.actions):
        if isinstance(action, ENDS):
            if index + 1 < len(branch.actions):
                report.say("dead-action", branch.actions[index + 1].at)
            return Chain(branch, branch.actions[:index], action)
    return Chain(branch, branch.actions, None)


class Patches:
    """Turns `set` and `collect` into what `set_iter` writes."""

    def __init__(self, rewriter: Rewriter, report: Report) -> None:
        self._rewriter = rewriter
        self._report = report

    def batch(self, actions: Sequence[Action]) -> tuple[dict[str, Value], int]:
        """As many leading actions as can be written at once, and their number."""
        written: dict[str, Value] = {}
        for index, action in enumerate(actions):
            if not isinstance(action, SetAction | CollectAction):
                return written, index
            reads = names_read(action)
            writes = {action.into} if isinstance(action, CollectAction) else action.values.keys()
            if written.keys() & (reads | writes) or (written and "ctx" in reads):
                return written, index
            written |= self._written(action)
        return written, len(actions)

    def _written(self, action: SetAction | CollectAction) -> dict[str, Value]:
        if isinstance(action, SetAction):
            return {name: self._rewriter.value(value) for name, value in action.values.items()}
        source = literal(self._rewriter.value(action.source))
        if source is None:
            self._report.say("case-values", action.at)
            return {}
        added = source if action.mode == "extend" else f"[{source}]"
        return {action.into: Template("{{ (iter." + action.into + " | default([])) + " + added + " }}")}


class Written(NamedTuple):
    """The tasks of a chain, the names that hold behind them, and what is then the step's result."""

    tasks: list[Task]
    names: Names
    result: Value


class ChainTasks:
    """Writes the tasks of chains, one chain after the other, behind a call."""

    def __init__(self, bodies: Bodies, label: str) -> None:
        self._bodies = bodies
        self._report = bodies.report
        self._label = label
        self._used: set[str] = set()

    def write(self, chain: Chain, names: Names, start: int) -> Written:
        """The tasks for the actions from `start` on."""
        found: list[Task] = []
        result: Value = Template("{{ " + self._label + " }}")
        actions = chain.work[start:]
        while actions:
            rewriter = Rewriter(names)
            action = actions[0]
            taken = 1
            if isinstance(action, SetAction | CollectAction):
                patch, taken = Patches(rewriter, self._report).batch(actions)
                found.append(self.noop("keep_values", Directive(do="continue", set_iter=patch)))
            elif isinstance(action, TaskAction):
                task = self._named(action, rewriter)
                found.append(task)
                names = {**names, action.task.label: to(task.label)}
            elif isinstance(action, SinkAction):
                found += _tasks(self._bodies.stored(self._label, action.sink, names, keep=False))
            elif isinstance(action, ResultAction):
                result = rewriter.value(action.source)
                if actions[1:]:
                    # It is what it is now, whatever the actions behind it change, and it fails now.
                    found.append(kept(self._bodies.labels.fresh("result_value"), result))
                    result = Template("{{ " + found[-1].label + " }}")
                if names_read(tuple(actions[1:])) & {"result", "this"}:
                    self._report.say("case-result", action.at)
            if rewriter.failed:
                self._report.say("case-values", action.at)
            actions = actions[taken:]
        return Written(found, names, result)

    def _named(self, action: TaskAction, rewriter: Rewriter) -> Task:
        task = self._bodies.renamed(action.task, rewriter)
        label = action.task.label
        if label in self._used:
            task = msgspec.structs.replace(task, label=self._bodies.labels.fresh(label))
        self._used.add(label)
        return task

    def noop(self, wanted: str, directive: Directive) -> Task:
        return Task(
            label=self._bodies.labels.fresh(wanted),
            kind="noop",
            rules=(Rule(when=None, then=directive),),
        )

    def end(self, task: Task, do: Directive) -> Task:
        """The task with what follows it, errors aside, which fail as before."""
        rules = task.rules or ()
        if rules and rules[-1].when is None:
            rules = rules[:-1]
        if not any(rule == FAIL for rule in rules):
            rules = (*rules, FAIL)
        return msgspec.structs.replace(task, rules=(*rules, Rule(when=None, then=do)))


def _tasks(nodes: list[Node]) -> list[Task]:
    return [node for node in nodes if isinstance(node, Task)]
