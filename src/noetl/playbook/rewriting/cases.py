"""Says a case as a pipeline with rules.

What happens on entry becomes a first task. What happens after the call becomes the call's rules, which
jump to the tasks of the entry they stand for; behind those a task passes the call's result on, so that
it stays the step's. The ways that entries choose are in `case_arcs`.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from noetl.playbook.model import (
    CallAction,
    Case,
    CollectAction,
    Directive,
    FailAction,
    NextAction,
    Node,
    RetryAction,
    Rule,
    SetAction,
    SkipAction,
    Step,
    Task,
    Value,
)
from noetl.playbook.rewriting.bodies import UNLABELLED, Bodies, kept
from noetl.playbook.rewriting.case_arcs import Boundary, Plan, values_kept
from noetl.playbook.rewriting.chains import ChainTasks, Patches, split
from noetl.playbook.rewriting.expressions import Names, Rewriter, as_guard, refused
from noetl.playbook.rewriting.inexpressible import Report
from noetl.playbook.rewriting.moments import (
    AFTER_FAILURE,
    AFTER_SUCCESS,
    Moments,
    is_asked_on_exit,
    sort_by_moment,
)
from noetl.playbook.rewriting.overrides import Overrides
from noetl.playbook.rewriting.repeats import FAIL, directive, repeats
from noetl.playbook.rewriting.routes import Way
from noetl.playbook.rewriting.views import FAILED, OK, in_rules, in_tasks, iteration_values
from noetl.template import Template


class Rewritten(NamedTuple):
    nodes: tuple[Node, ...]
    ways: list[Way]
    """Those that come before the step's structural ones."""
    kept: frozenset[str]
    """The values that live with the step run, under `iter` instead of `ctx`."""


def rewrite_case(step: Step, case: Case, bodies: Bodies, *, readable: bool) -> Rewritten:
    """The pipeline and the ways of a step with a case; meaningless if something was reported.

    `readable` says that arcs can read the step's result by its name.
    """
    report = Report()
    _check_case(step, case, report)
    rewritten = Rewritten((), [], values_kept(case))
    if report.quiet:
        moments = sort_by_moment(case, report)
        if moments is not None:
            rewritten = _CaseRewriter(
                step,
                case,
                Bodies(bodies.labels, report),
                moments,
                Boundary(step, case, moments, report, readable=readable),
            ).rewrite()
    bodies.report.found += report.found
    return rewritten


def _check_case(step: Step, case: Case, report: Report) -> None:
    """Reports what no part of a case could be translated without."""
    if case.on_event:
        report.say("on-event", case.at)
        return
    routes_always = all(any(isinstance(a, NextAction) for a in b.actions) for b in case.branches)
    if case.mode == "inclusive" and not routes_always:
        report.say("inclusive-case", case.at)
    if case.next_policy != "end_step":
        report.say("next-policy", case.at)
    if step.on_error != "fail":
        report.say("ignored-failure", step.at)
    for branch in case.branches:
        if branch.retry is not None:
            report.say("retry-chain", branch.retry.at)
        for action in branch.actions:
            _check_action(step, action, report, on_exit=is_asked_on_exit(branch))


def _check_action(step: Step, action: object, report: Report, *, on_exit: bool) -> None:
    if isinstance(action, NextAction):
        if action.policy not in (None, "end_step") or action.priority:
            report.say("next-policy", action.at)
        if action.delay:
            report.say("next-delay", action.at)
        if any(isinstance(target.step, Template) for target in action.targets):
            report.say("computed-target", action.at)
        if step.loop is not None and not on_exit:
            report.say("loop-exit", action.at)
    elif isinstance(action, SetAction | CollectAction):
        if step.loop is not None:
            report.say("loop-values", action.at)
    elif isinstance(action, SkipAction):
        report.say("skip-action", action.at)
    elif isinstance(action, FailAction) and action.message is not None:
        report.say("fail-message", action.at)


