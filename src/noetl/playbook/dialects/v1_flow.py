"""How tokens move in v1: the clauses of `next`, loops over the steps that follow, and their joins.

A step's `loop` and the step that joins it name each other from one side only, so they are brought
together here, after all steps have been read. Whether targets exist is checked on the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from noetl.playbook.diagnostics import nearest
from noetl.playbook.dialects.loops import ITERATOR_LOOP_KEYS, MODES, iterator_loop
from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.fields import Fields
from noetl.playbook.findings import Place
from noetl.playbook.model import Arc, Guard, Join, Router, Spread, Step, Target
from noetl.playbook.reader import Entry, Mapping, Node, Scalar, Sequence

END: Final = "end"
CLAUSE_KEYS: Final = frozenset({"when", "then", "else"})
REFERENCE_KEYS: Final = frozenset({"step", "with"})
LOOP_KEYS: Final = ITERATOR_LOOP_KEYS | {"join", "spec"}
LOOP_KNOBS: Final = frozenset({"mode", "max_in_flight"})


# --- next -----------------------------------------------------------------------------------------


def read_next(low: Lowering, step: Fields) -> Router:
    """The first clause whose `when` holds; what has no condition is tried last, wherever it stands."""
    node = step.raw("next")
    if node is None:
        return Router()
    written = node.items if isinstance(node, Sequence) else [node]
    guarded: list[Arc] = []
    fallbacks: list[Arc] = []
    bare: list[Target] = []
    bare_at: Place | None = None
    for item in written:
        if isinstance(item, Mapping) and item.entries.keys() & CLAUSE_KEYS and "step" not in item.entries:
            arc = _clause(low, item)
            if arc is not None:
                (fallbacks if arc.when is None else guarded).append(arc)
        elif (target := _reference(low, item)) is not None:
            bare.append(target)
            bare_at = bare_at or item
    if bare_at is not None:
        fallbacks.append(Arc(targets=tuple(bare), at=position(bare_at)))
    for extra in sorted(fallbacks, key=lambda arc: arc.at)[1:]:
        low.findings.report(
            "next.two_fallbacks",
            extra.at,
            "`next` already has a way without a condition, so this one could never be taken",
            "list all steps that follow under one `else`",
        )
    return Router(arcs=(*guarded, *fallbacks[:1]), at=position(step.key("next")))


def _clause(low: Lowering, node: Mapping) -> Arc | None:
    fields = Fields(low.findings, node, "a clause of `next`", CLAUSE_KEYS)
    if fields.has("else"):
        for extra in ("when", "then"):
            if fields.has(extra):
                low.findings.report(
                    "rule.else_with_when",
                    fields.key(extra),
                    f"`{extra}` cannot stand beside `else` in a clause of `next`",
                    "make `else` an entry of its own",
                )
        return _arc(low, fields, "else", None)
    fields.require("then")
    when: Guard | None = None
    if fields.has("when"):
        found = fields.guard()
        when = False if found is None else found
    return _arc(low, fields, "then", when)


def _arc(low: Lowering, fields: Fields, name: str, when: Guard | None) -> Arc | None:
    node = fields.raw(name)
    if node is None:
        return None
    written = node.items if isinstance(node, Sequence) else [node]
    if not written or (isinstance(node, Scalar) and not isinstance(node.value, str)):
        fields.wrong_type(name, "a list of steps")
        return None
    targets = [target for item in written if (target := _reference(low, item)) is not None]
    return Arc(targets=tuple(targets), when=when, at=position(fields.first))


def _reference(low: Lowering, node: Node) -> Target | None:
    """A step to go to, with what it is given; nothing else comes along."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        node = Mapping(node.line, node.column, {"step": Entry(node, node)})
    if not isinstance(node, Mapping) or "arcs" in node.entries:
        low.findings.report("next.shape", node, "`next` must list steps or clauses", "next: [{step: …}]")
        return None
    clauses = CLAUSE_KEYS & node.entries.keys()
    for name in clauses:
        low.findings.report(
            "next.shape",
            node.entries[name].key,
            f"`{name}` cannot stand beside `step`",
            "write - when: …, then: [{step: …}]",
        )
    replaced = {"args"} & node.entries.keys()
    for name in replaced:
        low.findings.report(
            "key.replaced", node.entries[name].key, "a step reference has no `args`", "write `with`"
        )
    fields = Fields(low.findings, node, "a step reference", REFERENCE_KEYS | clauses | replaced)
    fields.require("step")
    step = fields.name("step")
    args = fields.values("with")
    if step is None:
        return None
    return Target(step=step, args=args, carry=False, at=position(fields.place("step")))


