"""Reads v1's task definitions: those of the workbook, those under `run`, and the one of an iterator.

A called task's direct subtasks start side by side, except that one which reads an earlier sibling
waits for it; deeper down, a list under `run` is a sequence that follows its parent. Names, tool
kinds and tool fields are checked on the model, not here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from noetl.errors import TemplateSyntaxError
from noetl.playbook.diagnostics import Position
from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.specs import knobs
from noetl.playbook.dialects.tasks import read_sink
from noetl.playbook.fields import REPLACED, Fields, value
from noetl.playbook.knobs import TASK_KNOBS
from noetl.playbook.model import (
    Backoff,
    Block,
    Guard,
    Parallel,
    ParallelBranch,
    Record,
    Retry,
    Sink,
    Task,
    Value,
    WorkbookEntry,
)
from noetl.playbook.model import Node as BodyNode
from noetl.playbook.reader import Mapping, Node, Scalar
from noetl.template import Template

COMPOSITE: Final = "task"
CALL_KEYS: Final = frozenset({"retry", "retry_delay", "on_error", "timeout", "spec"})
"""How a tool is called: a task that only groups others has no call."""
TASK_KEYS: Final = frozenset({"task", "type", "desc", "with", "when", "run", "save"})
STEP_WORDS: Final = {
    "loop": "`loop` is allowed only in steps",
    "next": "`next` is allowed only in steps",
    "join": "`join` is allowed only in steps",
    "call": "`call` is allowed only in steps",
}
TASK_HINTS: Final = REPLACED | {
    "args": "write `with`",
    "kind": "write `type`",
    "tool": "write `type`, and the tool's fields beside it",
}
"""Words of other dialects, with what to write on a task instead."""
NOT_A_TYPE: Final = {
    "iterator": "iterate in a step: {step: …, type: iterator, collection: …, element: …, task: {…}}",
    "workbook": "only a step calls a workbook task: call: {task: …}",
}


def workbook_names(items: list[Node]) -> frozenset[str]:
    """The names of the top-level tasks, read ahead of them."""
    written = (item.get("task") for item in items if isinstance(item, Mapping))
    return frozenset(
        node.value for node in written if isinstance(node, Scalar) and isinstance(node.value, str)
    )


class TaskReader:
    """Reads task definitions; it knows the top-level names because nested tasks may not use them."""

    __slots__ = ("_low", "_top_level")

    def __init__(self, low: Lowering, top_level: Collection[str]) -> None:
        self._low = low
        self._top_level = top_level

    def entry(self, node: Node) -> WorkbookEntry | None:
        """A top-level task; its `with` is what a call need not give."""
        fields = self._open(node, "a workbook task")
        if fields is None:
            return None
        fields.require("task")
        name = self._name(fields)
        if not fields.has("type"):
            hint = "type: task" if fields.has("run") else "type: http"
            self._low.findings.report("key.missing", fields.first, f"{fields.what} needs `type`", hint)
        args = fields.values("with")
        body = self._node(fields, name or "", called=True, args={})
        description = fields.text("desc")
        if name is None:
            return None
        return WorkbookEntry(
            name=name,
            description=description,
            args=args,
            body=() if body is None else (body,),
            at=position(fields.place("task")),
        )

    def iterated(self, node: Node) -> BodyNode | None:
        """The task an iterator runs for each element; it need not have a name."""
        fields = self._open(node, "the task of an iterator")
        if fields is None:
            return None
        label = self._name(fields) if fields.has("task") else "task_1"
        if not self._is_inline(fields, label):
            return None
        return self._node(fields, label or "task_1", called=True, args=fields.values("with"))

    # --- one definition -----------------------------------------------------------------------------

    def _open(self, node: Node, what: str) -> Fields | None:
        if isinstance(node, Mapping):
            written = getattr(node.get("task"), "value", None)
            shown = f"task `{written}`" if isinstance(written, str) else what
            return Fields(self._low.findings, node, shown, node.entries.keys())
        self._low.findings.report(
            "value.type", node, f"{what} must be a mapping", "define it here: {task: …, type: …}"
        )
        return None

    def _name(self, fields: Fields) -> str | None:
        name = fields.name("task")
        if name is not None:
            self._low.declare("a task", name, fields.place("task"))
        return name

    def _is_inline(self, fields: Fields, name: str | None) -> bool:
        """Nested tasks are defined where they stand: one without a type is a reference or a slip."""
        if fields.has("type"):
            return True
        if name in self._top_level:
            self._low.findings.report(
                "task.reference",
                fields.place("task"),
                f"a nested task cannot refer to the top-level task `{name}`",
                "define it inline, with its `type`, or let a step call it",
            )
        else:
            hint = "type: task" if fields.has("run") else None
            self._low.findings.report("key.missing", fields.first, f"{fields.what} needs `type`", hint)
        return False

    def _node(self, fields: Fields, label: str, *, called: bool, args: Value) -> BodyNode | None:
        """The node of a definition: its own call, the tasks under its `run`, or one after the other."""
        kind = self._kind(fields)
        when = _guard(fields)
        sink = read_save(self._low, fields)
        at = position(fields.place("task"))
        children = self._children(fields)
        if kind is None or kind == COMPOSITE:
            self._check_composite(fields, kind)
            if not children:
                return None
            if called and sink is None:
                return _side_by_side(label, children, at, args, when)
            body = (_side_by_side(f"{label}_run", children, at),) if called else children
            return Block(label=label, body=body, args=args, when=when, sink=sink, at=at)
        if not children:
            return self._call(fields, label, kind, args=args, when=when, sink=sink)
        own = self._call(fields, label, kind)
        following = (_side_by_side(f"{label}_run", children, at),) if called else children
        return Block(label=label, body=(own, *following), args=args, when=when, sink=sink, at=at)

    def _kind(self, fields: Fields) -> str | None:
        kind = fields.name("type")
        if kind in NOT_A_TYPE:
            self._low.findings.report(
                "value.choice", fields.place("type"), f"a task cannot be of type `{kind}`", NOT_A_TYPE[kind]
            )
            return None
        return kind

    def _children(self, fields: Fields) -> tuple[BodyNode, ...]:
        written = fields.sequence("run")
        if written is None:
            return ()
        if not written.items:
            self._low.findings.report("value.type", written, f"`run` of {fields.what} lists no task")
        return tuple(child for item in written.items if (child := self._nested(item)) is not None)

    def _nested(self, node: Node) -> BodyNode | None:
        fields = self._open(node, "a task under `run`")
        if fields is None:
            return None
        fields.require("task")
        name = self._name(fields)
        if name is None or not self._is_inline(fields, name):
            return None
        return self._node(fields, name, called=False, args=fields.values("with"))

    def _check_composite(self, fields: Fields, kind: str | None) -> None:
        """A task of type `task` is only its `run`."""
        if kind is None:
            return  # what its other keys would mean is unknown
        if not fields.has("run"):
            self._low.findings.report(
                "key.missing", fields.first, f"{fields.what} of type `task` needs `run`"
            )
        for name in fields.entries:
            if name in CALL_KEYS:
                self._low.findings.report(
                    "key.misplaced",
                    fields.key(name),
                    f"`{name}` does not belong on a task of type `task`, which calls nothing itself",
                    "write it on the tasks under `run`",
                )
            elif name not in TASK_KEYS and not self._refuse(fields, name):
                fields.unknown(name, TASK_KEYS)

    def _refuse(self, fields: Fields, name: str) -> bool:
        """Reports a key that belongs to a step or to another dialect."""
        if name in STEP_WORDS:
            self._low.findings.report(
                "key.misplaced", fields.key(name), STEP_WORDS[name], f"{fields.what} is a task"
            )
        elif name in TASK_HINTS:
            self._low.findings.report(
                "key.replaced", fields.key(name), f"`{name}` is not a key of a task", TASK_HINTS[name]
            )
        else:
            return False
        return True

    # --- its own call -------------------------------------------------------------------------------

    def _call(
        self,
        fields: Fields,
        label: str,
        kind: str,
        *,
        args: Value = None,
        when: Guard | None = None,
        sink: Sink | None = None,
    ) -> Task:
        config: dict[str, Value] = {}
        places = {"kind": position(fields.place("type"))}
        for name, entry in fields.entries.items():
            if name in TASK_KEYS or name in CALL_KEYS or self._refuse(fields, name):
                continue
            config[name] = value(self._low.findings, entry.value)
            places[name] = position(entry.key)
        return Task(
            label=label,
            kind=kind,
            at=position(fields.place("task")),
            config=config,
            config_at=places,
            first_at=position(fields.first),
            args={} if args is None else args,
            spec=_spec(self._low, fields),
            retry=_retry(self._low, fields),
            sink=sink,
            when=when,
            on_error="continue" if fields.choice("on_error", ("continue", "fail")) == "continue" else "fail",
        )


def _guard(fields: Fields) -> Guard | None:
    """A condition that could not be read was reported; it must not let the task run unasked."""
    if not fields.has("when"):
        return None
    found = fields.guard()
    return False if found is None else found


def _spec(low: Lowering, fields: Fields) -> dict[str, Value]:
    node = fields.mapping("spec")
    spec: dict[str, Value] = {}
    if node is not None:
        spec = knobs(low, Fields(low.findings, node, "spec", node.entries.keys()), TASK_KNOBS, {})
    if fields.has("timeout"):
        if not isinstance(fields.raw("timeout"), Mapping):
            fields.duration("timeout")
        spec.setdefault("timeout", fields.value("timeout"))
    return spec


def _retry(low: Lowering, fields: Fields) -> Retry | None:
    """`retry: N` is N more executions after the first."""
    delay = fields.duration("retry_delay")
    node = fields.raw("retry")
    if node is None:
        if fields.has("retry_delay"):
            low.findings.report(
                "task.idle_key", fields.key("retry_delay"), "`retry_delay` has no effect without `retry`"
            )
        return None
    more = node.value if isinstance(node, Scalar) else None
    if type(more) is not int or more < 0:
        fields.wrong_type("retry", "a whole number of at least 0")
        return None
    return Retry(
        max_attempts=more + 1,
        backoff=Backoff(delay=0.0 if delay is None else delay),
        at=position(fields.key("retry")),
    )


# --- `save` ---------------------------------------------------------------------------------------


def read_save(low: Lowering, owner: Fields) -> Sink | None:
    """A sink, by `tool: {kind: …}` or with the tool's `type` and fields written directly."""
    node = owner.raw("save")
    if node is None:
        return None
    if not isinstance(node, Mapping):
        owner.wrong_type("save", "a mapping")
        return None
    if "tool" in node.entries:
        return read_sink(low, owner, "save")
    fields = Fields(low.findings, node, "`save`", node.entries.keys())
    kind = fields.name("type")
    if not fields.has("type"):
        low.findings.report(
            "key.missing", fields.first, "`save` needs `type` or `tool`", "save: {type: postgres, table: …}"
        )
    own = {"type", "when", "args", "with", "spec", "timeout"}
    rest = {name: entry for name, entry in node.entries.items() if name not in own}
    args = fields.value("args" if fields.has("args") else "with")
    if fields.has("args") and fields.has("with"):
        low.findings.report(
            "key.misplaced", fields.key("with"), "`with` and `args` mean the same", "keep `args`"
        )
    when = _guard(fields)
    if kind is None:
        return None
    places = {name: position(entry.key) for name, entry in rest.items()}
    task = Task(
        label="save",
        kind=kind,
        at=position(fields.first),
        config={name: value(low.findings, entry.value) for name, entry in rest.items()},
        config_at=places | {"kind": position(fields.place("type"))},
        first_at=position(fields.first),
        args={} if args is None else args,
        spec=_spec(low, fields),
    )
    return Sink(task=task, when=when, at=position(owner.key("save")))


