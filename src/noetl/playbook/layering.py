"""How knobs under `spec` reach a task: outer layers first, the inner one wins.

Mappings are merged key by key, everything else is replaced. Knobs that belong to their scope
(`NOT_INHERITED`) stay there, and a group named like a tool kind is laid over that kind's tasks only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from noetl.playbook.knobs import NOT_INHERITED
from noetl.playbook.model import Loop, Playbook, Step, Task, Value


def effective_spec(
    playbook: Playbook,
    step: Step,
    loops: Iterable[Loop],
    task: Task,
    *,
    kind_defaults: dict[str, Value],
    kinds: Collection[str],
) -> dict[str, Value]:
    """The knobs that hold for one task; `loops` are those around it, outermost first."""
    layers = [kind_defaults, playbook.executor.spec, step.spec, *(loop.spec for loop in loops), task.spec]
    merged: dict[str, Value] = {}
    for layer in layers:
        own = layer.get(task.kind)
        merged = merge(merged, {k: v for k, v in layer.items() if k not in NOT_INHERITED and k not in kinds})
        if isinstance(own, dict):
            merged = merge(merged, own)
    return merged


def merge(outer: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    """Maps deeply, inner wins; lists and scalars are replaced."""
    merged = dict(outer)
    for name, value in inner.items():
        before = merged.get(name)
        merged[name] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged
