"""Reads how tokens enter and leave a step: admission, joins, and the router with its arcs."""

from __future__ import annotations

from typing import Final, Literal

from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.policies import open_rule
from noetl.playbook.dialects.specs import refuse_directives, refuse_words
from noetl.playbook.fields import Fields
from noetl.playbook.knobs import ARC_KNOBS, NEXT_KNOBS
from noetl.playbook.model import AdmitRule, Arc, Join, Router, Target
from noetl.playbook.reader import Mapping, Node, Scalar

ARC_KEYS: Final = frozenset({"step", "when", "args", "spec"})
JOIN_KEYS: Final = frozenset({"of", "mode"})


def admission(low: Lowering, spec: Fields) -> tuple[AdmitRule, ...] | None:
    """The admission rules under a step's `spec.policy`."""
    policy = spec.mapping("policy")
    if policy is None:
        return None
    refuse_directives(low, policy, "a step's policy")
    outer = Fields(low.findings, policy, "`spec.policy` of a step", policy.entries.keys())
    for name in policy.entries:
        if name not in ("admit", "do"):
            outer.unknown(name, ("admit",), "knob.unknown")
    admit = outer.mapping("admit")
    if admit is None:
        return None
    fields = Fields(low.findings, admit, "`admit`", ("rules",))
    fields.require("rules")
    written = fields.sequence("rules")
    if written is None:
        return None
    rules = tuple(read for item in written.items if (read := _admit_rule(low, item)) is not None)
    if rules and not any(rule.when is None for rule in rules):
        low.findings.report(
            "rules.no_else",
            fields.key("rules"),
            "these rules have no `else`; a token that none matches is not admitted",
        )
    return rules


def _admit_rule(low: Lowering, node: Node) -> AdmitRule | None:
    read = open_rule(low, node, "an admission rule")
    if read is None:
        return None
    when, then, at = read
    # `do` was reported for the whole policy already; here it must not count as a mistyped `allow`.
    fields = low.fields(then, "`then` of an admission rule", ("allow",), reported=("do",))
    if fields is None:
        return None
    if not fields.has("do"):
        fields.require("allow")
    allow = fields.flag("allow")
    return None if allow is None else AdmitRule(when=when, allow=allow, at=position(at))


def join(low: Lowering, spec: Fields) -> Join | None:
    node = spec.mapping("join")
    if node is None:
        return None
    fields = Fields(low.findings, node, "`join`", JOIN_KEYS)
    fields.require("of")
    written = fields.sequence("of")
    names: list[Scalar] = []
    for item in written.items if written else []:
        if isinstance(item, Scalar) and isinstance(item.value, str):
            names.append(item)
        else:
            low.findings.report("value.type", item, "`of` must list the names of steps")
    return Join(
        mode=fields.choice("mode", ("all", "any", "active")) or "all",
        of=tuple(str(name.value) for name in names),
        of_at=tuple(position(name) for name in names),
        at=position(spec.key("join")),
    )


def router(low: Lowering, step: Fields) -> Router:
    """The canonical form of `next`: a mode and arcs."""
    node = step.raw("next")
    if node is None:
        return Router()
    if not isinstance(node, Mapping):
        low.findings.report(
            "next.shape", node, "`next` must be a router", "next: {spec: {mode: …}, arcs: [ … ]}"
        )
        return Router()
    fields = Fields(low.findings, node, "`next`", ("spec", "arcs"))
    if not fields.has("arcs") and "arcs" not in fields.meant:
        low.findings.report("next.shape", fields.first, "`next` needs `arcs`", "next: {arcs: [{step: …}]}")
    mode: Literal["exclusive", "inclusive"] | None = None
    spec = fields.mapping("spec")
    if spec is not None:
        inner = Fields(low.findings, spec, "`next.spec`", NEXT_KNOBS)
        mode = inner.choice("mode", ("exclusive", "inclusive"))
        if (policy := inner.raw("policy")) is not None:
            refuse_directives(low, policy, "`next.spec.policy`")
            refuse_words(low, policy)
    arcs = fields.sequence("arcs")
    read = [arc for item in (arcs.items if arcs else []) if (arc := _arc(low, item)) is not None]
    return Router(mode=mode or "exclusive", arcs=tuple(read), at=position(step.key("next")))


def _arc(low: Lowering, node: Node) -> Arc | None:
    fields = low.fields(node, "an arc", ARC_KEYS)
    if fields is None:
        return None
    fields.require("step")
    step = fields.name("step")
    when = fields.guard()
    carry = True
    if (spec := fields.mapping("spec")) is not None:
        inner = Fields(low.findings, spec, "`arc.spec`", spec.entries.keys())
        for name in spec.entries:
            if name not in ARC_KNOBS and name != "do":
                inner.unknown(name, ARC_KNOBS, "knob.unknown")
        refuse_directives(low, spec, "`arc.spec`")
        carry = inner.flag("carry") is not False
    args = fields.values("args")
    if step is None:
        return None
    target = Target(step=step, args=args, carry=carry, at=position(fields.place("step")))
    guarded = fields.has("when")
    return Arc(
        targets=(target,),
        when=(False if when is None else when) if guarded else None,
        takes_failure=guarded,
        at=position(fields.first),
    )