# --- siblings that start together -----------------------------------------------------------------


def _side_by_side(
    label: str,
    nodes: tuple[BodyNode, ...],
    at: Position,
    args: Value = None,
    when: Guard | None = None,
) -> Parallel:
    """Nodes that start together, but for those that read what an earlier one gives."""
    branches: list[ParallelBranch] = []
    numbers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        read = _names_read(node, frozenset())
        after = tuple(sorted(index for name, index in numbers.items() if name in read))
        branches.append(ParallelBranch(node=node, after=after))
        assert isinstance(node, Task | Block | Parallel)  # v1 has no cases
        numbers[node.label] = number
    return Parallel(
        label=label, branches=tuple(branches), args={} if args is None else args, when=when, at=at
    )


def _names_read(part: object, hidden: frozenset[str]) -> frozenset[str]:
    """The names that templates anywhere in `part` read, except those its own args bind."""
    if isinstance(part, Template):
        try:
            return frozenset(read.path[0] for read in part.reads) - hidden
        except TemplateSyntaxError:  # reported where templates are checked
            return frozenset()
    if isinstance(part, Task | Block | Parallel):
        # Args are rendered outside and visible inside, so they hide names only from what is inside.
        inner = hidden | frozenset(part.args if isinstance(part.args, dict) else ())
        inside = (getattr(part, name) for name in part.__struct_fields__ if name != "args")
        return _names_read(part.args, hidden).union(*(_names_read(item, inner) for item in inside))
    if isinstance(part, dict):
        return frozenset[str]().union(*(_names_read(item, hidden) for item in part.values()))
    if isinstance(part, list | tuple):
        return frozenset[str]().union(*(_names_read(item, hidden) for item in part))
    if isinstance(part, Record):
        return frozenset[str]().union(
            *(_names_read(getattr(part, name), hidden) for name in part.__struct_fields__)
        )
    return frozenset()