# --- loops and joins ------------------------------------------------------------------------------


MOST_VISITS: Final = 200_000
"""Steps looked at, over all loops of a file, to find where their items escape to."""


class Named(msgspec.Struct, frozen=True):
    """The name of a step, and where it was written."""

    step: str
    key: Place
    value: Place


class Draft(msgspec.Struct, frozen=True):
    """A step as it was read, with the names by which it and others are joined."""

    step: Step
    loop_at: Place | None = None
    loop_join: Named | None = None
    join: Named | None = None


def named(fields: Fields, key: str) -> Named | None:
    name = fields.name(key)
    return None if name is None else Named(name, fields.key(key), fields.place(key))


def read_spread(low: Lowering, step: Fields) -> tuple[Spread | None, Named | None]:
    """A step's `loop`, and the step that it says joins it."""
    node = step.mapping("loop")
    if node is None:
        return None, None
    fields = Fields(low.findings, node, f"the loop of {step.what}", LOOP_KEYS)
    loop = iterator_loop(low, fields, fields.what, wrap_scalar=True)
    mode = fields.choice("mode", MODES)
    most = None
    if (spec := fields.mapping("spec")) is not None:
        inner = Fields(low.findings, spec, "loop.spec", LOOP_KNOBS)
        mode = inner.choice("mode", MODES) or mode
        most = inner.count("max_in_flight")
    spread = Spread(
        source=loop.source,
        iterator=loop.iterator,
        join=None,
        max_in_flight=1 if mode == "sequential" else 16 if most is None else most,
        at=position(step.key("loop")),
    )
    return spread, named(fields, "join")


def link(low: Lowering, drafts: Iterable[Draft], entry: str) -> tuple[Step, ...]:
    """The steps, each loop with the step that joins it."""
    return _Linking(low, list(drafts), entry).steps()


