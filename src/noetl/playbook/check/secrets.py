"""Finds keychain values on their way into what the log keeps, where they arrive as `***`.

A task's own fields may read them: those live only while the task runs. Nothing here knows a secret, only
which templates read the keychain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from noetl.errors import TemplateSyntaxError
from noetl.playbook.check.names import locate, templates_in
from noetl.playbook.check.pipelines import owners, tasks_in
from noetl.playbook.findings import Findings
from noetl.playbook.model import (
    Block,
    Case,
    CollectAction,
    NextAction,
    Node,
    Parallel,
    Playbook,
    ResultAction,
    SetAction,
    Step,
    Task,
    Value,
)
from noetl.template import Read, Template

YES_OR_NO: Final = re.compile(r"\s(==|!=|<=?|>=?|in|is)\s|\bnot\s|\|\s*(length|count)\b")
"""A template with this in it gives a truth or a number, which no secret is, unless it chooses by `if`."""


def check_secrets(playbook: Playbook, findings: Findings) -> None:
    if not playbook.keychain:
        return
    for value, where in _kept(playbook):
        for template in templates_in(value):
            read = _secret_read(template)
            if read is not None:
                name = ".".join(read.path[:2])
                findings.report(
                    "secret.kept",
                    locate(template, read.offset),
                    f"`{name}` goes into {where}, which the log keeps, so it arrives as `***`",
                    "read it in the fields of the task that needs it",
                )


def _secret_read(template: Template) -> Read | None:
    try:
        found = next((each for each in template.reads if each.path[0] == "keychain"), None)
    except TemplateSyntaxError:  # reported with the other templates
        return None
    if found is None or found.guarded:
        return None
    if template.sole and YES_OR_NO.search(template.source) and " if " not in template.source:
        return None
    return found


def _kept(playbook: Playbook) -> Iterator[tuple[Value, str]]:
    """Every value that becomes part of an event, with the name of its place."""
    for owner in owners(playbook):
        if owner.loop is not None:
            yield owner.loop.source, "the elements of a loop"
        yield from _in_nodes(owner.body)
        for task in tasks_in(owner.body):
            yield from _in_task(task)
        if isinstance(owner, Step):
            yield from _of_step(owner)


def _of_step(step: Step) -> Iterator[tuple[Value, str]]:
    yield step.args, "the arguments of a step"
    yield step.vars, "variables"
    if step.spread is not None:
        yield step.spread.source, "the elements of a loop"
    for arc in step.router.arcs:
        for target in arc.targets:
            yield target.args, "the arguments of a step"


def _in_task(task: Task) -> Iterator[tuple[Value, str]]:
    for rule in task.rules or ():
        yield rule.then.set_ctx, "`ctx`"
        yield rule.then.set_iter, "`iter`"
    if task.kind == "playbook":
        yield task.args, "the payload of another execution"


def _in_nodes(nodes: tuple[Node, ...]) -> Iterator[tuple[Value, str]]:
    for node in nodes:
        if isinstance(node, Block):
            yield node.args, "the arguments of a block"
            if node.loop is not None:
                yield node.loop.source, "the elements of a loop"
            yield from _in_nodes(node.body)
        elif isinstance(node, Parallel):
            yield node.args, "the arguments of a block"
            yield from _in_nodes(tuple(branch.node for branch in node.branches))
        elif isinstance(node, Case):
            yield from _in_case(node)


def _in_case(case: Case) -> Iterator[tuple[Value, str]]:
    for branch in case.branches:
        for action in branch.actions:
            match action:
                case SetAction():
                    yield action.values, "`ctx`"
                case CollectAction():
                    yield action.source, "what is collected"
                case ResultAction():
                    yield action.source, "the step's result"
                case NextAction():
                    for target in action.targets:
                        yield target.args, "the arguments of a step"
                case _:
                    pass
