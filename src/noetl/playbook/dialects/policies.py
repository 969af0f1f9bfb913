"""Reads `spec.policy` of a task: the rules that decide what follows an outcome."""

from __future__ import annotations

from typing import Final

from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.fields import Fields
from noetl.playbook.findings import Place
from noetl.playbook.model import Backoff, Directive, Do, Guard, Loop, Rule
from noetl.playbook.reader import Mapping, Node, Sequence

THEN_KEYS: Final = frozenset(
    {"do", "attempts", "backoff", "delay", "max_delay", "jitter", "to", "set_iter", "set_ctx"}
)
RETRY_KEYS: Final = ("attempts", "backoff", "delay", "max_delay", "jitter")
DIRECTIVES: Final[tuple[Do, ...]] = ("continue", "skip", "retry", "jump", "break", "fail")


def rules(low: Lowering, spec: Fields, loop: Loop | None) -> tuple[Rule, ...] | None:
    """The rules under a task's spec; None where it has no policy."""
    node = spec.raw("policy")
    if node is None:
        return None
    written = node.get("rules") if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping) or written is None:
        at = (
            Fields(low.findings, node, "policy", node.entries.keys()).first
            if isinstance(node, Mapping)
            else node
        )
        low.findings.report(
            "policy.shape",
            at,
            "a task policy must be a mapping with a list of `rules`",
            "policy: {rules: [ … ]}",
        )
        return None
    fields = Fields(low.findings, node, "a task policy", {"rules"})
    if not isinstance(written, Sequence):
        fields.wrong_type("rules", "a list")
        return None
    found = [read for item in written.items if (read := _rule(low, item, loop)) is not None]
    if any(rule.then.do != "skip" for rule in found) and not any(rule.when is None for rule in found):
        low.findings.report(
            "rules.no_else",
            fields.key("rules"),
            "these rules have no `else`; an outcome that none matches continues",
        )
    return tuple(found)


def _rule(low: Lowering, node: Node, loop: Loop | None) -> Rule | None:
    read = open_rule(low, node, "a rule")
    if read is None:
        return None
    when, then, at = read
    fields = low.fields(then, "`then`", THEN_KEYS)
    if fields is None:
        return None
    directive = _directive(low, fields, loop)
    if directive is None:
        return None
    if directive.do == "skip" and when is None:
        low.findings.report(
            "rule.skip_else",
            fields.place("do"),
            "`skip` under `else` would skip the task always",
            "give it a `when`; skip rules are asked before the tool runs",
        )
    return Rule(when=when, then=directive, at=position(at))


def open_rule(low: Lowering, node: Node, what: str) -> tuple[Guard | None, Node, Place] | None:
    """The guard (None for `else`), the node under `then` and the position of a rule."""
    fields = low.fields(node, what, ("when", "then", "else"))
    if fields is None:
        return None
    if fields.has("else"):
        for extra in ("when", "then"):
            if fields.has(extra):
                low.findings.report(
                    "rule.else_with_when",
                    fields.key(extra),
                    f"`{extra}` cannot stand beside `else` in {what}",
                )
        inner = low.fields(fields.entries["else"].value, "`else`", ("then",))
        if inner is None:
            return None
        inner.require("then")
        then = inner.raw("then")
        return None if then is None else (None, then, fields.first)
    if "else" not in fields.meant:
        fields.require("when", "then")
    then = fields.raw("then")
    when = fields.guard()
    if then is None:
        return None
    return (False if when is None else when), then, fields.first


def _directive(low: Lowering, fields: Fields, loop: Loop | None) -> Directive | None:
    if not fields.has("do"):
        low.findings.report("rule.no_do", fields.first, "`then` needs `do`", f"do: {' | '.join(DIRECTIVES)}")
        return None
    do = fields.choice("do", DIRECTIVES)
    set_ctx = fields.values("set_ctx")
    set_iter = fields.values("set_iter")
    if loop is not None and loop.mode == "parallel":
        _warn_of_shared_writes(low, fields, loop)
    if do is None:
        return None
    for name in RETRY_KEYS:
        if fields.has(name) and do != "retry":
            low.findings.report("rule.idle_key", fields.key(name), f"`{name}` has no effect with `do: {do}`")
    if fields.has("to") and do != "jump":
        low.findings.report("rule.idle_key", fields.key("to"), f"`to` has no effect with `do: {do}`")
    if do == "jump":
        fields.require("to")
    attempts = fields.count("attempts")
    return Directive(
        do=do,
        attempts=3 if attempts is None else attempts,
        backoff=Backoff(
            kind=fields.choice("backoff", ("none", "linear", "exponential")) or "none",
            delay=fields.duration("delay") or 0.0,
            max_delay=fields.duration("max_delay"),
            jitter=fields.flag("jitter") or False,
        ),
        to=fields.name("to"),
        set_iter=set_iter,
        set_ctx=set_ctx,
        at=position(fields.place("to") if do == "jump" else fields.place("do")),
    )


def _warn_of_shared_writes(low: Lowering, fields: Fields, loop: Loop) -> None:
    written = fields.raw("set_ctx")
    if not isinstance(written, Mapping):
        return
    for name, entry in written.entries.items():
        if name not in loop.reduce:
            low.findings.report(
                "ctx.parallel_write",
                entry.key,
                f"`set_ctx` of `{name}` from parallel iterations fails if two of them write different values",
                f"name a reducer: loop.spec.reduce: {{{name}: last}}",
            )
