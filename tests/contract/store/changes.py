"""Events and changes with as little in them as a store needs."""

from __future__ import annotations

from typing import Any

from noetl.records.event import Event
from noetl.store.protocol import Append, CommandRow, ExecutionRow, TimerRow

NOW = "2025-01-01T00:00:00.000000Z"


def event(execution_id: str, seq: int, event_type: str = "task.done", **fields: Any) -> Event:
    given: dict[str, Any] = {
        "event_id": f"{execution_id}-{seq}",
        "timestamp": NOW,
        "source": "worker",
        "entity_type": "tool",
        "entity_id": f"entity-{seq}",
        "status": "success",
        **fields,
    }
    return Event(execution_id=execution_id, seq=seq, event_type=event_type, **given)


def execution(execution_id: str, status: str = "running", **fields: Any) -> ExecutionRow:
    given: dict[str, Any] = {
        "name": "orders",
        "path": "shop/orders",
        "version": 1,
        "dialect": "canonical",
        "requested_at": NOW,
        **fields,
    }
    return ExecutionRow(execution_id=execution_id, status=status, **given)


def change(execution_id: str, version: int = 0, count: int = 1, **fields: Any) -> Append:
    """`count` events from `version` on, unless `events` are given."""
    given: dict[str, Any] = {
        "events": tuple(event(execution_id, version + place) for place in range(1, count + 1)),
        "execution": execution(execution_id),
        **fields,
    }
    return Append(execution_id=execution_id, version=version, **given)


def command(execution_id: str, command_id: str, **fields: Any) -> CommandRow:
    return CommandRow(
        command_id=command_id, execution_id=execution_id, step="fetch", step_run_id="run", **fields
    )


def timer(execution_id: str, timer_id: str, due: float, **payload: Any) -> TimerRow:
    return TimerRow(timer_id=timer_id, execution_id=execution_id, due=due, payload=payload)