class _CaseRewriter:
    def __init__(self, step: Step, case: Case, bodies: Bodies, moments: Moments, boundary: Boundary) -> None:
        self._step = step
        self._bodies = bodies
        self._report = bodies.report
        self._boundary = boundary
        self._kept = boundary.kept
        own = Rewriter({"ctx": iteration_values(self._kept)})
        self._call: Task | None = own.value(case.call)
        if own.failed:
            self._report.say("case-values", case.at)
        self._enter = moments.enter
        self._success = [Plan(entry, split(entry.branch, self._report)) for entry in moments.success]
        self._failure = [Plan(entry, split(entry.branch, self._report)) for entry in moments.failure]
        if _cannot_fail(case.call):
            self._forget_failures({entry.branch.id for entries in moments[:2] for entry in entries})
        self._label = UNLABELLED if self._call is None else self._call.label
        self._tasks: list[Task] = []

    def rewrite(self) -> Rewritten:
        entered = self._entered()
        self._boundary.check_structural()
        for plan in (*self._success, *self._failure):
            if plan.chain.sets_result and plan.chain.acts:
                self._report.say("case-result", plan.entry.branch.at)
        nodes: tuple[Node, ...] = tuple(entered)
        if self._call is not None:
            self._choose_last_tasks()
            nodes = (*entered, self._called(self._call, entered), *self._tasks)
        if self._step.sink is not None and self._tasks:
            self._report.say("sink", self._step.sink.at)
        return Rewritten(nodes, self._boundary.ways(self._success, self._failure), self._kept)

    def _forget_failures(self, needed: set[str]) -> None:
        for plan in self._failure:
            if plan.entry.branch.id not in needed:
                self._report.say("dead-entry", plan.entry.branch.at)
        self._failure = []

    def _entered(self) -> list[Task]:
        """A first task that keeps the values set on entry."""
        if not self._enter:
            return []
        rules: list[Rule] = []
        rewriter = Rewriter({**in_tasks(self._label, self._kept), **dict.fromkeys(AFTER_SUCCESS, refused)})
        for entry in self._enter:
            chain = split(entry.branch, self._report)
            patch, number = Patches(rewriter, self._report).batch(chain.work)
            if chain.end is not None or number < len(chain.work):
                self._report.say("enter-action", entry.branch.at)
            parts = [rewriter.expression(part) for part in entry.parts]
            then = Directive(do="continue", set_iter=patch)
            rules.append(Rule(when=as_guard(parts) if parts else None, then=then))
        if rules[-1].when is not None:
            rules.append(Rule(when=None, then=Directive(do="continue")))
        if rewriter.failed:
            self._report.say("case-values", self._enter[0].branch.at)
        return [Task(label=self._bodies.labels.fresh("enter"), kind="noop", rules=tuple(rules))]

    def _choose_last_tasks(self) -> None:
        """Gives each entry that must end with a task a label for it."""
        needed = self._boundary.needs_task
        self._success = [
            self._with_last(plan, needed(plan, self._success[index + 1 :]) or self._writes_twice(plan))
            for index, plan in enumerate(self._success)
        ]
        self._failure = [self._with_last(plan, plan.chain.sets_result) for plan in self._failure]

    def _writes_twice(self, plan: Plan) -> bool:
        """Must some values be kept before others, by a task behind the rule?"""
        work = plan.chain.work
        _, written = Patches(Rewriter(in_rules(self._kept)), Report()).batch(work)
        return not plan.chain.acts and written < len(work)

    def _with_last(self, plan: Plan, wanted: bool) -> Plan:
        if not wanted:
            return plan
        target = plan.chain.target
        hidden = target is not None and self._boundary.targets(plan.chain) is None
        return plan._replace(
            next_args=self._bodies.labels.fresh("next_args") if hidden else None,
            last=self._bodies.labels.fresh("keep_result"),
        )

    # --- the call and what follows it -----------------------------------------------------------------

    def _called(self, written: Task, entered: list[Task]) -> Task:
        plans = (*self._success, *self._failure)
        if not any(map(_works, plans)):
            return self._bodies.task(written)
        call = self._bodies.readable(written)
        self._label = call.label
        ends = [plan.chain.end for plan in plans]
        again = [end for end in ends if isinstance(end, CallAction)]
        overrides = Overrides(call, again, self._bodies.labels, self._report)
        base = repeats(call, self._report, fall_through=True)
        if base.rules and any(isinstance(end, RetryAction) for end in ends):
            self._report.say("retry-twice", call.at)
        chains = ChainTasks(self._bodies, call.label)
        starts = [
            *self._started(self._success, OK, chains, overrides),
            *self._started(self._failure, FAILED, chains, overrides),
        ]
        self._close_chains(chains)
        over = Directive(do="break" if self._tasks else "continue")
        ends_here = [_ending(rule, over) for rule in starts]
        rules = (*base.rules, *ends_here, FAIL, Rule(when=None, then=over))
        call = msgspec.structs.replace(overrides.call(), rules=rules, retry=None, poll=None)
        if self._tasks or entered or again:
            return call
        return msgspec.structs.replace(call, label=written.label)  # nothing reads it

    def _started(
        self, plans: list[Plan], outcome: str, chains: ChainTasks, overrides: Overrides
    ) -> list[Rule]:
        """The rules of the entries up to the last one that does something."""
        last = max((index for index, plan in enumerate(plans) if _works(plan)), default=-1)
        found: list[Rule] = []
        for plan in plans[: last + 1]:
            absent = AFTER_SUCCESS if outcome == FAILED else AFTER_FAILURE
            rewriter = Rewriter({**in_rules(self._kept), **dict.fromkeys(absent, refused)})
            parts = [rewriter.expression(part) for part in plan.entry.parts]
            then = self._directive(plan, outcome, rewriter, chains, overrides)
            if rewriter.failed:
                self._report.say("case-values", plan.entry.branch.at)
            found.append(Rule(when=as_guard([outcome, *parts]), then=then))
        return found

    def _directive(
        self, plan: Plan, outcome: str, rewriter: Rewriter, chains: ChainTasks, overrides: Overrides
    ) -> Directive:
        """What a rule does for an entry; `continue` means that the pipeline ends here."""
        chain, end = plan.chain, plan.chain.end
        patch, number = Patches(rewriter, self._report).batch(chain.work)
        names = in_tasks(self._label, self._kept)
        if outcome == FAILED:
            names = {**names, **dict.fromkeys(AFTER_SUCCESS, refused)}
            if chain.has_tasks and not chain.repeats and not chain.sets_result:
                self._report.say("failed-call-tasks", chain.branch.at)
        tasks, names, result = chains.write(chain, names, number)
        if isinstance(end, RetryAction):
            if tasks:
                self._report.say("retry-chain", end.at)
            _check_retry_action(end, self._report)
            return msgspec.structs.replace(directive(end.retry, self._report), set_iter=patch)
        if isinstance(end, CallAction):
            over = Rewriter(names) if tasks else rewriter
            jump = Directive(do="jump", to=self._label, set_iter=over.value(overrides.patch(end)))
            if not tasks:
                return msgspec.structs.replace(jump, set_iter=patch | jump.set_iter)
            rewriter.failed += over.failed
            tasks.append(chains.noop("call_again", jump))
        elif isinstance(end, FailAction) or (outcome == FAILED and plan.last is None):
            if not tasks:
                return Directive(do="fail", set_iter=patch)
            tasks.append(chains.noop("give_up", Directive(do="fail")))
        elif plan.last is None:
            return Directive(do="continue", set_iter=patch)
        else:
            tasks += self._last_tasks(plan, names, result)
        self._tasks += tasks
        return Directive(do="jump", to=tasks[0].label, set_iter=patch)

    def _last_tasks(self, plan: Plan, names: Names, result: Value) -> list[Task]:
        """The task that holds what the arc takes along, if it needs one, and that with the step's result."""
        found: list[Task] = []
        target = plan.chain.target
        if target is not None and plan.next_args is not None:
            rewriter = Rewriter(names)
            values = [rewriter.value(each.args) for each in target.targets]
            if rewriter.failed:
                self._report.say("case-values", target.at)
            found.append(kept(plan.next_args, values[0] if len(values) == 1 else values))
        assert plan.last is not None
        return [*found, kept(plan.last, result)]

    def _close_chains(self, chains: ChainTasks) -> None:
        """The pipeline ends behind each chain; behind the last one it ends anyway."""
        last = {plan.last for plan in (*self._success, *self._failure)}
        for index, task in enumerate(self._tasks[:-1]):
            if task.label in last:
                self._tasks[index] = chains.end(task, Directive(do="break"))


def _ending(rule: Rule, over: Directive) -> Rule:
    if rule.then.do != "continue":
        return rule
    return msgspec.structs.replace(rule, then=msgspec.structs.replace(rule.then, do=over.do))


def _works(plan: Plan) -> bool:
    """Must a rule start something for this entry?"""
    return plan.last is not None or bool(plan.chain.work) or plan.chain.acts


def _check_retry_action(action: RetryAction, report: Report) -> None:
    retry = action.retry
    if retry.retry_when is not None or retry.stop_when is not None or retry.on != ("error",):
        report.say("retry-predicate", action.at)


def _cannot_fail(call: Task | None) -> bool:
    return call is not None and call.kind == "noop" and not (call.config or call.args or call.spec)
