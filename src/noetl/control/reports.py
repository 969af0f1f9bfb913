"""What a worker may say: events of its own work, in the words that workers have for it.

Whoever holds a lease runs a step and says how that went. It does not decide where tokens go, which signals
came or that an execution is over, whatever it reports.
"""

from __future__ import annotations

from typing import Final

from noetl.engine.plan import Plan
from noetl.ids import seconds_of
from noetl.records.event import EVENT_TYPES
from noetl.records.report import LeaseReport, ReportedEvent

OF_BLOCKS: Final = frozenset({"loop.started", "loop.done"})
"""Of a loop inside a pipeline a worker tells the beginning and the end itself."""
BY_WORKERS: Final = (
    frozenset(name for name, known in EVENT_TYPES.items() if known.source in ("worker", "either"))
    | OF_BLOCKS
    | {"step.skipped"}
) - {"step.resumed"}


def objection(report: LeaseReport, plan: Plan, step: str) -> str | None:
    """What in a report no worker has to say; None where all of it is in order."""
    return next((found for event in report.events if (found := _objection(event, plan, step))), None)


def _objection(event: ReportedEvent, plan: Plan, step: str) -> str | None:
    kind = event.event_type
    if kind not in BY_WORKERS or (kind in OF_BLOCKS and "block" not in event.payload):
        return f"a worker does not report `{kind[:60]}`"
    chosen = event.payload.get("next") if kind in ("step.done", "step.failed") else event.payload.get("ends")
    if chosen is not None and not plan.has_case(plan.steps[step]):
        return "the step has no case that could choose its way"
    try:
        seconds_of(event.timestamp)
    except ValueError:
        return "an event has no moment as RFC 3339 writes it"
    return None
