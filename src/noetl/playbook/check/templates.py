"""Walks every template of a playbook: does it parse, is a guard one expression, are its names there.

The walk knows which names are in scope at each place of the model; `names.py` judges one template.
"""

from __future__ import annotations

from collections.abc import Mapping as Table

from noetl.playbook.check.flow import Flow
from noetl.playbook.check.names import Judge
from noetl.playbook.check.scopes import (
    ARCS,
    EVERYWHERE,
    MOMENTS,
    OWN_RESULT,
    PIPELINE,
    REPEATS,
    RULES,
    BodyNames,
    PlaybookNames,
    step_body_names,
)
from noetl.playbook.findings import Findings
from noetl.playbook.model import (
    Action,
    Arc,
    Block,
    CallAction,
    Case,
    CollectAction,
    FailAction,
    Loop,
    NextAction,
    Node,
    Parallel,
    Playbook,
    Poll,
    ResultAction,
    Retry,
    RetryAction,
    SetAction,
    Sink,
    SinkAction,
    Step,
    Task,
    TaskAction,
)
from noetl.records.tool import ToolDescription


def check_templates(
    playbook: Playbook, flow: Flow, kinds: Table[str, ToolDescription], findings: Findings
) -> None:
    names = PlaybookNames(playbook, flow)
    judge = Judge(names, kinds, findings)
    walk = _Walk(judge, names)
    outside = BodyNames()
    for entry in playbook.keychain:
        judge.values(entry.fields, EVERYWHERE, outside)
    # The keychain is resolved with the workload at hand, so the workload cannot be made from it.
    judge.values(playbook.workload, EVERYWHERE - {"keychain"}, outside)
    judge.workload_cycles(playbook.workload)
    judge.values(playbook.executor.spec, PIPELINE, BodyNames(open=True))
    judge.value(playbook.executor.deadline, EVERYWHERE, outside)
    for step in playbook.steps:
        walk.step(step)
    judge.step = None
    for workbook_entry in playbook.workbook:
        body = names.entries[workbook_entry.name]
        judge.values(workbook_entry.args, PIPELINE, BodyNames(open=True))
        judge.values(workbook_entry.spec, PIPELINE, body)
        walk.loop(workbook_entry.loop, body)
        walk.nodes(workbook_entry.body, body)
        walk.sink(workbook_entry.sink, body)


