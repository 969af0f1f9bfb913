"""Says the ways out of a step as canonical arcs: one target each, disjoint where several may fire.

Canonical arcs carry the token's args along and, with a guard, are asked at failures too; those of
v1 and v2 do neither. So guards name their boundary event here, args bound by a step move to the arcs
that lead to it, and arcs say `carry: false` where there would be something to carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from noetl.playbook.diagnostics import Position
from noetl.playbook.model import NOWHERE, Arc, Playbook, Router, Step, Target, Value
from noetl.playbook.rewriting.expressions import as_guard, conjunction, conjuncts, expression, negation
from noetl.playbook.rewriting.inexpressible import Report
from noetl.playbook.rewriting.reads import names_read
from noetl.playbook.rewriting.views import PIPELINE_NAMES
from noetl.template import Template


class Way(NamedTuple):
    """A way out of a step: taken at some boundary if all parts hold and no earlier one was."""

    parts: tuple[str, ...]
    targets: tuple[Target, ...]
    on: Literal["done", "failed", "both"] = "done"
    at: Position = NOWHERE


def structural_ways(router: Router) -> list[Way]:
    """The arcs of v1 and v2, which are asked when the step is done."""
    ways: list[Way] = []
    for arc in router.arcs:
        text = "true" if arc.when is None else expression(arc.when)
        parts = () if text == "true" else tuple(conjuncts(text))
        ways.append(Way(parts, arc.targets, at=arc.at))
    return ways


def build_router(ways: list[Way], at: Position, *, loop: bool) -> Router:
    """The router that takes the first way that holds."""
    merged = _merged(ways)
    if all(len(way.targets) == 1 for way in merged):
        arcs = [_arc(way, way.targets[0], _guard(way, (), loop)) for way in merged]
        return Router(arcs=tuple(arcs), at=at)
    found: list[Arc] = []
    for index, way in enumerate(merged):
        earlier = [other for other in merged[:index] if _meets(other, way)]
        excluded = tuple(negation(conjunction(list(_asked(other, way, loop)))) for other in earlier)
        found += [_arc(way, target, _guard(way, excluded, loop)) for target in way.targets]
    return Router(mode="inclusive", arcs=tuple(found), at=at)


def _merged(ways: list[Way]) -> list[Way]:
    """Two ways that differ only in their boundary are one."""
    if len(ways) == 2 and {way.on for way in ways} == {"done", "failed"}:
        first, second = ways
        if first.parts == second.parts and first.targets == second.targets:
            return [first._replace(on="both")]
    return ways


def _meets(other: Way, way: Way) -> bool:
    return other.on == way.on or "both" in (other.on, way.on)


def _asked(other: Way, way: Way, loop: bool) -> tuple[str, ...]:
    """What another way asks, as far as it is not known where this one is asked."""
    event = () if other.on in (way.on, "both") else (_event(other, loop),)
    return (*event, *other.parts) or ("true",)


def _event(way: Way, loop: bool) -> str:
    done = "loop.done" if loop else "step.done"
    if way.on == "both":
        return f"event.name in ['{done}', 'step.failed']"
    return f"event.name == '{done if way.on == 'done' else 'step.failed'}'"


def _guard(way: Way, excluded: tuple[str, ...], loop: bool) -> Template | None:
    """None at a boundary that an arc without a guard means anyway."""
    if way.on == "done" and not way.parts and not excluded:
        return None
    return as_guard([_event(way, loop), *way.parts, *excluded])


def _arc(way: Way, target: Target, when: Template | None) -> Arc:
    return Arc(targets=(target,), when=when, takes_failure=when is not None, at=way.at)


# --- args ---------------------------------------------------------------------------------------------


def move_args(playbook: Playbook, report: Report) -> Playbook:
    """The args that steps bind, on the arcs that lead to them; then `carry` where it matters."""
    bound = {step.name: step.args for step in playbook.steps if step.args}
    given = given_args(playbook.steps)
    for step in playbook.steps:
        reached = step.name != playbook.entry and step.name in given
        if step.args and not (reached and _can_move(step, playbook, given)):
            report.say("step-args", step.at)
    steps = tuple(_with_arcs(step, bound) for step in playbook.steps)
    after = given_args(steps)
    return msgspec.structs.replace(
        playbook, steps=tuple(_with_carry(step, after.get(step.name, frozenset())) for step in steps)
    )


def given_args(steps: Iterable[Step]) -> dict[str, frozenset[str]]:
    """The names of the args a token may bring to each step that is the target of some arc."""
    found: dict[str, frozenset[str]] = {}
    for step in steps:
        for arc in step.router.arcs:
            for target in arc.targets:
                name = str(target.step)
                found[name] = found.get(name, frozenset()) | frozenset(target.args)
    return found


def _can_move(step: Step, playbook: Playbook, given: dict[str, frozenset[str]]) -> bool:
    """Do its args read nothing that has another value, or none, where an arc is taken?

    Where tokens are joined, args of one arc would overwrite what another one brings.
    """
    if step.join is not None:
        return False
    names = {"args", "event", *PIPELINE_NAMES} | given.get(step.name, frozenset())
    for source in playbook.steps:
        if any(target.step == step.name for arc in source.router.arcs for target in arc.targets):
            names |= given.get(source.name, frozenset()) | source.args.keys()
    return not names & names_read(step.args)


def _with_arcs(step: Step, bound: dict[str, dict[str, Value]]) -> Step:
    arcs = tuple(
        msgspec.structs.replace(
            arc,
            targets=tuple(
                msgspec.structs.replace(target, args=bound.get(str(target.step), {}) | target.args)
                for target in arc.targets
            ),
        )
        for arc in step.router.arcs
    )
    return msgspec.structs.replace(step, args={}, router=msgspec.structs.replace(step.router, arcs=arcs))


def _with_carry(step: Step, brought: frozenset[str]) -> Step:
    """An arc that overwrites all there is to carry need not say that it carries nothing."""
    arcs = tuple(
        msgspec.structs.replace(
            arc,
            targets=tuple(
                msgspec.structs.replace(target, carry=target.carry or brought <= target.args.keys())
                for target in arc.targets
            ),
        )
        for arc in step.router.arcs
    )
    return msgspec.structs.replace(step, router=msgspec.structs.replace(step.router, arcs=arcs))