class _Linking:
    def __init__(self, low: Lowering, drafts: list[Draft], entry: str) -> None:
        self._low = low
        self._drafts = drafts
        self._entry = entry
        self._by_name = {draft.step.name: draft for draft in reversed(drafts)}
        self._joins: dict[str, Join] = {}
        """The join of each joining step."""
        self._joined: dict[str, str] = {}
        """The joining step of each loop."""
        self._visits = 0

    def steps(self) -> tuple[Step, ...]:
        for draft in self._drafts:
            if draft.join is not None:
                self._join_from_step(draft.step, draft.join)
        for draft in self._drafts:
            if draft.step.spread is not None:
                self._join_from_loop(draft)
        linked = tuple(self._linked(draft.step) for draft in self._drafts)
        for step in linked:
            if step.spread is not None and step.spread.join is not None:
                self._check_region(step, step.spread.join)
        return linked

    def _linked(self, step: Step) -> Step:
        spread = step.spread
        if spread is not None:
            spread = msgspec.structs.replace(spread, join=self._joined.get(step.name))
        return msgspec.structs.replace(step, spread=spread, join=self._joins.get(step.name))

    def _join_from_step(self, step: Step, of: Named) -> None:
        """`join: LOOP` on the joining step."""
        loop = self._by_name.get(of.step)
        if loop is None or (loop.step.spread is None and loop.step.loop is None):
            self._report_no_loop(step, of, known=loop is not None)
        elif of.step == step.name:
            self._low.findings.report(
                "join.conflict", of.value, f"step `{step.name}` cannot join its own loop"
            )
        elif loop.step.spread is not None and of.step in self._joined:
            self._conflict(of, f"loop `{of.step}` is already joined by step `{self._joined[of.step]}`")
        else:
            self._bind(of.step, step.name, of, spread=loop.step.spread is not None)

    def _report_no_loop(self, step: Step, of: Named, *, known: bool) -> None:
        if of.step == END and step.spread is not None:
            self._low.findings.report(
                "key.misplaced", of.key, "`join: end` belongs under `loop`", "write loop: {join: end, …}"
            )
        elif known:
            self._low.findings.report(
                "join.no_loop",
                of.value,
                f"step `{of.step}` neither loops nor iterates, so there is nothing to join",
                "name a step with `loop` or `type: iterator`",
            )
        else:
            self._unknown(of)

    def _join_from_loop(self, draft: Draft) -> None:
        """`loop.join: STEP`, or the step that has joined this loop already."""
        name = draft.step.name
        by = draft.loop_join
        present = self._joined.get(name)
        if by is None:
            if present is None and draft.loop_at is not None:
                self._low.findings.report(
                    "loop.no_join",
                    draft.loop_at,
                    f"nothing joins the loop of step `{name}`",
                    f"write `join: {name}` on the step that collects the results, or `join: end` in the loop",
                )
        elif present is not None and present != by.step:
            self._conflict(by, f"step `{present}` joins loop `{name}`, but the loop names `{by.step}`")
        elif by.step == END or present is not None:
            return
        elif by.step == name:
            self._conflict(by, f"step `{name}` cannot join its own loop")
        elif by.step not in self._by_name:
            self._unknown(by)
        elif by.step in self._joins:
            other = self._joins[by.step].of[0]
            self._conflict(by, f"step `{by.step}` already joins `{other}`")
        else:
            self._bind(name, by.step, by, spread=True)

    def _bind(self, loop: str, step: str, name: Named, *, spread: bool) -> None:
        self._joins[step] = Join(
            mode="spread", of=(loop,), at=position(name.key), of_at=(position(name.value),)
        )
        if spread:
            self._joined[loop] = step

    def _conflict(self, name: Named, message: str) -> None:
        self._low.findings.report(
            "join.conflict", name.value, message, "a loop has one joining step, a step one loop"
        )

    def _unknown(self, name: Named) -> None:
        meant = nearest(name.step, self._by_name)
        self._low.findings.report(
            "step.unknown",
            name.value,
            f"there is no step `{name.step}` to join",
            f"did you mean `{meant}`?" if meant else None,
        )

    # --- the region between a loop and its join -------------------------------------------------------

    def _check_region(self, loop: Step, join: str) -> None:
        """Reports where a per-item token goes on among steps that do not belong to the loop."""
        outside: frozenset[str] | None = None
        seen = {loop.name}
        waiting = deque((loop,))
        while waiting:
            step = waiting.popleft()
            for target in _targets(step):
                name = str(target.step)
                if name in (join, END) or name in seen or name not in self._by_name:
                    continue
                if outside is None:
                    outside = self._reachable((self._entry, join), past=loop.name)
                if name in outside:
                    self._low.findings.report(
                        "loop.escapes",
                        target.at,
                        f"items of loop `{loop.name}` reach step `{name}` without passing the join, `{join}`",
                        f"lead them to `{join}` or to `end`",
                    )
                    continue
                seen.add(name)
                waiting.append(self._by_name[name].step)

    def _reachable(self, starts: Iterable[str], past: str) -> frozenset[str]:
        """The steps that can be reached without passing `past`."""
        seen: set[str] = set()
        waiting = [name for name in starts if name != past]
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._by_name:
                continue
            self._visits += 1
            if self._visits > MOST_VISITS:
                # So many loops in so many steps are not checked to the end: only what is sure is reported.
                return frozenset()
            seen.add(name)
            waiting.extend(
                str(target.step) for target in _targets(self._by_name[name].step) if target.step != past
            )
        return frozenset(seen)


def _targets(step: Step) -> Iterable[Target]:
    return (target for arc in step.router.arcs for target in arc.targets)
