"""Says a case as a pipeline with rules, and the ways it chooses as arcs.

What happens on entry becomes a first task; what happens after the call becomes the call's rules,
which jump to the tasks of the entry they stand for; a `next` becomes an arc. An arc cannot see what a
rule decided, but it sees which tasks have run: `step.results.LABEL is defined`. So an entry whose
guard cannot be asked again at the boundary is marked by a task that passes the call's result on.
"""

from __future__ import annotations

from collections.abc import Callable
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
    Target,
    Task,
    Value,
)
from noetl.playbook.rewriting.bodies import UNLABELLED, Bodies
from noetl.playbook.rewriting.chains import Chain, ChainTasks, Patches, split
from noetl.playbook.rewriting.expressions import Names, Rewriter, as_guard, conjunction, negation, refused
from noetl.playbook.rewriting.inexpressible import Report
from noetl.playbook.rewriting.moments import AFTER_SUCCESS, Entry, Moments, sort_by_moment
from noetl.playbook.rewriting.overrides import Overrides
from noetl.playbook.rewriting.reads import names_read, paths_read
from noetl.playbook.rewriting.repeats import FAIL, directive, repeats
from noetl.playbook.rewriting.routes import Way
from noetl.playbook.rewriting.views import FAILED, OK, RESULT_NAMES, at_boundary, in_rules, in_tasks
from noetl.template import Template


class Plan(NamedTuple):
    """An entry with its chain, and the label of the task that shows at the boundary that it was taken."""

    entry: Entry
    chain: Chain
    marker: str | None = None


class Rewritten(NamedTuple):
    nodes: tuple[Node, ...]
    ways: list[Way]
    """Those that come before the step's structural ones."""


def rewrite_case(step: Step, case: Case, bodies: Bodies) -> Rewritten:
    """The pipeline and the ways of a step with a case; meaningless if something was reported."""
    report = Report()
    _check_case(step, case, report)
    rewritten = Rewritten((), [])
    if report.quiet:
        moments = sort_by_moment(case, report)
        if moments is not None:
            local = Bodies.sharing(bodies, report)
            rewritten = _CaseRewriter(step, case, local, moments).rewrite()
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
            _check_action(step, action, report)


def _check_action(step: Step, action: object, report: Report) -> None:
    if isinstance(action, NextAction):
        if action.policy not in (None, "end_step") or action.priority:
            report.say("next-policy", action.at)
        if action.delay:
            report.say("next-delay", action.at)
        if any(isinstance(target.step, Template) for target in action.targets):
            report.say("computed-target", action.at)
        if step.loop is not None:
            report.say("loop-exit", action.at)
    elif isinstance(action, SetAction | CollectAction):
        if step.loop is not None:
            report.say("loop-values", action.at)
    elif isinstance(action, SkipAction):
        report.say("skip-action", action.at)
    elif isinstance(action, FailAction) and action.message is not None:
        report.say("fail-message", action.at)


