"""The ways that a case chooses, as arcs that are asked at the step's boundary.

An arc does not see what a rule decided. Where the step's result is still that of its call, the guard
of an entry is asked again there, of the step's name. Otherwise the arc looks whether the last task of
the entry has run (`step.results.LABEL`), which a result with a key `results` of its own would hide;
so that is done only where the result is known to have no keys.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from noetl.playbook.model import (
    Case,
    CollectAction,
    FailAction,
    NextAction,
    ResultAction,
    RetryAction,
    SetAction,
    Step,
    Target,
    TaskAction,
    Value,
)
from noetl.playbook.rewriting.chains import Chain, split
from noetl.playbook.rewriting.expressions import (
    Names,
    Rewriter,
    conjunction,
    expression,
    negation,
    refused,
    to,
)
from noetl.playbook.rewriting.inexpressible import Report
from noetl.playbook.rewriting.moments import AFTER_SUCCESS, Entry, Moments
from noetl.playbook.rewriting.reads import names_read
from noetl.playbook.rewriting.routes import Way
from noetl.playbook.rewriting.views import at_boundary
from noetl.template import Template


class Plan(NamedTuple):
    """An entry with its chain, and the labels of the tasks that end it and hold its args for the arc."""

    entry: Entry
    chain: Chain
    last: str | None = None
    next_args: str | None = None


class Boundary:
    """What can be asked of a step with a case when it ends."""

    def __init__(self, step: Step, case: Case, moments: Moments, report: Report, *, readable: bool) -> None:
        self._step = step
        self._case = case
        self._moments = moments
        self._report = report
        self._readable = readable
        chains = [split(entry.branch, report) for entry in (*moments.success, *moments.failure)]
        self.kept = values_kept(case)
        labels = {
            action.task.label for chain in chains for action in chain.work if isinstance(action, TaskAction)
        }
        iterator = set() if step.loop is None else {step.loop.iterator}
        self._names: Names = at_boundary(
            step.name,
            self.kept | labels | iterator,
            own_result=readable and not any(chain.sets_result for chain in chains),
            is_list=step.loop is not None,
        )
        if not readable:
            self._names = {**self._names, "error": refused}

    # --- what an arc can ask --------------------------------------------------------------------------

    def asked(self, plan: Plan) -> tuple[str, ...] | None:
        """The guard of an entry as an arc can ask it; None where it cannot."""
        rewriter = Rewriter(self._names)
        parts = tuple(rewriter.expression(part) for part in plan.entry.parts)
        return None if rewriter.failed else parts

    def targets(self, chain: Chain) -> tuple[Target, ...] | None:
        """The targets with args as an arc can render them; None where it cannot."""
        assert chain.target is not None
        rewriter = Rewriter({**self._names, **self._result_name(chain)})
        targets: tuple[Target, ...] = rewriter.value(chain.target.targets)
        return None if rewriter.failed else targets

    def _result_name(self, chain: Chain) -> Names:
        """A kept value that the chain makes the step's result is read by the step's name."""
        sources = [action.source for action in chain.work if isinstance(action, ResultAction)]
        if self._readable and sources and isinstance(sources[-1], Template) and sources[-1].sole:
            name = expression(sources[-1])
            if name in self.kept:
                return {name: to(self._step.name)}
        return {}

    def needs_task(self, plan: Plan, later: list[Plan]) -> bool:
        """Must this entry end with a task, because of its result or to show that it was taken?"""
        chain = plan.chain
        if chain.acts:
            return False
        if chain.has_tasks or chain.sets_result:
            return True
        if chain.target is not None and self.targets(chain) is None:
            return True
        decides = chain.target is not None or any(other.chain.target is not None for other in later)
        return decides and self.asked(plan) is None

    def check_structural(self) -> None:
        """The step's own `next` is taken at the boundary, where nothing of the case is left."""
        rewriter = Rewriter(self._names)
        rewriter.value(self._step.router)
        if rewriter.failed:
            self._report.say("case-values", self._step.router.at)

    # --- the ways, in the order in which they are asked -----------------------------------------------

    def ways(self, success: list[Plan], failure: list[Plan]) -> list[Way]:
        taken = [*self._failure_ways(success, failure), *self._success_ways(success, failure)]
        return [*taken, *self._exit_ways()]

    def _success_ways(self, success: list[Plan], failure: list[Plan]) -> list[Way]:
        """First those that a task shows, which exclude each other, then those that are asked, in order."""
        shown: list[Way] = []
        asked: list[Way] = []
        excluded: list[str] = []
        plans = [*success, *(plan for plan in failure if plan.last is not None)]
        for index, plan in enumerate(plans):
            target = plan.chain.target
            if plan.chain.acts or not any(other.chain.target for other in plans[index:]):
                continue
            parts = self.asked(plan) if plan in success else None
            if parts is None:
                ran = f"{self._results(plan)}.{plan.last} is defined"
                if target is not None:
                    shown.append(Way((ran,), self._seen(plan, target), at=target.at))
                else:
                    excluded.append(negation(ran))
            elif target is not None:
                asked.append(Way((*parts, *excluded), self._seen(plan, target), at=target.at))
            else:
                excluded.append(negation(conjunction(list(parts) or ["true"])))
        return [*shown, *asked]

    def _seen(self, plan: Plan, action: NextAction) -> tuple[Target, ...]:
        """The targets with args as the arc sees them, by themselves or in the task that holds them."""
        seen = self.targets(plan.chain)
        if seen is not None:
            return seen
        place = f"{self._results(plan)}.{plan.next_args}"
        several = len(action.targets) > 1
        return tuple(
            msgspec.structs.replace(
                target,
                args={
                    name: Template("{{ " + place + (f"[{number}]" if several else "") + _key(name) + " }}")
                    for name in target.args
                },
            )
            for number, target in enumerate(action.targets)
        )

    def _results(self, plan: Plan) -> str:
        """Where an arc sees the tasks of the step; reported where a result's own keys could hide them."""
        if not self._readable:
            self._report.say("step-name", self._step.at)
        elif not self._has_no_keys(plan.chain):
            self._report.say("hidden-decision", plan.entry.branch.at)
        return f"{self._step.name}.results"

    def _has_no_keys(self, chain: Chain) -> bool:
        """Is the step's result after this chain certainly no mapping?"""
        sources = [action.source for action in chain.work if isinstance(action, ResultAction)]
        if not sources:
            call = self._case.call
            return call is not None and call.kind == "noop"
        source = sources[-1]
        if isinstance(source, Template):
            return not source.sole or expression(source) in self._lists()
        return not isinstance(source, dict)

    def _lists(self) -> frozenset[str]:
        """The kept values that are always lists."""
        actions = [action for branch in self._case.branches for action in branch.actions]
        collected = {action.into for action in actions if isinstance(action, CollectAction)}
        others = {
            name
            for action in actions
            if isinstance(action, SetAction)
            for name, value in action.values.items()
            if not isinstance(value, list)
        }
        return frozenset(collected - others)

    def _failure_ways(self, success: list[Plan], failure: list[Plan]) -> list[Way]:
        found: list[Way] = []
        excluded: list[Plan] = []
        for plan in failure:
            target = plan.chain.target
            if target is None or plan.last is not None or not self._routes_failure(target):
                excluded.append(plan)
                continue
            asked = [self.asked(each) for each in (*excluded, plan)]
            targets = self.targets(plan.chain)
            if targets is None or any(parts is None for parts in asked):
                self._report.say("failure-details", plan.entry.branch.at)
                continue
            if any(parts == () for parts in asked[:-1]):
                continue
            negated = [negation(conjunction(list(parts))) for parts in asked[:-1] if parts]
            found.append(Way((*(asked[-1] or ()), *negated), targets, on="failed", at=target.at))
        if found and self._others_fail(success):
            self._report.say("failure-of-many", self._step.at)
        return found

    def _others_fail(self, success: list[Plan]) -> bool:
        """Can the step fail otherwise than by its call?"""
        step = self._step
        ends = (FailAction, RetryAction)  # a retry of good answers fails when its attempts are used up
        others = any(plan.chain.has_tasks or isinstance(plan.chain.end, ends) for plan in success)
        return others or bool(self._moments.enter) or step.sink is not None or step.deadline is not None

    def _routes_failure(self, action: NextAction) -> bool:
        """A `next` whose args read the response cannot be taken after a failed call."""
        args = tuple(target.args for target in action.targets)
        if not names_read(args) & AFTER_SUCCESS:
            return True
        seen = [read for value in _templates(args) for read in value.reads if read.path[0] in AFTER_SUCCESS]
        if any(read.guarded for read in seen):
            self._report.say("case-values", action.at)
        return False

    def _exit_ways(self) -> list[Way]:
        """What is decided when the step is left, after all that was decided after the call."""
        found: list[Way] = []
        names = dict(self._names)
        if self._step.loop is not None:
            # Then the loop is over: the result is its list.
            hidden = self.kept | {self._step.loop.iterator}
            over = at_boundary(self._step.name, hidden, own_result=self._readable, done="loop.done")
            names = dict(over)
        elif self._case.call is None:
            names |= dict.fromkeys((*AFTER_SUCCESS, "error"), refused)
        for entry in self._moments.exit:
            chain = split(entry.branch, self._report)
            if chain.target is None or chain.work:
                self._report.say("exit-action", entry.branch.at)
                continue
            rewriter = Rewriter(names)
            parts = tuple(rewriter.expression(part) for part in entry.parts)
            targets = rewriter.value(chain.target.targets)
            if rewriter.failed:
                self._report.say("case-values", entry.branch.at)
            found.append(Way(parts, targets, at=chain.target.at))
        return found


def values_kept(case: Case) -> frozenset[str]:
    """The values that live with the step run."""
    found: set[str] = set()
    for branch in case.branches:
        for action in branch.actions:
            if isinstance(action, SetAction):
                found |= action.values.keys()
            elif isinstance(action, CollectAction):
                found.add(action.into)
    return frozenset(found)


def _templates(value: Value) -> list[Template]:
    if isinstance(value, Template):
        return [value]
    if isinstance(value, dict):
        return [found for item in value.values() for found in _templates(item)]
    if isinstance(value, list | tuple):
        return [found for item in value for found in _templates(item)]
    return []


def _key(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"['{name}']"
