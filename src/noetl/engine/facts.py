"""Events before they have an id and a place in the log.

The engine and the worker say what happened as facts; the control plane stamps them when it appends
them. One function for each shape, so that ids and parents are the same wherever a fact is made.
"""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.records.event import EVENT_TYPES, EntityType, EventSource, EventStatus


class Fact(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The fields of an event that are known before it is appended."""

    event_type: str
    timestamp: str
    source: EventSource
    entity_type: EntityType
    entity_id: str
    status: EventStatus
    parent_id: str | None = None
    workflow_run_id: str | None = None
    step: str | None = None
    step_run_id: str | None = None
    task_run_id: str | None = None
    task_label: str | None = None
    iteration_id: str | None = None
    iteration: int | None = None
    attempt: int | None = None
    page: int | None = None
    action_id: str | None = None
    payload: dict[str, Any] = {}


def of_playbook(
    event_type: str,
    execution_id: str,
    at: str,
    status: EventStatus = "success",
    **payload: Any,  # noqa: ANN401
) -> Fact:
    return Fact(
        event_type=event_type,
        timestamp=at,
        source="server",
        entity_type=EVENT_TYPES[event_type].entity,
        entity_id=execution_id,
        status=status,
        workflow_run_id=execution_id if EVENT_TYPES[event_type].entity == "workflow" else None,
        payload=payload,
    )


def of_step(
    event_type: str,
    execution_id: str,
    at: str,
    step: str,
    run_id: str | None,
    status: EventStatus = "success",
    source: EventSource = "server",
    **payload: Any,  # noqa: ANN401
) -> Fact:
    """An event about a step run, or about a token that was not admitted."""
    return Fact(
        event_type=event_type,
        timestamp=at,
        source=source,
        entity_type=EVENT_TYPES[event_type].entity,
        entity_id=run_id or execution_id,
        status=status,
        parent_id=execution_id,
        workflow_run_id=execution_id,
        step=step,
        step_run_id=run_id,
        payload=payload,
    )
