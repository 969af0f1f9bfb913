"""What workers and servers say to each other over HTTP, and how the queue and those who work are shown."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, field

from noetl.client.wire import Answer, Name, Place, Seconds
from noetl.records.command import Command, HeldLease
from noetl.records.report import ChildCall, Heard, TakenSignal, Verdict

Context = TypeVar("Context")

CommandState: TypeAlias = Literal["free", "leased", "held"]
RuntimeKind: TypeAlias = Literal["server", "pool", "worker"]


class Claimed(Answer, Generic[Context], frozen=True, kw_only=True):
    commands: tuple[Command[Context], ...]


class ReportAnswer(Answer, Generic[Context], frozen=True, kw_only=True):
    """`records.report.ReportReply` with the type of its commands' contexts."""

    verdicts: tuple[Verdict, ...]
    commands: tuple[Command[Context], ...] = ()


class QueueRow(Answer, frozen=True, kw_only=True):
    command_id: str
    execution_id: str
    step: str
    step_run_id: str
    pool: str
    state: CommandState
    created_at: str
    worker_id: str | None = None
    epoch: int = 0
    lease_until: float | None = None


class QueueView(Answer, frozen=True, kw_only=True):
    commands: tuple[QueueRow, ...]
    depth: int
    """Rows that match, `commands` or not; at most the number that is counted."""
    oldest_seconds: float | None = None
    """The age of the oldest that nobody has."""


class AskedByWorker(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks: a newer one may say more than this server understands."""


class UnderLease(AskedByWorker, frozen=True, kw_only=True):
    """A question of a worker about a command it holds."""

    lease: HeldLease


class LoadRequest(UnderLease, frozen=True, kw_only=True):
    ref: dict[str, Any]


class HeardRequest(UnderLease, frozen=True, kw_only=True):
    after: Place = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class TakeRequest(UnderLease, frozen=True, kw_only=True):
    name: Name
    wait_seconds: Seconds = 0.0


class ChildRequest(UnderLease, frozen=True, kw_only=True):
    call: ChildCall
    wait_seconds: Seconds = 0.0


class StopChildRequest(UnderLease, frozen=True, kw_only=True):
    call_id: Annotated[str, Meta(min_length=1, max_length=500)]


class Stopped(Answer, frozen=True, kw_only=True):
    call_id: str


class KeychainView(Answer, frozen=True, kw_only=True):
    entries: dict[str, Any]


class Loaded(Answer, frozen=True, kw_only=True):
    result: Any = None


class HeardList(Answer, frozen=True, kw_only=True):
    events: tuple[Heard, ...]


class Taken(Answer, frozen=True, kw_only=True):
    signal: TakenSignal | None = None


class Kept(Answer, frozen=True, kw_only=True):
    key: str


class RuntimeBeat(AskedByWorker, frozen=True, kw_only=True):
    kind: RuntimeKind
    name: Name


class RuntimeKnown(Answer, frozen=True, kw_only=True):
    known: bool
    """False: nobody of that name is registered, so register again."""


class RuntimeRequest(AskedByWorker, frozen=True, kw_only=True):
    """What a server, pool or worker says of itself."""

    kind: RuntimeKind
    name: Name
    pool: str | None = None
    slots: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    protocol: int = 1
    version: str = ""


class RuntimeView(Answer, frozen=True, kw_only=True):
    kind: RuntimeKind
    name: str
    is_alive: bool
    last_beat: str
    started_at: str
    pool: str | None = None
    slots: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    protocol: int = 0
    version: str = ""


class RuntimeViews(Answer, frozen=True, kw_only=True):
    runtimes: tuple[RuntimeView, ...]
