"""Finds keychain values on their way to where they do not belong.

What the log keeps is one such place: they arrive there as `***`. A task's own fields may read them, since
those live only while the task runs, but for the few that others on the machine or on the screen can read.
Nothing here knows a secret, only which templates read the keychain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from noetl.errors import TemplateSyntaxError
from noetl.playbook.check.names import locate, templates_in
from noetl.playbook.check.pipelines import owners, sink_task, tasks_in
from noetl.playbook.findings import Findings
from noetl.playbook.model import (
    Block,
    CallAction,
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
STANDS_IN: Final = re.compile(r"\|\s*(default|d)\b")
"""With this, a read that cannot fail gives the value all the same; without it, it asks for its presence."""


class Open(NamedTuple):
    """A place that others than the task can read: the code to report, its name, and what to do instead."""

    code: str
    where: str
    hint: str


_BY_FILE: Final = "name the credential as `auth` and read it from the file that `NOETL_AUTH` names"
_COMMAND_LINE: Final = Open(
    "secret.shown",
    "the command line of a program, which every user of the machine can read",
    f"{_BY_FILE}, or pass it by `args`, which reach a script on its standard input",
)
_ENVIRONMENT: Final = Open(
    "secret.environment",
    "the environment of a program, which all that it starts inherits and its user's other programs can read",
    _BY_FILE,
)
_SIGNAL: Final = Open(
    "secret.shown",
    "the name of a signal, which stands in the log and on the screen",
    "name the signal after something that is no secret, such as an id; what is secret belongs in its data",
)
OPEN_FIELDS: Final[dict[str, dict[str, Open]]] = {
    "script": {"arguments": _COMMAND_LINE, "interpreter": _COMMAND_LINE, "env": _ENVIRONMENT},
    "shell": {"env": _ENVIRONMENT},
    "wait": {"signal": _SIGNAL},
}
"""The fields, by kind, that others can read while the task runs or after."""


def check_secrets(playbook: Playbook, findings: Findings) -> None:
    if not playbook.keychain:
        return
    for value, where in _kept(playbook):
        for template, read in _secret_reads(value):
            findings.report(
                "secret.kept",
                locate(template, read.offset),
                f"`{_name(read)}` goes into {where}, which the log keeps, so it arrives as `***`",
                "read it in the fields of the task that needs it",
            )
    for value, place in _open(playbook):
        for template, read in _secret_reads(value):
            findings.report(
                place.code,
                locate(template, read.offset),
                f"`{_name(read)}` goes into {place.where}",
                place.hint,
            )


def _name(read: Read) -> str:
    return ".".join(read.path[:2])


def _secret_reads(value: Value) -> Iterator[tuple[Template, Read]]:
    """The templates of a value that give a secret, each with its first read of one."""
    for template in templates_in(value):
        if (read := _secret_read(template)) is not None:
            yield template, read


def _secret_read(template: Template) -> Read | None:
    try:
        reads = [each for each in template.reads if each.path[0] == "keychain"]
    except TemplateSyntaxError:  # reported with the other templates
        return None
    stands_in = STANDS_IN.search(template.source) is not None
    found = next((each for each in reads if stands_in or not each.guarded), None)
    if found is None:
        return None
    if template.sole and YES_OR_NO.search(template.source) and " if " not in template.source:
        return None
    return found


def _open(playbook: Playbook) -> Iterator[tuple[Value, Open]]:
    """The fields of tasks that others can read, those that a case gives to a further call included."""
    for owner in owners(playbook):
        for task in (*tasks_in(owner.body), *sink_task(owner.sink)):
            yield from _open_fields(task.kind, task.config)
        for node in owner.body:
            if isinstance(node, Case) and node.call is not None:
                for branch in node.branches:
                    for action in branch.actions:
                        if isinstance(action, CallAction):
                            yield from _open_fields(node.call.kind, action.overrides)


def _open_fields(kind: str, fields: dict[str, Value]) -> Iterator[tuple[Value, Open]]:
    for name, place in OPEN_FIELDS.get(kind, {}).items():
        if name in fields:
            yield fields[name], place


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
