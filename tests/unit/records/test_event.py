"""The event envelope and the table of types."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from noetl.records.event import EVENT_TYPES, EntityType, Event, from_line, to_line

ENVELOPE = [
    "event_id",
    "execution_id",
    "seq",
    "event_type",
    "timestamp",
    "source",
    "entity_type",
    "entity_id",
    "status",
    "parent_id",
    "workflow_run_id",
    "step",
    "step_run_id",
    "task_run_id",
    "task_label",
    "iteration_id",
    "iteration",
    "attempt",
    "page",
    "action_id",
    "payload",
]

EVENT = Event(
    event_id="7213",
    execution_id="7200",
    seq=1,
    event_type="playbook.execution.requested",
    timestamp="2026-01-31T10:00:00Z",
    source="server",
    entity_type="playbook",
    entity_id="7200",
    status="in_progress",
)

SEED_TYPES = [
    "playbook.execution.requested",
    "playbook.request.evaluated",
    "workflow.started",
    "step.scheduled",
    "next.evaluated",
    "workflow.finished",
    "playbook.processed",
    "step.started",
    "task.started",
    "task.done",
    "step.done",
    "step.failed",
    "loop.iteration.started",
    "loop.iteration.done",
    "loop.iteration.failed",
    "loop.done",
]
ADDED_TYPES = [
    "playbook.started",
    "step.skipped",
    "step.paused",
    "step.resumed",
    "next.requested",
    "vars.set",
    "loop.started",
    "retry.started",
    "retry.processed",
    "case.started",
    "case.evaluated",
    "case.branch.suppressed",
    "poll.started",
    "poll.iteration",
    "poll.finished",
    "sink.started",
    "sink.processed",
    "ctx.patched",
    "timer.scheduled",
    "timer.fired",
    "signal.received",
    "execution.cancelled",
    "execution.paused",
    "execution.resumed",
    "command.expired",
]
SERVER_TYPES = ["step.scheduled", "step.skipped", "next.evaluated", "loop.started", "loop.done"]


def test_a_line_has_every_field_of_the_envelope_and_null_where_one_does_not_apply() -> None:
    line = to_line(EVENT)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    data = msgspec.json.decode(line)
    assert sorted(data) == sorted(ENVELOPE)
    assert data["task_run_id"] is None
    assert data["payload"] == {}


values = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**63), 2**63) | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    payload=some.dictionaries(some.text(), values, max_size=4),
    step=some.none() | some.text(),
    iteration=some.none() | some.integers(0, 2**40),
)
def test_an_event_survives_the_way_through_its_line(
    payload: dict[str, object], step: str | None, iteration: int | None
) -> None:
    event = msgspec.structs.replace(EVENT, payload=payload, step=step, iteration=iteration)
    line = to_line(event)
    assert line.count(b"\n") == 1
    assert from_line(line) == event


def test_a_key_that_a_later_version_adds_is_left_out() -> None:
    line = to_line(EVENT)[:-2] + b',"later":1}'
    assert from_line(line) == EVENT


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", to_line(EVENT).replace(b'"server"', b'"client"')])
def test_a_line_that_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        from_line(line)


def test_the_table_holds_the_canonical_vocabulary() -> None:
    assert sorted(EVENT_TYPES) == sorted(SEED_TYPES + ADDED_TYPES)
    assert len(set(EVENT_TYPES)) == len(SEED_TYPES) + len(ADDED_TYPES)


def test_every_type_has_a_sentence_and_an_entity() -> None:
    for name, entry in EVENT_TYPES.items():
        assert entry.name == name
        assert entry.summary.endswith(".")
        assert entry.entity in get_args(EntityType)


def test_scheduling_routing_and_the_frame_of_an_execution_are_the_servers() -> None:
    for name, entry in EVENT_TYPES.items():
        if name in SERVER_TYPES or name.startswith(("workflow.", "playbook.", "execution.")):
            assert entry.source == "server", name
    assert EVENT_TYPES["task.done"].source == "worker"


def test_an_event_of_a_trivial_step_stays_small() -> None:
    event = msgspec.structs.replace(
        EVENT,
        event_id="7213456789012345678",
        execution_id="7213456789012345678",
        entity_id="7213456789012345679",
        parent_id="7213456789012345680",
        workflow_run_id="7213456789012345680",
        step="fetch_orders",
        step_run_id="7213456789012345679",
    )
    assert len(to_line(event)) <= 600
