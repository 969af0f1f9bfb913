"""What a worker tells the control plane, and the answers: claims, beats and reports.

A report carries the work of many leases in one call, and the answer has a verdict for each. The server
gives events their id and place in the log, so a worker's event has neither; its key makes a report
that is sent twice count once.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from noetl.records.command import Command, HeldLease
from noetl.records.event import EntityType, EventStatus

PROTOCOL: int = 1
"""The version of what workers and servers say to each other; those two versions apart refuse each other."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An idle worker asks for work."""

    worker_id: str
    pool: str = "default"
    limit: int = 1
    wait_seconds: float = 0.0
    """How long the answer may be held back while there is nothing to do."""
    protocol: int = PROTOCOL


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker renews all its leases at once."""

    worker_id: str
    leases: tuple[HeldLease, ...]


class BeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The leases that were not renewed, by command id: the worker stops their work at once."""

    lost: tuple[str, ...] = ()
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

    lease: HeldLease
    events: tuple[ReportedEvent, ...]
    asks_for_iterations: bool = False
    """The lease is of a loop and would run more of its iterations."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    leases: tuple[LeaseReport, ...]
    pool: str = "default"
    free_slots: int = 0
    """How many commands the worker would take along with the answer."""
    protocol: int = PROTOCOL


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one lease's report.

    `refused`: command, epoch or state did not match, so the worker drops that work.
    `accepted` with `stop`: the events are in the log, and what is left of the lease is not to be run.
    """

    command_id: str
    verdict: Literal["accepted", "refused"]
    stop: bool = False
    reason: str | None = None
    iterations: tuple[int, ...] = ()
    """The next iterations of its loop that the lease is to run."""


AnyCommand: TypeAlias = Command[Any]


class ReportReply(msgspec.Struct, frozen=True, kw_only=True):
    verdicts: tuple[Verdict, ...]
    commands: tuple[AnyCommand, ...] = ()
    """Work already leased to the worker in the same transaction."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """A committed event that a waiting step may be looking for, and its place in the log."""

    place: int
    event_type: str
    timestamp: str
    step: str | None = None
    step_run_id: str | None = None
    payload: dict[str, Any] = {}


class TakenSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that a running task has in hand; it leaves the mailbox when that task is done."""

    place: int
    data: Any = None


class ChildCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of another playbook. The child's id follows from the call, so one made again finds its child."""

    call_id: str
    path: str
    version: int | None = None
    payload: dict[str, Any] = {}


class ChildState(msgspec.Struct, frozen=True, kw_only=True):
    """A child execution as its parent sees it."""

    execution_id: str
    status: str
    result: Any = None
    error: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")


class LoopSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """What the finished iterations of a loop have come to."""

    result: Any = None
    """Their results in index order, or the reference to them."""
    collected: dict[int, dict[str, Any]] = {}
    """What `set` and `collect` held in each finished parallel iteration."""
