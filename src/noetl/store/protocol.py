"""What the control plane asks of a store, and the rows that cross that boundary.

`append` is the only way an execution is written: events, queue, timers, result bodies and the
projection change together or not at all. A store knows no rule of the engine; it checks that an
append continues the log it was decided on, and that a key is not used for two different things.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from noetl.errors import NoetlError
from noetl.records.event import Event

STATEMENT_SECONDS: Final = 20.0
"""How long a database may take over a statement. A worker waits half a minute for an answer, and has to get
one."""


class StoreError(NoetlError):
    """The store cannot be used: missing, locked, full, damaged. The message says what to do."""

    code = "store.error"


class AppendConflict(NoetlError):  # noqa: N818 - an answer that is expected, not a fault
    """Somebody else has appended to this execution since it was read."""

    code = "store.conflict"


class LeaseFenced(NoetlError):  # noqa: N818 - an answer that is expected, not a fault
    """A change was decided under leases that are over; none of it was written."""

    code = "store.fenced"

    def __init__(self, command_ids: tuple[str, ...]) -> None:
        super().__init__(f"these leases are over: {', '.join(command_ids)}")
        self.command_ids = command_ids


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that must be the current one of its command for a change to be written."""

    command_id: str
    epoch: int
    expired: bool = False
    """It must also have run out by the store's clock: no beat may have come in between."""


CommandState: TypeAlias = Literal["free", "leased", "held"]
ListOrder: TypeAlias = Literal["newest", "oldest"]


