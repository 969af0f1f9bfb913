"""Reads `tool`: one task, a list of tasks, or a list of named tasks and blocks."""

from __future__ import annotations

from typing import Final

from noetl.playbook.dialects.loops import ITERATOR_LOOP_KEYS, iterator_loop, read_loop
from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.policies import rules
from noetl.playbook.dialects.repeats import read_poll, read_retry, tool_retry
from noetl.playbook.dialects.specs import knobs
from noetl.playbook.fields import REPLACED, Fields, value
from noetl.playbook.findings import Place
from noetl.playbook.knobs import TASK_KNOBS
from noetl.playbook.model import Block, Loop, Retry, Sink, Task, Value
from noetl.playbook.model import Node as BodyNode
from noetl.playbook.reader import Mapping, Node, Scalar, Sequence

TASK_OWN_KNOBS: Final = {"policy": "`rules`: what follows an outcome."}
RETRY_KNOB: Final = {"retry": "How often the call is repeated: a number, or a retry clause."}
BLOCK_KEYS: Final = frozenset({"loop", "tool", "spec", "desc"})
SINK_KEYS: Final = frozenset({"tool", "when"})
MISPLACED: Final = {"policy": "spec.policy", "rules": "spec.policy.rules"}
HANDLED: Final = frozenset({"kind", "args", "spec", "timeout"})


def body(low: Lowering, node: Node | None, loop: Loop | None) -> tuple[BodyNode, ...]:
    """The labelled pipeline of a `tool` in any of its forms."""
    if node is None:
        return ()
    if isinstance(node, Sequence):
        written = [_entry(low, item, number, loop) for number, item in enumerate(node.items, start=1)]
        nodes = tuple(found for found in written if found is not None)
    elif isinstance(node, Mapping):
        single = _anonymous(low, node, "task_1", loop)
        nodes = () if single is None else (single,)
    else:
        low.findings.report(
            "tool.shape", node, "`tool` must be a task, or a list of tasks", "tool: {kind: …}"
        )
        nodes = ()
    return nodes


def _entry(low: Lowering, item: Node, number: int, loop: Loop | None) -> BodyNode | None:
    """A list entry: `label: {…}`, or a task or block without a label."""
    if not isinstance(item, Mapping):
        low.findings.report("tool.shape", item, "an entry of `tool` must be a task", "- label: {kind: …}")
        return None
    if len(item.entries) == 1:
        ((label, entry),) = item.entries.items()
        if isinstance(entry.value, Mapping) and label not in ("loop", "tool"):
            low.declare("a task", label, entry.key)
            return _task_or_block(low, entry.value, label, loop, entry.key)
        if isinstance(entry.value, Scalar) and entry.value.value is None:
            low.findings.report("tool.shape", entry.key, f"task `{label}` is empty", "give it a `kind`")
            return None
    return _anonymous(low, item, f"task_{number}", loop)


def _anonymous(low: Lowering, node: Mapping, label: str, loop: Loop | None) -> BodyNode | None:
    first = next(iter(node.entries.values()), None)
    return _task_or_block(low, node, label, loop, node if first is None else first.key)


def _task_or_block(low: Lowering, node: Mapping, label: str, loop: Loop | None, at: Place) -> BodyNode | None:
    if "kind" in node.entries:
        return read_task(low, node, label, loop, at)
    if "tool" in node.entries:
        return _block(low, node, label, at)
    where = Fields(low.findings, node, f"task `{label}`", node.entries.keys()).first
    if "type" in node.entries:
        low.findings.report("key.replaced", node.entries["type"].key, "a tool has no `type`", "write `kind`")
    else:
        low.findings.report("tool.no_kind", where, f"task `{label}` needs `kind`", "tool: {kind: …}")
    return None


def _block(low: Lowering, node: Mapping, label: str, at: Place) -> Block | None:
    fields = Fields(low.findings, node, f"block `{label}`", BLOCK_KEYS, reported=("when",))
    if fields.has("when"):
        _refuse_field(low, fields, "when")
    fields.require("loop")
    loop = read_loop(low, fields, f"the loop of block `{label}`")
    return Block(
        label=label,
        loop=loop,
        body=body(low, fields.raw("tool"), loop),
        spec=_block_spec(low, fields.mapping("spec")),
        at=position(at),
    )


def _block_spec(low: Lowering, node: Mapping | None) -> dict[str, Value]:
    if node is None:
        return {}
    return knobs(low, Fields(low.findings, node, "`spec` of a block", node.entries.keys()), TASK_KNOBS, {})


def read_task(low: Lowering, node: Mapping, label: str, loop: Loop | None, at: Place) -> BodyNode | None:
    """A task; one of kind `iterator` is a block with a loop."""
    fields = Fields(low.findings, node, f"task `{label}`", node.entries.keys())
    kind = fields.name("kind")
    if kind == "iterator":
        return _iterator(low, fields, label, at)
    own = handled_keys(low)
    config: dict[str, Value] = {}
    places = {"kind": position(fields.place("kind"))}
    for name, entry in node.entries.items():
        if name in own:
            continue
        if name in REPLACED or name in MISPLACED or name == "when":
            _refuse_field(low, fields, name)
            continue
        config[name] = value(low.findings, entry.value)
        places[name] = position(entry.key)
    spec, read_rules, retry = _task_spec(low, fields, loop)
    if kind is None:
        return None
    return Task(
        label=label,
        kind=kind,
        at=position(at),
        config=config,
        config_at=places,
        first_at=position(fields.first),
        args=_args(low, fields),
        spec=spec,
        rules=read_rules,
        retry=tool_retry(low, fields) or retry,
        poll=read_poll(low, fields) if low.v2 else None,
    )


def handled_keys(low: Lowering) -> frozenset[str]:
    """The keys of a task that are not fields of its tool."""
    return HANDLED | {"with", "retry", "poll"} if low.v2 else HANDLED


def _refuse_field(low: Lowering, fields: Fields, name: str) -> None:
    key = fields.key(name)
    if name in MISPLACED:
        low.findings.report(
            "key.misplaced", key, f"`{name}` does not belong on a task", f"write {MISPLACED[name]}"
        )
    elif name == "when":
        low.findings.report(
            "task.when", key, "a task has no `when`", "skip it by a rule: {when: …, then: {do: skip}}"
        )
    else:
        low.findings.report("key.replaced", key, f"`{name}` is not a field of a task", REPLACED[name])


def _args(low: Lowering, fields: Fields) -> Value:
    name = "with" if low.v2 and fields.has("with") and not fields.has("args") else "args"
    found = fields.value(name)
    if low.v2 and fields.has("with") and fields.has("args"):
        low.findings.report(
            "key.misplaced", fields.key("with"), "`with` and `args` mean the same", "keep `args`"
        )
    return {} if found is None else found


def _task_spec(
    low: Lowering, fields: Fields, loop: Loop | None
) -> tuple[dict[str, Value], tuple | None, Retry | None]:  # type: ignore[type-arg]
    """The task's own knobs, its rules and the retry under its spec."""
    node = fields.mapping("spec")
    spec: dict[str, Value] = {}
    read_rules = retry = None
    if node is not None:
        inner = Fields(low.findings, node, "spec", node.entries.keys())
        spec = knobs(low, inner, TASK_KNOBS, TASK_OWN_KNOBS | (RETRY_KNOB if low.v2 else {}))
        read_rules = rules(low, inner, loop)
        if low.v2:
            retry = read_retry(low, inner, "retry")
    if fields.has("timeout"):
        timeout = fields.raw("timeout")
        if not isinstance(timeout, Mapping):
            fields.duration("timeout")
        spec.setdefault("timeout", fields.value("timeout"))
    return spec, read_rules, retry


def _iterator(low: Lowering, fields: Fields, label: str, at: Place) -> Block | None:
    """`kind: iterator` with a nested task: a block whose loop runs it."""
    known = ITERATOR_LOOP_KEYS | {"kind", "task", "tool", "save", "spec"}
    Fields(low.findings, fields.node, f"iterator `{label}`", known)
    loop = iterator_loop(low, fields, f"iterator `{label}`")
    nested = fields.raw("task") or fields.raw("tool")
    if nested is None:
        low.findings.report("key.missing", fields.first, f"iterator `{label}` needs `task`")
        return None
    spec = fields.mapping("spec")
    return Block(
        label=label,
        loop=loop,
        body=body(low, nested, loop),
        sink=read_sink(low, fields, "save"),
        spec=_block_spec(low, spec),
        at=position(at),
    )


def read_sink(low: Lowering, fields: Fields, name: str = "sink") -> Sink | None:
    """A sink: `tool` and an optional `when`."""
    node = fields.raw(name)
    if node is None:
        return None
    inner = low.fields(node, f"`{name}`", SINK_KEYS)
    if inner is None:
        return None
    inner.require("tool")
    tool = inner.mapping("tool")
    if tool is None:
        return None
    task = _anonymous(low, tool, name, None)
    if not isinstance(task, Task):
        return None
    return Sink(task=task, when=inner.guard(), at=position(fields.key(name)))
