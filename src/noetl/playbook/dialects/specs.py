"""Reads the mappings called `spec`: knobs that are layered, and knobs that belong to their scope."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping as Table

from noetl.playbook.dialects.lowering import Lowering
from noetl.playbook.fields import REPLACED, Fields, value
from noetl.playbook.model import Value
from noetl.playbook.reader import Mapping, Node, Sequence

GROUPS = {"result": frozenset({"inline_max_bytes", "store", "select"}), "limits": frozenset({"task_runs"})}
"""Knobs that are mappings of a known shape."""


def knobs(
    low: Lowering,
    fields: Fields,
    layered: Table[str, str],
    own: Table[str, str],
    *,
    strict: bool = False,
    reported: Collection[str] = (),
) -> dict[str, Value]:
    """The layered knobs of a spec; those in `own` are left to the caller.

    A kind's name is a knob group for that kind. Other unknown knobs are warnings, or errors where
    `strict` says that the mapping has a fixed shape.
    """
    found: dict[str, Value] = {}
    for name, entry in fields.entries.items():
        if name in own or name in reported:
            continue
        if name in layered or name in low.kinds:
            _check_knob(low, fields, name)
            found[name] = value(low.findings, entry.value)
        else:
            known = {*layered, *own}
            fields.unknown(name, known, "key.unknown" if strict or name in REPLACED else "knob.unknown")
            if name == "policy":
                refuse_directives(low, entry.value, fields.what)
    return found


def _check_knob(low: Lowering, fields: Fields, name: str) -> None:
    if name == "timeout":
        fields.duration(name)
    elif name == "isolation":
        fields.choice(name, ("process", "sandbox", "container"))
    elif name == "on_lease_loss":
        fields.choice(name, ("retry", "fail"))
    elif name in ("tracing", "telemetry"):
        low.findings.report(
            "knob.idle",
            fields.entries[name].key,
            f"`{name}` has no effect yet",
            "leave it out; a server makes traces and metrics of every execution",
        )
    elif name in low.kinds:
        fields.mapping(name)
    elif name in GROUPS:
        check_group(low, fields, name)


def check_group(low: Lowering, fields: Fields, name: str) -> None:
    node = fields.mapping(name)
    if node is None:
        return
    inner = Fields(low.findings, node, f"`{name}`", node.entries.keys())
    for key in node.entries:
        if key not in GROUPS[name]:
            inner.unknown(key, GROUPS[name], "knob.unknown")


def refuse_words(low: Lowering, node: Node) -> None:
    """Reports words of other languages in a mapping that is reserved and so has no known keys."""
    if isinstance(node, Mapping):
        for name, entry in node.entries.items():
            if name in REPLACED:
                Fields(low.findings, node, "a reserved mapping", node.entries.keys()).unknown(name, ())
            refuse_words(low, entry.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            refuse_words(low, item)


def refuse_directives(low: Lowering, node: Node, where: str) -> None:
    """Reports every `do` in a policy that is not a task's."""
    if isinstance(node, Mapping):
        for name, entry in node.entries.items():
            if name == "do":
                low.findings.report(
                    "do.outside_task",
                    entry.key,
                    f"`do` is a task's directive and cannot stand in {where}",
                    "put it under the task's `spec.policy.rules`",
                )
            refuse_directives(low, entry.value, where)
    elif isinstance(node, Sequence):
        for item in node.items:
            refuse_directives(low, item, where)