class _Walk:
    """One method for each part of the model that can hold templates."""

    def __init__(self, judge: Judge, names: PlaybookNames) -> None:
        self.judge = judge
        self.names = names

    def step(self, step: Step) -> None:
        judge = self.judge
        judge.step = step
        body = step_body_names(step, self.names)
        outside = BodyNames(args=body.args)
        for rule in step.admit or ():
            judge.guard(rule.when, ARCS, outside)
        judge.values(step.args, ARCS, outside)
        if step.spread is not None:
            judge.value(step.spread.source, EVERYWHERE, outside)
            judge.value(step.spread.max_in_flight, EVERYWHERE, outside)
        self.loop(step.loop, outside)
        judge.values(step.spec, PIPELINE, body)
        judge.value(step.deadline, EVERYWHERE, outside)
        judge.value(step.max_task_runs, EVERYWHERE, outside)
        self.nodes(step.body, body)
        judge.values(step.vars, MOMENTS, body)
        self.sink(step.sink, body)
        leaving = (
            outside
            if step.spread is None
            else BodyNames(args=body.args, iterators=frozenset((step.spread.iterator,)))
        )
        for arc in step.router.arcs:
            self.arc(arc, leaving)

    def arc(self, arc: Arc, names: BodyNames) -> None:
        self.judge.guard(arc.when, ARCS, names)
        for target in arc.targets:
            self.judge.values(target.args, ARCS, names)

    def loop(self, loop: Loop | None, names: BodyNames) -> None:
        if loop is None:
            return
        scope = PIPELINE if names.nested else EVERYWHERE
        self.judge.value(loop.source, scope, names)
        self.judge.value(loop.max_in_flight, scope, names)
        self.judge.value(loop.batch_size, scope, names)
        self.judge.values(loop.checkpoint, scope, names)
        self.judge.values(loop.spec, PIPELINE, BodyNames(open=True))

    def nodes(self, nodes: tuple[Node, ...], names: BodyNames) -> None:
        for node in nodes:
            if isinstance(node, Task):
                self.task(node, names)
            elif isinstance(node, Case):
                self.case(node, names)
            elif isinstance(node, Block):
                self.block(node, names)
            else:
                self.parallel(node, names)

    def block(self, block: Block, names: BodyNames) -> None:
        self.judge.guard(block.when, PIPELINE, names)
        self.judge.value(block.args, PIPELINE | OWN_RESULT, names)
        inside = names.inside(block.body, block.loop.iterator if block.loop else None, block.args)
        self.loop(block.loop, names.inside((), None, block.args))
        self.judge.values(block.spec, PIPELINE, inside)
        self.nodes(block.body, inside)
        self.sink(block.sink, inside)

    def parallel(self, parallel: Parallel, names: BodyNames) -> None:
        self.judge.guard(parallel.when, PIPELINE, names)
        self.judge.value(parallel.args, PIPELINE, names)
        branches = tuple(branch.node for branch in parallel.branches)
        self.nodes(branches, names.inside(branches, None, parallel.args))

    def task(self, task: Task, names: BodyNames, scope: frozenset[str] = PIPELINE | OWN_RESULT) -> None:
        judge = self.judge
        judge.guard(task.when, scope, names)
        judge.value(task.args, scope, names)
        own = names.with_args(task.args)
        judge.values(task.config, scope, own)
        judge.values(task.spec, scope, own)
        for rule in task.rules or ():
            judge.kind = task.kind
            if rule.then.do == "skip":
                judge.rule_guard(rule, scope, own)
                judge.skip_values(rule.then.set_iter, scope, own)
                judge.skip_values(rule.then.set_ctx, scope, own)
                continue
            seen = scope | RULES
            judge.rule_guard(rule, seen, own)
            judge.value(rule.then.attempts, seen, own)
            judge.value(rule.then.backoff.delay, seen, own)
            judge.value(rule.then.backoff.max_delay, seen, own)
            judge.values(rule.then.set_iter, seen, own)
            judge.values(rule.then.set_ctx, seen, own)
        self.retry(task.retry, own)
        self.poll(task.poll, own)
        self.sink(task.sink, own)

    def retry(self, retry: Retry | None, names: BodyNames) -> None:
        if retry is None:
            return
        self.judge.guard(retry.retry_when, REPEATS, names)
        self.judge.guard(retry.stop_when, REPEATS, names)
        for knob in (retry.max_attempts, retry.backoff.delay, retry.backoff.max_delay):
            self.judge.value(knob, REPEATS, names)

    def poll(self, poll: Poll | None, names: BodyNames) -> None:
        if poll is None:
            return
        self.judge.guard(poll.until, REPEATS, names)
        for knob in (poll.interval, poll.max_attempts, poll.deadline):
            self.judge.value(knob, REPEATS, names)

    def sink(self, sink: Sink | None, names: BodyNames) -> None:
        if sink is not None:
            self.judge.guard(sink.when, MOMENTS, names)
            self.task(sink.task, names, MOMENTS)

    def case(self, case: Case, names: BodyNames) -> None:
        for duration in case.timers.values():
            self.judge.value(duration, PIPELINE, names)
        if case.call is not None:
            self.task(case.call, names)
        for branch in case.branches:
            self.judge.guard(branch.when, MOMENTS, names)
            self.retry(branch.retry, names)
            for action in branch.actions:
                self.action(action, names)

    def action(self, action: Action, names: BodyNames) -> None:
        judge = self.judge
        match action:
            case SetAction():
                judge.values(action.values, MOMENTS, names)
            case CollectAction() | ResultAction():
                judge.value(action.source, MOMENTS, names)
            case SinkAction():
                self.sink(action.sink, names)
            case TaskAction():
                self.task(action.task, names, MOMENTS)
            case CallAction():
                judge.values(action.overrides, MOMENTS, names)
            case RetryAction():
                self.retry(action.retry, names)
            case FailAction():
                judge.value(action.message, MOMENTS, names)
            case NextAction():
                outside = BodyNames(labels=names.labels, args=names.args)
                judge.value(action.delay, MOMENTS, names)
                for target in action.targets:
                    judge.value(target.step, MOMENTS, names)
                    judge.values(target.args, MOMENTS, outside)
