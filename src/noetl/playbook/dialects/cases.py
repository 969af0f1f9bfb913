"""Reads v2's `case`: entries with a guard, and the actions they start."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from noetl.errors import TemplateSyntaxError
from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.repeats import read_poll, read_retry
from noetl.playbook.dialects.tasks import read_sink, read_task
from noetl.playbook.dialects.transitions import next_action
from noetl.playbook.fields import Fields, is_templated, quoted
from noetl.playbook.findings import Place
from noetl.playbook.model import (
    Action,
    CallAction,
    CaseBranch,
    CollectAction,
    FailAction,
    Guard,
    ResultAction,
    Retry,
    RetryAction,
    SetAction,
    SinkAction,
    SkipAction,
    Task,
    TaskAction,
    Value,
)
from noetl.playbook.reader import Mapping, Node, Scalar, Sequence
from noetl.template import Template

ENTRY_KEYS: Final = frozenset({"when", "then", "else", "priority", "spec", "retry"})
NAMED_TASK_KEYS: Final = frozenset({"tool", "retry", "poll", "desc"})
FIRST_ACTIONS: Final = ("set", "collect", "result", "sink")
LAST_ACTIONS: Final = ("call", "retry", "fail", "skip", "next")
ACTIONS: Final = frozenset(FIRST_ACTIONS + LAST_ACTIONS)


class Defaults(NamedTuple):
    """What the actions of a step take over from it."""

    retry: Retry | None
    on_event: bool


class Shifted:
    """The location of a template made from a dotted path: its source begins `{{ `."""

    __slots__ = ("column", "line", "node")

    def __init__(self, node: Scalar) -> None:
        self.node = node
        self.line = node.line
        self.column = node.column

    def locate(self, offset: int) -> Place:
        return self.node.locate(max(0, offset - 3))


def branches(low: Lowering, step: Fields, defaults: Defaults) -> tuple[CaseBranch, ...]:
    node = step.sequence("case")
    if node is None:
        return ()
    found = (_entry(low, item, number, defaults) for number, item in enumerate(node.items))
    return tuple(branch for branch in found if branch is not None)


def _entry(low: Lowering, node: Node, number: int, defaults: Defaults) -> CaseBranch | None:
    fields = low.fields(node, "a case entry", ENTRY_KEYS)
    if fields is None:
        return None
    when: Guard | None = None
    if fields.has("else"):
        for extra in ("when", "then"):
            if fields.has(extra):
                low.findings.report(
                    "rule.else_with_when",
                    fields.key(extra),
                    f"`{extra}` cannot stand beside `else` in a case entry",
                    "make `else` an entry of its own",
                )
        if defaults.on_event:
            low.findings.report(
                "case.else_on_event",
                fields.key("else"),
                "`else` in a step that waits for events would take the first event it sees",
            )
        chain = fields.entries["else"].value
    else:
        fields.require("when", "then")
        if not fields.has("then"):
            return None
        read = fields.guard()
        when = False if read is None else read
        chain = fields.entries["then"].value
    if isinstance(chain, Mapping) and set(chain.entries) == {"then"}:
        chain = chain.entries["then"].value
    _check_entry_spec(low, fields)
    retry = read_retry(low, fields)
    inherited = defaults.retry if retry is None or retry.scope == "chain" else retry
    return CaseBranch(
        id=f"case_{number}",
        when=when,
        every_moment=defaults.on_event or _names_event(when),
        priority=fields.number("priority") or 0,
        retry=retry if retry is not None and retry.scope == "chain" else None,
        actions=_chain(low, chain, inherited),
        at=position(fields.first),
    )


def _check_entry_spec(low: Lowering, entry: Fields) -> None:
    """`cache` is a hint that changes no result, so nothing of it reaches the model."""
    spec = entry.mapping("spec")
    if spec is not None:
        fields = Fields(low.findings, spec, "`spec` of a case entry", spec.entries)
        for name in spec.entries:
            if name != "cache":
                fields.unknown(name, ("cache",), "knob.unknown")


def _names_event(when: Guard | None) -> bool:
    if not isinstance(when, Template):
        return False
    try:
        return any(read.path[0] == "event" for read in when.reads)
    except TemplateSyntaxError:  # reported where templates are checked
        return "event" in when.source


def _chain(low: Lowering, node: Node, inherited: Retry | None) -> tuple[Action, ...]:
    """The actions of a `then`: in written order as a list, in fixed order as a mapping."""
    if isinstance(node, Sequence):
        found = []
        for item in node.items:
            if isinstance(item, Mapping) and len(item.entries) == 1:
                fields = Fields(low.findings, item, "`then`", item.entries)
                found.append(_action(low, fields, next(iter(item.entries)), inherited))
            else:
                low.findings.report(
                    "case.action_shape", item, "each entry of `then` is one action", "- next: …"
                )
        return tuple(action for action in found if action is not None)
    if not isinstance(node, Mapping):
        low.findings.report("case.action_shape", node, "`then` must be a mapping or a list of actions")
        return ()
    fields = Fields(low.findings, node, "`then`", node.entries)
    ends = [name for name in node.entries if name in LAST_ACTIONS and not _is_named_task(fields, name)]
    if len(ends) > 1:
        low.findings.report(
            "case.two_ends",
            fields.key(ends[1]),
            f"{quoted(ends)} cannot stand in one `then`",
            "each of them ends the chain: keep one, or write a list",
        )
    named = [name for name in node.entries if name not in ACTIONS]
    order = [name for name in FIRST_ACTIONS if fields.has(name)] + named + ends[:1]
    return tuple(a for name in order if (a := _action(low, fields, name, inherited)) is not None)


def _is_named_task(fields: Fields, name: str) -> bool:
    node = fields.raw(name)
    return name != "sink" and isinstance(node, Mapping) and "tool" in node.entries


def _action(low: Lowering, fields: Fields, name: str, inherited: Retry | None) -> Action | None:
    if _is_named_task(fields, name):
        return _named_task(low, fields, name, inherited)
    if name not in ACTIONS:
        low.findings.report(
            "case.unknown_action",
            fields.key(name),
            f"`{name}` is neither an action nor a task with a `tool`",
            f"actions: {quoted(sorted(ACTIONS))}",
        )
        return None
    at = position(fields.key(name))
    match name:
        case "next":
            return next_action(low, fields)
        case "retry":
            retry = read_retry(low, fields)
            return None if retry is None else RetryAction(retry=retry, at=at)
        case "call":
            return CallAction(overrides=fields.values("call"), at=at)
        case "sink":
            sink = read_sink(low, fields)
            return None if sink is None else SinkAction(sink=sink, at=at)
        case "skip":
            return SkipAction(at=at)
        case "fail":
            return FailAction(message=_fail_message(low, fields), at=at)
        case "set":
            return _set(low, fields)
        case "collect":
            return _collect(low, fields)
        case _:
            return _result(low, fields)


def _named_task(low: Lowering, owner: Fields, name: str, inherited: Retry | None) -> TaskAction | None:
    low.declare("a task", name, owner.key(name))
    fields = low.fields(owner.entries[name].value, f"task `{name}`", NAMED_TASK_KEYS)
    tool = None if fields is None else fields.mapping("tool")
    if fields is None or tool is None:
        return None
    if "kind" not in tool.entries:
        at = Fields(low.findings, tool, name, tool.entries).first
        low.findings.report("tool.no_kind", at, f"task `{name}` needs `kind`", "tool: {kind: …}")
        return None
    task = read_task(low, tool, name, None, owner.key(name))
    retry = read_retry(low, fields)
    poll = read_poll(low, fields)
    if not isinstance(task, Task):
        low.findings.report("case.task_kind", owner.key(name), "an `iterator` cannot be a task of a case")
        return None
    return TaskAction(task=with_repeats(task, retry or inherited, poll), at=position(owner.key(name)))


def with_repeats(task: Task, retry: Retry | None, poll: object = None) -> Task:
    """The task with a poll, and with a retry unless it has its own."""
    parts = {name: getattr(task, name) for name in task.__struct_fields__}
    return Task(**parts | {"retry": task.retry or retry, "poll": poll or task.poll})


def _set(low: Lowering, owner: Fields) -> SetAction | None:
    fields = low.fields(owner.entries["set"].value, "`set`", ("ctx",))
    if fields is None:
        return None
    fields.require("ctx")
    return SetAction(values=fields.values("ctx"), at=position(owner.key("set")))


def _collect(low: Lowering, owner: Fields) -> CollectAction | None:
    fields = low.fields(owner.entries["collect"].value, "`collect`", ("from", "into", "mode"))
    if fields is None:
        return None
    fields.require("from", "into")
    into = fields.name("into")
    mode: Literal["append", "extend"] | None = fields.choice("mode", ("append", "extend"))
    if into is None or not fields.has("from"):
        return None
    return CollectAction(
        source=path_or_value(low, fields, "from"),
        into=into,
        mode=mode or "append",
        at=position(owner.key("collect")),
    )


def _result(low: Lowering, owner: Fields) -> ResultAction | None:
    at = position(owner.key("result"))
    node = owner.entries["result"].value
    if isinstance(node, Mapping):
        fields = Fields(low.findings, node, "`result`", ("from",))
        fields.require("from")
        return ResultAction(source=path_or_value(low, fields, "from"), at=at)
    return ResultAction(source=path_or_value(low, owner, "result"), at=at)


def path_or_value(low: Lowering, fields: Fields, name: str) -> Value:
    """A dotted path is read as the template `{{ path }}`; anything else is data."""
    node = fields.raw(name)
    if isinstance(node, Scalar) and isinstance(node.value, str) and not is_templated(node.value):
        path = node.value.strip()
        if path and all(part.isidentifier() for part in path.split(".")):
            return Template("{{ " + path + " }}", Shifted(node))
        low.findings.report(
            "value.type", node, f"`{name}` must be a dotted path or a template", "from: response.data"
        )
        return None
    return fields.value(name)


def _fail_message(low: Lowering, owner: Fields) -> Value:
    node = owner.entries["fail"].value
    if isinstance(node, Mapping):
        return Fields(low.findings, node, "`fail`", ("message",)).value("message")
    return owner.value("fail")
