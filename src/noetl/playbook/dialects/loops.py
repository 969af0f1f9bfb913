"""Reads `loop`: the collection, the name of its element, and how the iterations run."""

from __future__ import annotations

from typing import Final

from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.specs import knobs, refuse_directives
from noetl.playbook.fields import Fields
from noetl.playbook.knobs import LOOP_KNOBS, TASK_KNOBS
from noetl.playbook.model import NOWHERE, Loop, Value
from noetl.playbook.reader import Scalar
from noetl.template import Template

LOOP_KEYS: Final = frozenset({"in", "iterator", "spec"})
V2_LOOP_KEYS: Final = LOOP_KEYS | {"collection", "element", "mode"}
ITERATOR_LOOP_KEYS: Final = frozenset({"in", "collection", "iterator", "element", "mode"})
MODES: Final = ("sequential", "parallel", "async")
REDUCERS: Final = ("sum", "min", "max", "append", "extend", "union", "last")
CHECKPOINT_KEYS: Final = frozenset({"items", "ms"})


def read_loop(low: Lowering, owner: Fields, what: str = "loop") -> Loop | None:
    node = owner.mapping("loop")
    if node is None:
        return None
    fields = Fields(low.findings, node, what, V2_LOOP_KEYS if low.v2 else LOOP_KEYS)
    source, iterator = _collection(low, fields)
    mode = fields.choice("mode", MODES) if low.v2 else None
    mode_at = position(fields.place("mode")) if mode else NOWHERE
    spec_node = fields.mapping("spec")
    if spec_node is None:
        return _loop(fields, source, iterator, mode=mode, mode_at=mode_at)
    spec = Fields(low.findings, spec_node, "loop.spec", spec_node.entries.keys())
    if inner_mode := spec.choice("mode", MODES):
        mode, mode_at = inner_mode, position(spec.place("mode"))
    _report_idle(low, spec, mode)
    return _loop(
        fields,
        source,
        iterator,
        mode=mode,
        mode_at=mode_at,
        max_in_flight=spec.count("max_in_flight") or 16,
        batch_size=spec.count("batch_size") or 1,
        on_error=spec.choice("on_error", ("fail", "continue")) or "fail",
        execution=_execution(low, spec),
        reduce=_reducers(low, spec),
        checkpoint=_checkpoint(low, spec),
        spec=knobs(low, spec, TASK_KNOBS, LOOP_KNOBS, strict=True),
    )


def _report_idle(low: Lowering, spec: Fields, mode: str | None) -> None:
    """Knobs that change nothing in this loop."""
    if spec.has("reduce") and mode not in ("parallel", "async"):
        low.findings.report(
            "knob.idle",
            spec.entries["reduce"].key,
            "`reduce` has no effect in a sequential loop, where each write replaces the one before it",
            "add `mode: parallel`, or combine the values in `set_ctx`, which reads `ctx`",
        )
    if spec.has("checkpoint"):
        low.findings.report(
            "knob.idle",
            spec.entries["checkpoint"].key,
            "`checkpoint` has no effect yet: every finished iteration is recorded before the next one begins",
            "leave it out",
        )


def iterator_loop(low: Lowering, fields: Fields, what: str, *, wrap_scalar: bool = False) -> Loop:
    """The loop of an iterator, whose keys stand beside its task."""
    source, iterator = _collection(low, fields, wrap_scalar=wrap_scalar)
    mode = fields.choice("mode", MODES)
    return _loop(fields, source, iterator, mode=mode, wrap_scalar=wrap_scalar)


def _loop(fields: Fields, source: Value, iterator: str, *, mode: str | None, **rest: Value) -> Loop:
    return Loop(
        source=source,
        iterator=iterator,
        mode="parallel" if mode in ("parallel", "async") else "sequential",
        at=position(fields.first),
        **rest,
    )


def _collection(low: Lowering, fields: Fields, *, wrap_scalar: bool = False) -> tuple[Value, str]:
    """What is iterated and the element's name, by either pair of words."""
    source_key = _one_of(low, fields, "in", "collection")
    iterator_key = _one_of(low, fields, "iterator", "element")
    source = fields.value(source_key)
    node = fields.raw(source_key)
    if node is not None and not wrap_scalar and not isinstance(source, list | Template):
        shown = f"`{node.value}`" if isinstance(node, Scalar) else "a mapping"
        low.findings.report(
            "loop.in",
            node,
            f"`{source_key}` must give a list, but it is {shown}",
            "write a list or one {{ expression }}",
        )
    iterator = fields.name(iterator_key)
    if iterator is not None:
        if not iterator.isidentifier():
            low.findings.report(
                "name.identifier",
                fields.place(iterator_key),
                f"`{iterator}` cannot be read in a template",
                "use letters, digits and underscores",
            )
        low.declare("an iterator", iterator, fields.place(iterator_key))
    return source, iterator or ""


def _one_of(low: Lowering, fields: Fields, first: str, second: str) -> str:
    """Which of two words for one thing is used; both or neither is reported."""
    if fields.has(first) and fields.has(second):
        low.findings.report(
            "key.misplaced", fields.key(second), f"`{second}` and `{first}` mean the same", f"keep `{first}`"
        )
    if fields.has(second) and not fields.has(first):
        return second
    if not fields.has(first) and not fields.meant & {first, second}:
        low.findings.report("key.missing", fields.first, f"{fields.what} needs `{first}`")
    return first


def _execution(low: Lowering, spec: Fields) -> str | None:
    policy = spec.mapping("policy")
    if policy is None:
        return None
    refuse_directives(low, policy, "`loop.spec.policy`")
    fields = Fields(low.findings, policy, "`loop.spec.policy`", policy.entries.keys())
    for name in policy.entries:
        if name != "exec" and name != "do":
            fields.unknown(name, ("exec",), "knob.unknown")
    return fields.choice("exec", ("local", "distributed"))


def _reducers(low: Lowering, spec: Fields) -> dict[str, str]:
    node = spec.mapping("reduce")
    if node is None:
        return {}
    fields = Fields(low.findings, node, "`reduce`", node.entries.keys())
    return {name: found for name in node.entries if (found := fields.choice(name, REDUCERS)) is not None}


def _checkpoint(low: Lowering, spec: Fields) -> dict[str, Value]:
    node = spec.mapping("checkpoint")
    if node is None:
        return {}
    fields = Fields(low.findings, node, "`checkpoint`", CHECKPOINT_KEYS)
    return {name: fields.count(name) for name in node.entries if name in CHECKPOINT_KEYS}
