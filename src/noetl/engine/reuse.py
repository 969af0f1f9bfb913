"""Running again from a step of an earlier execution: what of that execution is kept.

What the earlier log says is folded up to the moment when the step was last scheduled: `ctx`, variables and
arguments are as they were then. Results of steps that cannot follow the chosen one are kept from the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from noetl.engine.fold import fold
from noetl.engine.plan import Plan
from noetl.engine.state import Data, State, StepResult
from noetl.errors import NoetlError
from noetl.records.event import Event

PORTION: Final = 40
"""As many steps, and values of `ctx` and `vars`, are told of in one event."""


class CannotRepeatError(NoetlError):
    """The earlier execution does not say where to begin again."""

    code = "retry.impossible"


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


def reuse_from(
    plan: Plan, execution_id: str, log: Iterable[Event], step: str | None, *, failed_items: bool
) -> Reuse:
    """What is kept when `plan` begins again from `step`, by default from the one that failed."""
    events = list(log)
    ended = _folded(execution_id, events)
    step = step or (ended.error or {}).get("step")
    if step is None:
        raise CannotRepeatError(
            f"execution {execution_id} has no failed step; say where to begin: --from STEP"
        )
    if step not in plan.steps:
        raise CannotRepeatError(f"the playbook has no step `{step}`")
    place = _last_scheduled(events, step)
    if place is None:
        raise CannotRepeatError(f"step `{step}` did not run in execution {execution_id}")
    scheduled = events[place]
    before = _folded(execution_id, events[:place])
    kept = {
        name: found
        for name, found in ended.steps.items()
        if "@" not in name
        and name != step
        and found.seq
        and name in plan.steps
        and not plan.flow.can_precede(step, name)
    }
    items = _done_items(events, str(scheduled.step_run_id)) if failed_items else {}
    if failed_items and not items and plan.steps[step].loop is None:
        raise CannotRepeatError(f"step `{step}` is not a loop, so it has no failed items")
    return Reuse(
        origin={"execution_id": execution_id, "step": step, "failed_items": failed_items},
        step=step,
        args=scheduled.payload["args"],
        ctx=before.ctx,
        vars=before.vars,
        steps=kept,
        items=items,
    )


def _folded(execution_id: str, events: list[Event]) -> State:
    state = State(execution_id=execution_id)
    for event in events:
        fold(state, event)
    return state


def _last_scheduled(events: list[Event], step: str) -> int | None:
    found = None
    for place, event in enumerate(events):
        if event.event_type == "step.scheduled" and event.step == step and "item" not in event.payload:
            found = place
    return found


def _done_items(events: list[Event], run_id: str) -> dict[int, Any]:
    return {
        event.iteration: event.payload.get("result")
        for event in events
        if event.event_type == "loop.iteration.done"
        and event.step_run_id == run_id
        and "block" not in event.payload
        and event.iteration is not None
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
