"""Reads v2's transitions: a step's structural `next`, and `next` as an action of a case.

They start from their own args alone, so their targets do not carry the token's.
"""

from __future__ import annotations

from typing import Final

from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.routing import router
from noetl.playbook.fields import Fields, is_templated
from noetl.playbook.model import Arc, NextAction, Router, Target
from noetl.playbook.reader import Mapping, Node, Scalar, Sequence
from noetl.template import Template

NEXT_ACTION_KEYS: Final = frozenset({"to", "policy", "priority", "spec"})
TARGET_KEYS: Final = frozenset({"step", "args"})
V1_CLAUSES: Final = ("when", "then", "else")
POLICIES: Final = ("end_step", "break_chain", "defer")


def structural_next(low: Lowering, step: Fields) -> Router:
    """The unconditional way out of a step."""
    node = step.raw("next")
    if node is None:
        return Router()
    if isinstance(node, Mapping) and "arcs" in node.entries:
        return router(low, step)
    targets = _targets(low, node)
    arc = Arc(targets=targets, at=position(node))
    return Router(arcs=(arc,) if targets else (), at=position(step.key("next")))


def next_action(low: Lowering, owner: Fields) -> NextAction | None:
    node = owner.entries["next"].value
    at = position(owner.key("next"))
    if not isinstance(node, Mapping) or "step" in node.entries:
        return NextAction(targets=_targets(low, node, computed=True), at=at)
    fields = Fields(low.findings, node, "`next`", NEXT_ACTION_KEYS)
    fields.require("to")
    delay = None
    if (spec := fields.mapping("spec")) is not None:
        delay = Fields(low.findings, spec, "`next.spec`", ("delay",)).duration("delay")
    to = fields.raw("to")
    return NextAction(
        targets=() if to is None else _targets(low, to, computed=True),
        policy=fields.choice("policy", POLICIES),
        priority=fields.number("priority") or 0,
        delay=0.0 if delay is None else delay,
        at=at,
    )


def _targets(low: Lowering, node: Node, *, computed: bool = False) -> tuple[Target, ...]:
    written = node.items if isinstance(node, Sequence) else [node]
    return tuple(target for item in written if (target := _target(low, item, computed)) is not None)


def _target(low: Lowering, node: Node, computed: bool) -> Target | None:
    if isinstance(node, Scalar):
        step = _step_name(low, node, computed)
        return None if step is None else Target(step=step, carry=False, at=position(node))
    if not isinstance(node, Mapping):
        low.findings.report("next.shape", node, "an entry of `next` must be a step", "- step: …")
        return None
    clauses = [name for name in V1_CLAUSES if name in node.entries]
    if clauses:
        key = node.entries[clauses[0]].key
        low.findings.report(
            "next.conditional",
            key,
            f"`next` cannot hold `{clauses[0]}` here",
            "write conditions under `case`",
        )
        return None
    if "with" in node.entries:
        low.findings.report(
            "key.replaced", node.entries["with"].key, "a transition has no `with`", "write `args`"
        )
    fields = Fields(low.findings, node, "an entry of `next`", TARGET_KEYS, reported=("with",))
    fields.require("step")
    name = fields.raw("step")
    args = fields.values("args")
    if name is None:
        return None
    step = _step_name(low, name, computed)
    return None if step is None else Target(step=step, args=args, carry=False, at=position(name))


def _step_name(low: Lowering, node: Node, computed: bool) -> str | Template | None:
    if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip():
        if not is_templated(node.value):
            return node.value
        if computed:
            return Template(node.value, node)
        low.findings.report(
            "value.template",
            node,
            "a step's own `next` cannot be a template",
            "compute the target under `case`",
        )
        return None
    low.findings.report("value.type", node, "`next` must name a step")
    return None
