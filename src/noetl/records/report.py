"""What a worker tells the control plane, and the answers: claims, beats and reports.

A report carries the work of many leases in one call, and the answer has a verdict for each. The server
gives events their id and place in the log, so a worker's event has neither; its key makes a report
that is sent twice count once.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.records.command import Command
from noetl.records.event import EntityType, EventStatus


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An idle worker asks for work."""

    worker_id: str
    pool: str = "default"
    limit: int = 1


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    command_id: str
    epoch: int


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker renews all its leases at once."""

    worker_id: str
    leases: tuple[HeldLease, ...]


class BeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The leases that were not renewed, by command id: the worker stops their work at once."""

    lost: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    lease_seconds: float


class ReportedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the worker saw it, before the server gives it an id and a place in the log."""

    idem_key: str
    """Unique in its execution, and the same whenever this event is reported again."""
    event_type: str
    timestamp: str
    entity_type: EntityType
    entity_id: str
    status: EventStatus
    parent_id: str | None = None
    task_run_id: str | None = None
    task_label: str | None = None
    iteration_id: str | None = None
    iteration: int | None = None
    attempt: int | None = None
    page: int | None = None
    action_id: str | None = None
    payload: dict[str, Any] = {}


class LeaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What happened under one lease since its last report."""

    command_id: str
    execution_id: str
    epoch: int
    events: tuple[ReportedEvent, ...]
    parked: dict[str, Any] = {}
    """The frames that now wait on the server, by iteration index; `""` without a loop."""
    ends: bool = False
    """Nothing of this lease is left to run."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    leases: tuple[LeaseReport, ...]
    free_slots: int = 0
    """How many commands the worker would take along with the answer."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one lease's report.

    `refused`: command, epoch or state did not match, so the worker drops that work.
    `accepted` with `stop`: the events are in the log, and what is left of the lease is not to be run.
    """

    command_id: str
    verdict: Literal["accepted", "refused"]
    stop: bool = False
    reason: str | None = None


class ReportReply(msgspec.Struct, frozen=True, kw_only=True):
    verdicts: tuple[Verdict, ...]
    commands: tuple[Command, ...] = ()
    """Work already leased to the worker in the same transaction."""
