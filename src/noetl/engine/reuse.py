"""Running again from a step of an earlier execution: what of that execution is kept.

The earlier execution is taken as it stood, but for the chosen run of the step and whatever followed from it.
Branches that had not come to their end begin again too, with the step they were at; tokens that stood at a
join stand there again. Where nothing sound can be said, it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from noetl.engine.fold import fold
from noetl.engine.kept_items import CannotRepeatError, done_items, writes_of_items
from noetl.engine.lineage import Lineage
from noetl.engine.plan import Plan
from noetl.engine.state import Data, State, StepResult, Token
from noetl.records.event import Event

__all__ = ["CannotRepeatError", "Reuse", "as_payloads", "reuse_from"]

PORTION: Final = 40
"""As many steps, and values of `ctx` and `vars`, are told of in one event."""


class Reuse(NamedTuple):
    """What an execution takes over from an earlier one, and where it begins."""

    origin: Data
    step: str
    args: Data
    ctx: Data
    vars: Data
    steps: dict[str, StepResult]
    items: dict[int, Any]
    """Results of a loop's iterations that are not to be run again."""
    writes: Mapping[int, Data] = {}
    """What these wrote to `ctx`, as parts of their events."""
    tokens: Sequence[Data] = ()
    """The tokens it begins with; without any, one on the step."""
    owed: Mapping[str, Mapping[str, int]] = {}
    """For each join of mode `any`: how many tokens of each origin are to be discarded."""


def reuse_from(
    plan: Plan, execution_id: str, log: Iterable[Event], step: str | None, *, failed_items: bool
) -> Reuse:
    """What is kept when `plan` begins again from `step`, by default from the one that failed."""
    events = list(log)
    lineage = Lineage(execution_id, events)
    chosen = step or _where_to_begin(execution_id, events, lineage, failed_items=failed_items)
    if chosen not in plan.steps:
        raise CannotRepeatError(f"the playbook has no step `{chosen}`")
    runs = lineage.runs_of(chosen)
    if step is None:
        runs = [run_id for run_id in runs if run_id in lineage.unresolved] or runs
    if not runs:
        raise CannotRepeatError(f"step `{chosen}` did not run in execution {execution_id}")
    run_id = runs[-1]
    if lineage.scopes[run_id]:
        around = lineage.around(run_id)
        raise CannotRepeatError(
            f"step `{chosen}` ran for single items of the loop of step `{around}`; "
            f"begin with the whole loop: --from {around}"
        )
    items, writes = (
        _kept_items(plan, chosen, execution_id, events, lineage, run_id) if failed_items else ({}, {})
    )
    kept = lineage.without([*lineage.unresolved, run_id])
    return Reuse(
        origin={"execution_id": execution_id, "step": chosen, "failed_items": failed_items},
        step=chosen,
        args=lineage.scheduled[run_id].payload["args"],
        ctx=kept.ctx,
        vars=kept.vars,
        steps={
            name: found
            for name, found in kept.steps.items()
            if "@" not in name and found.seq and name in plan.steps
        },
        items=items,
        writes=writes,
        tokens=_tokens(plan, kept, lineage.scheduled[run_id]),
        owed=kept.owed,
    )


def _where_to_begin(execution_id: str, events: list[Event], lineage: Lineage, *, failed_items: bool) -> str:
    """The step that failed, or with `failed_items` where none has, the one loop in which items did."""
    state = State(execution_id=execution_id)
    for event in events:
        fold(state, event)
    failed: str | None = (state.error or {}).get("step")
    if failed is not None:
        return failed
    loops = _with_failed_items(events, lineage) if failed_items else []
    if len(loops) == 1:
        return loops[0]
    if loops:
        named = ", ".join(f"`{name}`" for name in loops)
        raise CannotRepeatError(f"items of several loops failed: {named}; say which: --from STEP")
    what = "neither a failed step nor a loop with failed items" if failed_items else "no failed step"
    raise CannotRepeatError(f"execution {execution_id} has {what}; say where to begin: --from STEP")


def _with_failed_items(events: list[Event], lineage: Lineage) -> list[str]:
    """The steps in whose last run items of their loop failed."""
    runs = {
        event.step_run_id
        for event in events
        if event.event_type == "loop.iteration.failed" and "block" not in event.payload
    }
    steps = dict.fromkeys(str(event.step) for event in lineage.scheduled.values())
    return [step for step in steps if lineage.runs_of(step)[-1:] and lineage.runs_of(step)[-1] in runs]


def _kept_items(
    plan: Plan, step: str, execution_id: str, events: list[Event], lineage: Lineage, run_id: str
) -> tuple[dict[int, Any], dict[int, Data]]:
    """The results of a loop's items that are not run again, and what they wrote."""
    loop = plan.steps[step].loop
    if loop is None:
        others = [name for name in _with_failed_items(events, lineage) if name != step]
        hint = f"; items failed in `{others[0]}`: --from {others[0]}" if len(others) == 1 else ""
        raise CannotRepeatError(f"step `{step}` is not a loop, so it has no failed items{hint}")
    items = done_items(events, run_id)
    return items, writes_of_items(loop, execution_id, events, run_id, items) if items else {}


def _tokens(plan: Plan, kept: State, scheduled: Event) -> list[Data]:
    """The entries of the tokens to begin with: those of the chosen run first."""
    chosen = scheduled.payload["tokens"]
    if plan.steps[str(scheduled.step)].join is None:
        for token_id in chosen[:-1]:
            del kept.tokens[token_id]  # they met at a join that an edited playbook does not have
    entries = []
    for token in sorted(
        kept.tokens.values(), key=lambda each: (each.token_id not in chosen, int(each.token_id))
    ):
        if token.step not in plan.steps:
            raise CannotRepeatError(
                f"the playbook has no step `{token.step}`, where another branch of the execution has to go on"
            )
        entries.append(_entry(token))
    return entries


def _entry(token: Token) -> Data:
    optional = {"origin": token.origin, "event": token.event, "not_before": token.not_before}
    return {
        "step": token.step,
        "args": token.args,
        **{name: value for name, value in optional.items() if value is not None},
    }


def as_payloads(reuse: Reuse) -> list[Data]:
    """What was taken over, as parts of one or more events `playbook.request.evaluated`."""
    steps = {name: msgspec.to_builtins(found) for name, found in reuse.steps.items()}
    parts = {"ctx": _portions(reuse.ctx), "vars": _portions(reuse.vars), "steps": _portions(steps)}
    return [
        {name: portions[place] if place < len(portions) else {} for name, portions in parts.items()}
        for place in range(max(1, *map(len, parts.values())))
    ]


def _portions(values: Data) -> list[Data]:
    names = list(values)
    starts = range(0, len(names), PORTION)
    return [{name: values[name] for name in names[start : start + PORTION]} for start in starts]