class _CaseRewriter:
    def __init__(self, step: Step, case: Case, bodies: Bodies, moments: Moments) -> None:
        self._step = step
        self._bodies = bodies
        self._report = bodies.report
        self._kept = _values_kept(case)
        self._call = case.call
        self._exit = moments.exit
        self._enter = moments.enter
        self._success = [Plan(entry, split(entry.branch, self._report)) for entry in moments.success]
        self._failure = [Plan(entry, split(entry.branch, self._report)) for entry in moments.failure]
        if _cannot_fail(case.call):
            self._failure = []
        self._own_result = not any(plan.chain.sets_result for plan in (*self._success, *self._failure))
        self._label = UNLABELLED if self._call is None else self._call.label
        self._tasks: list[Task] = []

    def rewrite(self) -> Rewritten:
        entered = self._entered()
        if self._call is None:
            return Rewritten(tuple(entered), self._exit_ways())
        self._mark()
        call = self._called(entered)
        if self._step.sink is not None and len(self._tasks) > 0:
            self._report.say("sink", self._step.sink.at)
        ways = [*self._failure_ways(), *self._success_ways(), *self._exit_ways()]
        return Rewritten((*entered, call, *self._tasks), ways)

    # --- before the call ------------------------------------------------------------------------------------

    def _entered(self) -> list[Task]:
        """A first task that keeps the values set on entry."""
        if not self._enter:
            return []
        rules: list[Rule] = []
        rewriter = Rewriter(in_tasks(self._label, self._kept) | dict.fromkeys((*AFTER_SUCCESS, "error"), refused))
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

    # --- markers --------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        """Chooses the entries that must be marked, so that arcs can tell that they were taken."""
        routed_later = False
        marked: list[Plan] = []
        for plan in reversed(self._success):
            chain = plan.chain
            final = not chain.repeats and not isinstance(chain.end, FailAction)
            wanted = final and (chain.has_tasks or chain.sets_result)
            if final and not wanted and (chain.target is not None or routed_later):
                wanted = self._asked_at_boundary(plan) is None
            if chain.target is not None and not wanted:
                wanted = self._targets(chain.target) is None
            marked.append(plan._replace(marker=self._bodies.labels.fresh("keep_result") if wanted else None))
            routed_later = routed_later or chain.target is not None
        self._success = marked[::-1]
        self._failure = [
            plan._replace(marker=self._bodies.labels.fresh("keep_result")) if plan.chain.sets_result else plan
            for plan in self._failure
        ]

    def _boundary(self) -> Names:
        labels = {action.task.label for plan in self._success for action in plan.chain.work if hasattr(action, "task")}
        iterator = set() if self._step.loop is None else {self._step.loop.iterator}
        return at_boundary(
            self._step.name,
            self._kept | labels | iterator,
            own_result=self._own_result,
            is_list=self._step.loop is not None,
        )

    def _asked_at_boundary(self, plan: Plan) -> tuple[str, ...] | None:
        """The guard as an arc can ask it; None where it cannot."""
        rewriter = Rewriter(self._boundary())
        parts = tuple(rewriter.expression(part) for part in plan.entry.parts)
        return None if rewriter.failed else parts

    def _targets(self, action: NextAction) -> tuple[Target, ...] | None:
        rewriter = Rewriter(self._boundary())
        targets = rewriter.value(action.targets)
        return None if rewriter.failed else targets

    # --- the call and what follows it -------------------------------------------------------------------------

    def _called(self, entered: list[Task]) -> Task:
        call = self._call
        assert call is not None
        if not self._rules_needed(self._success) and not self._rules_needed(self._failure):
            return self._bodies.task(call)
        if call.label == UNLABELLED or not call.label.isidentifier() or entered:
            call = self._bodies.readable(call)
        self._label = call.label
        again = [plan.chain.end for plan in (*self._success, *self._failure)]
        overrides = Overrides(
            call, [end for end in again if isinstance(end, CallAction)], self._bodies.labels, self._report
        )
        base = repeats(call, self._report, fall_through=True)
        if base.rules and any(isinstance(end, RetryAction) for end in again):
            self._report.say("retry-twice", call.at)
        chains = ChainTasks(self._bodies, call.label, self._kept)
        starts: list[Callable[[bool], Rule]] = [
            *self._started(self._success, OK, chains, overrides),
            *self._started(self._failure, FAILED, chains, overrides),
        ]
        self._close_chains(chains)
        last = not self._tasks
        over = Directive(do="continue" if last else "break")
        rules = (*base.rules, *(start(last) for start in starts), FAIL, Rule(when=None, then=over))
        return msgspec.structs.replace(overrides.call(), rules=rules, retry=None, poll=None)

    def _rules_needed(self, plans: list[Plan]) -> bool:
        return any(plan.marker or plan.chain.work or _acts(plan.chain) for plan in plans)

    def _started(
        self, plans: list[Plan], outcome: str, chains: ChainTasks, overrides: Overrides
    ) -> list[Callable[[bool], Rule]]:
        """The rules of the entries, up to the last one that does something; each waits to know what follows."""
        last = max((i for i, plan in enumerate(plans) if plan.marker or plan.chain.work or _acts(plan.chain)), default=-1)
        found: list[Callable[[bool], Rule]] = []
        for plan in plans[: last + 1]:
            rewriter = Rewriter(in_rules(self._kept))
            parts = [rewriter.expression(part) for part in plan.entry.parts]
            when = as_guard([outcome, *parts])
            then = self._directive(plan, outcome, rewriter, chains, overrides)
            if rewriter.failed:
                self._report.say("case-values", plan.entry.branch.at)
            found.append(_rule(when, then))
        return found

    def _directive(
        self, plan: Plan, outcome: str, rewriter: Rewriter, chains: ChainTasks, overrides: Overrides
    ) -> Directive | None:
        """None: the pipeline ends here, by `continue` or `break`."""
        chain = plan.chain
        patch, number = Patches(rewriter, self._report).batch(chain.work)
        names = in_tasks(self._label, self._kept)
        if outcome == FAILED:
            names = names | dict.fromkeys((*RESULT_NAMES, "this"), refused)
            if chain.has_tasks and not chain.repeats and not chain.sets_result:
                self._report.say("failed-call-tasks", chain.branch.at)
                return None
        tasks = chains.write(chain, names, number)
        end = chain.end
        if isinstance(end, RetryAction):
            if tasks:
                self._report.say("retry-chain", end.at)
            _check_retry_action(end, self._report)
            return msgspec.structs.replace(directive(end.retry, self._report), set_iter=patch)
        if isinstance(end, CallAction):
            over = rewriter if not tasks else Rewriter(names)
            jump = Directive(do="jump", to=self._label, set_iter=over.value(overrides.patch(end)))
            if over is not rewriter:
                rewriter.failed += over.failed
            if not tasks:
                return msgspec.structs.replace(jump, set_iter=patch | jump.set_iter)
            self._tasks += [*tasks, chains.noop("call_again", jump)]
        elif isinstance(end, FailAction) or (outcome == FAILED and plan.marker is None):
            if not tasks:
                return Directive(do="fail", set_iter={})
            self._tasks += [*tasks, chains.noop("give_up", Directive(do="fail"))]
        elif plan.marker is not None:
            tasks += self._route_args(plan, names)
            value = chains.result(chain, names)
            tasks.append(msgspec.structs.replace(self._bodies.kept(value), label=plan.marker))
            self._tasks += tasks
        else:
            return Directive(do="continue", set_iter=patch) if patch else None
        return Directive(do="jump", to=(tasks or self._tasks)[0].label, set_iter=patch)

    def _route_args(self, plan: Plan, names: Names) -> list[Task]:
        """A task whose result is what the arc takes along, where the arc cannot see it."""
        target = plan.chain.target
        if target is None or self._targets(target) is not None:
            return []
        rewriter = Rewriter(names)
        values = {f"{number}": rewriter.value(each.args) for number, each in enumerate(target.targets)}
        if rewriter.failed:
            self._report.say("case-values", target.at)
        value: Value = values["0"] if len(values) == 1 else list(values.values())
        return [msgspec.structs.replace(self._bodies.kept(value, "next_args"))]

    def _close_chains(self, chains: ChainTasks) -> None:
        """The pipeline ends behind each chain but the last, where it ends anyway."""
        markers = {plan.marker for plan in (*self._success, *self._failure)}
        for index, task in enumerate(self._tasks[:-1]):
            if task.label in markers:
                self._tasks[index] = chains.end(task, Directive(do="break"))

    # --- ways -------------------------------------------------------------------------------------------------

    def _success_ways(self) -> list[Way]:
        """First those that a task has marked, then those whose guard is asked again, in their order."""
        marked: list[Way] = []
        asked: list[Way] = []
        excluded: list[str] = []
        for plan in (*self._success, *(each for each in self._failure if each.marker)):
            target = plan.chain.target
            if plan.marker is not None:
                shown = f"{self._step.name}.results.{plan.marker} is defined"
                if target is not None:
                    self._check_name()
                    marked.append(Way((shown,), self._seen_targets(plan, target), at=target.at))
                else:
                    excluded.append(negation(shown))
                continue
            if plan.chain.repeats or isinstance(plan.chain.end, FailAction):
                continue
            parts = self._asked_at_boundary(plan)
            if target is not None:
                assert parts is not None, "it would have been marked"
                targets = self._seen_targets(plan, target)
                asked.append(Way((*parts, *excluded), targets, at=target.at))
            elif parts:
                excluded.append(negation(conjunction(list(parts))))
            elif parts == () and plan.entry is self._success[-1].entry:
                break
        self._check_names([*marked, *asked])
        return [*marked, *asked]

    def _seen_targets(self, plan: Plan, action: NextAction) -> tuple[Target, ...]:
        """The targets with args as an arc sees them."""
        seen = self._targets(action)
        if seen is not None:
            return seen
        label = next(
            (task.label for task in self._tasks_before(plan.marker) if task.label.startswith("next_args")), ""
        )
        place = f"{self._step.name}.results.{label}"
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

    def _tasks_before(self, marker: str | None) -> list[Task]:
        labels = [task.label for task in self._tasks]
        index = labels.index(marker) if marker in labels else 0
        return self._tasks[max(0, index - 1) : index]

    def _failure_ways(self) -> list[Way]:
        found: list[Way] = []
        excluded: list[Plan] = []
        for plan in self._failure:
            target = plan.chain.target
            if target is None or plan.marker is not None or not self._routes_failure(target):
                excluded.append(plan)
                continue
            asked = [self._asked_at_boundary(each) for each in (*excluded, plan)]
            targets = self._targets(target)
            if targets is None or any(parts is None for parts in asked):
                self._report.say("failure-details", plan.entry.branch.at)
                continue
            if any(parts == () for parts in asked[:-1]):
                continue
            negated = [negation(conjunction(list(parts))) for parts in asked[:-1] if parts]
            found.append(Way((*(asked[-1] or ()), *negated), targets, on="failed", at=target.at))
        if found and any(plan.chain.has_tasks or isinstance(plan.chain.end, FailAction) for plan in self._success):
            self._report.say("failure-of-many", self._step.at)
        self._check_names(found)
        return found

    def _routes_failure(self, action: NextAction) -> bool:
        """A `next` whose args read the response cannot be taken after a failed call."""
        args = tuple(target.args for target in action.targets)
        if not names_read(args) & AFTER_SUCCESS:
            return True
        if any(read.guarded for value in _templates(args) for read in value.reads if read.path[0] in AFTER_SUCCESS):
            self._report.say("case-values", action.at)
        return False

    def _exit_ways(self) -> list[Way]:
        """What is decided when the step is left, after all that was decided after the call."""
        found: list[Way] = []
        names = dict(self._boundary())
        if self._call is None:
            names |= dict.fromkeys((*AFTER_SUCCESS, "error"), refused)
        for entry in self._exit:
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
        self._check_names(found)
        return found

    def _check_names(self, ways: list[Way]) -> None:
        texts = [Template("{{ " + part + " }}") for way in ways for part in way.parts]
        read = paths_read((texts, tuple(target.args for way in ways for target in way.targets)))
        if any(path[0] == self._step.name for path in read):
            self._check_name()

    def _check_name(self) -> None:
        if not self._step.name.isidentifier():
            self._report.say("step-name", self._step.at)


def _rule(when: Template, then: Directive | None) -> Callable[[bool], Rule]:
    def build(last: bool) -> Rule:
        do = Directive(do="continue") if then is None else then
        if do.do == "continue" and not last:
            do = msgspec.structs.replace(do, do="break")
        return Rule(when=when, then=do)

    return build


def _acts(chain: Chain) -> bool:
    return chain.repeats or isinstance(chain.end, FailAction)


def _check_retry_action(action: RetryAction, report: Report) -> None:
    retry = action.retry
    if retry.retry_when is not None or retry.stop_when is not None or retry.on != ("error",):
        report.say("retry-predicate", action.at)


def _cannot_fail(call: Task | None) -> bool:
    return call is not None and call.kind == "noop" and not (call.config or call.args or call.spec)


def _values_kept(case: Case) -> frozenset[str]:
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
