"""Commands, reports and references: what is sent arrives as it was."""

from __future__ import annotations

import msgspec
import pytest

from noetl.records.command import Command, HeldLease, PlaybookVersion
from noetl.records.report import (
    Beat,
    BeatReply,
    Claim,
    LeaseReport,
    Report,
    ReportedEvent,
    ReportReply,
    Verdict,
)
from noetl.records.result_ref import ResultRef, ref_from_data, ref_to_data

LEASE = HeldLease(command_id="81", execution_id="72", epoch=3)
COMMAND: Command[dict[str, object]] = Command(
    lease=LEASE,
    lease_seconds=30,
    playbook=PlaybookVersion(path="examples/orders", version=4, digest="ab" * 32),
    step="fetch",
    step_run_id="74",
    context={"workload": {"n": 1}, "ctx": {}},
    has_secrets=True,
)
EVENT = ReportedEvent(
    idem_key="81:3:1",
    event_type="task.done",
    timestamp="2026-01-31T10:00:00Z",
    entity_type="tool",
    entity_id="90",
    status="success",
    task_label="fetch",
    iteration=16,
    attempt=1,
    payload={"outcome": {"status": "ok"}},
)
REF = ResultRef(
    ref="noetl://72/90",
    store="database",
    key="72/90",
    checksum="cd" * 32,
    size=70_000,
    schema_hint={"type": "list", "length": 900},
    preview=[{"id": 1}],
    extracted={"count": 900},
)


@pytest.mark.parametrize(
    "message",
    [
        COMMAND,
        Claim(worker_id="w1", limit=4),
        Beat(worker_id="w1", leases=(LEASE,)),
        BeatReply(lost=("81",), lease_seconds=30),
        Report(
            worker_id="w1",
            free_slots=2,
            leases=(LeaseReport(lease=LEASE, events=(EVENT,), asks_for_iterations=True),),
        ),
        ReportReply(
            verdicts=(Verdict(command_id="81", verdict="accepted", iterations=(3, 4)),), commands=(COMMAND,)
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_survives_the_way_through_json(message: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(message), type=type(message)) == message


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        COMMAND.step = "other"  # type: ignore[misc]


def test_a_reference_is_told_from_other_data_by_its_kind() -> None:
    data = ref_to_data(REF)
    assert data["kind"] == "result_ref"
    assert set(data) == {
        "kind",
        "ref",
        "store",
        "key",
        "checksum",
        "size",
        "schema_hint",
        "preview",
        "extracted",
    }
    assert ref_from_data(msgspec.json.decode(msgspec.json.encode(data))) == REF


@pytest.mark.parametrize("value", [None, [], "result_ref", {}, {"kind": "other"}, {"kind": "result_ref"}])
def test_what_only_looks_like_a_reference_is_none(value: object) -> None:
    assert ref_from_data(value) is None