class CommandRow(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of work in the queue: free, leased to a worker, or held back while it waits."""

    command_id: str
    execution_id: str
    step: str
    step_run_id: str
    pool: str = "default"
    created_at: str = ""
    not_before: float = 0.0
    """Seconds since 1970 before which it is not to be claimed."""
    worker_id: str | None = None
    """Who has it; in an append, who gets it at once."""
    epoch: int = 0
    """How often it was leased. A row that is appended with a worker begins at 1."""
    lease_until: float | None = None
    """Seconds since 1970 by the store's own clock; None of a leased row: its worker has never beaten."""
    is_held: bool = False
    """Parked, or of a paused execution: nobody may claim it."""
    last_seq: int | None = None
    """Of a row that was just claimed: how far the log of its execution goes, where the store says so."""


class QueueCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many commands of a pool are in one state."""

    pool: str
    state: CommandState
    depth: int
    oldest: float | None = None
    """Of free ones: seconds since 1970 from which the longest waiting could have been begun."""


class TimerRow(msgspec.Struct, frozen=True, kw_only=True):
    timer_id: str
    execution_id: str
    due: float
    """Seconds since 1970."""
    payload: dict[str, Any] = {}


class BodyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A result body that is kept in the database itself."""

    key: str
    execution_id: str
    media_type: str
    checksum: str
    body: bytes


class ExecutionRow(msgspec.Struct, frozen=True, kw_only=True):
    """The projection of an execution: what lists and status show without reading its log."""

    execution_id: str
    status: str
    name: str
    path: str
    version: int
    dialect: str
    requested_at: str
    finished_at: str | None = None
    parent_execution_id: str | None = None
    error: dict[str, Any] | None = None
    playbook_digest: str = ""


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """One change to one execution."""

    execution_id: str
    version: int
    """The `seq` of the last event the change was decided on; 0 for a new execution."""
    events: tuple[Event, ...]
    execution: ExecutionRow
    idem_keys: tuple[str | None, ...] = ()
    """For each event the key under which a repetition of it is recognised, or None; empty: none has one."""
    add_commands: tuple[CommandRow, ...] = ()
    """New rows; one with a `worker_id` is leased to it in the same transaction."""
    lease_seconds: float = 30.0
    """For how long those are."""
    free_commands: tuple[str, ...] = ()
    """Rows that anybody may claim again: lost, back from parking, or resumed."""
    hold_commands: tuple[str, ...] = ()
    """Rows that nobody may claim until they are freed; a lease on them is over."""
    hold_unleased_commands: bool = False
    """Holds every row of the execution that nobody has."""
    fences: tuple[Fence, ...] = ()
    """LeaseFenced if one of them does not hold."""
    remove_commands: tuple[str, ...] = ()
    remove_all_commands: bool = False
    add_timers: tuple[TimerRow, ...] = ()
    remove_timers: tuple[str, ...] = ()
    remove_all_timers: bool = False
    bodies: tuple[BodyRow, ...] = ()
    vars: dict[str, Any] = {}
    """Variables to keep in `transient`."""
    snapshot: bytes | None = None
    """The state after these events, to start a later replay from."""


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    version: int
    name: str
    dialect: str
    digest: str
    registered_at: str
    source: bytes


class InboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the process that owns the store, from another one."""

    request_id: str
    kind: Literal["signal", "cancel", "pause", "resume"]
    execution_id: str
    payload: dict[str, Any] = {}


class Store(Protocol):
    """All methods may raise StoreError."""

    async def close(self) -> None: ...

    async def append(self, change: Append) -> None:
        """Writes one change; AppendConflict if the log has gone on since `version`.

        Changes that are asked for while another is being written are committed together.
        """
        ...

    async def events(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        """Events in the order of the log, those with a `seq` above `after`."""
        ...

    async def iteration_results(self, execution_id: str, step_run_id: str) -> list[tuple[int, Any]]:
        """Index and result of each finished iteration of a loop step, in index order."""
        ...

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None:
        """The last snapshot and the `seq` it stands at."""
        ...

    async def execution(self, execution_id: str) -> ExecutionRow | None: ...

    async def executions(
        self,
        *,
        status: str | None = None,
        path: str | None = None,
        parent: str | None = None,
        since: str | None = None,
        order: ListOrder = "newest",
        before: str | None = None,
        limit: int = 50,
    ) -> list[ExecutionRow]:
        """The newest or the oldest first; `before` is the execution to page on from.

        `parent`: called by that one. `since`: asked for then (as `requested_at` has it) or later.
        """
        ...

    async def start_key(self, key: str, execution_id: str, now: float) -> str:
        """The execution that a key stands for: the one it was first given with, begun by now or not."""
        ...

    async def forget_before(self, moment: float) -> int:
        """Removes executions that ended before a moment, with all that is theirs, and says how many.

        The moment is in seconds since 1970. A store that keeps logs by the week may keep some a week longer.
        """
        ...

    async def append_all(self, changes: Sequence[Append]) -> list[NoetlError | None]:
        """Writes changes to different executions in one transaction where that is possible.

        The answer has for each what `append` would have raised, or None; those that fail leave the others be.
        """
        ...

    async def claim(self, *, pool: str, worker_id: str, limit: int, lease_seconds: float) -> list[CommandRow]:
        """Leases free rows of a pool, the longest waiting first: `epoch` goes up by one, committed."""
        ...

    async def renew(self, worker_id: str, leases: Sequence[Fence], lease_seconds: float) -> tuple[str, ...]:
        """Prolongs leases; the command ids of those that are not the worker's any more."""
        ...

    async def expired(self, limit: int = 100) -> list[CommandRow]:
        """Leased rows whose time is over, those whose worker never beat included."""
        ...

    async def command(self, execution_id: str, command_id: str) -> CommandRow | None: ...

    async def open_children(self, execution_id: str) -> list[str]:
        """Child executions of an execution that are not over."""
        ...

    async def commands(
        self,
        *,
        execution_id: str | None = None,
        pool: str | None = None,
        state: CommandState | None = None,
        limit: int = 100,
    ) -> list[CommandRow]:
        """The longest waiting first."""
        ...

    async def queue(self, *, execution_id: str | None = None) -> list[QueueCount]:
        """The commands of each pool and state, counted where they lie."""
        ...

    async def timers_due(self, now: float, limit: int = 100) -> list[TimerRow]: ...

    async def next_timer(self) -> float | None: ...

    async def body(self, key: str) -> BodyRow | None: ...

    async def put_body(self, row: BodyRow) -> None: ...

    async def vars(self, execution_id: str) -> dict[str, Any]: ...

    async def register(self, path: str, name: str, dialect: str, source: bytes, now: str) -> CatalogEntry:
        """A new version, or the newest one if its text is the same."""
        ...

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None: ...

    async def catalog_by_digest(self, digest: str) -> CatalogEntry | None: ...

    async def catalog(self, *, path: str | None = None, limit: int = 100) -> list[CatalogEntry]:
        """The newest version of each playbook, or with `path` all versions of one; sources left out."""
        ...

    async def changed(self) -> bool:
        """Whether another process has written since this was last asked; true when it is asked first."""
        ...

    async def put_inbox(self, row: InboxRow) -> None: ...

    async def take_inbox(self) -> list[InboxRow]: ...
