"""The store in memory: the twin of those on disk, for tests, simulations and runs that nobody keeps.

It passes the same contract suite. Everything is kept as the JSON a database would hold, so that nothing a
caller changes later can change what was stored. It is gone with its process.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from noetl.errors import NoetlError
from noetl.ids import Clock, SystemClock, seconds_of, timestamp
from noetl.records.event import Event
from noetl.store.codec import decode_event, decode_iteration_result, decode_json, encode_event, encode_json
from noetl.store.consistency import require_consistent
from noetl.store.idempotency import KeyReusedError, says_the_same
from noetl.store.leases import begun, claimed, freed, held, holds, is_over, lease_end, state_of, waiting_order
from noetl.store.protocol import (
    Append,
    AppendConflict,
    BodyRow,
    CatalogEntry,
    CommandRow,
    CommandState,
    ExecutionRow,
    Fence,
    InboxRow,
    LeaseFenced,
    ListOrder,
    QueueCount,
    StoreError,
    TimerRow,
)


class _Log(msgspec.Struct):
    """One execution as it is stored."""

    row: ExecutionRow
    events: list[bytes] = []
    keys: dict[str, int] = {}
    """The place in the log of the event that has each key."""
    iterations: dict[str, dict[int, bytes]] = {}
    """The last end of each iteration of the loops of steps."""
    commands: dict[str, CommandRow] = {}
    timers: dict[str, TimerRow] = {}
    vars: dict[str, bytes] = {}
    snapshot: tuple[int, bytes] | None = None


class MemoryStore:
    """A store; see `noetl.store.protocol.Store`."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Leases run by the clock that is given, so that a simulation may have a time of its own."""
        self._clock = clock or SystemClock()
        self._logs: dict[str, _Log] = {}
        self._bodies: dict[str, BodyRow] = {}
        self._catalog: dict[str, list[CatalogEntry]] = {}
        self._inbox: dict[str, bytes] = {}
        self._start_keys: dict[str, tuple[str, float]] = {}
        self._changed = True
        self._closed = False

    async def close(self) -> None:
        self._closed = True

    # --- writing -----------------------------------------------------------------------------------------

    async def append(self, change: Append) -> None:
        """See `Store.append`. KeyReusedError: a key stands for another event; ValueError: no such change."""
        self._require_open()
        require_consistent(change)
        log = self._logs.get(change.execution_id)
        head = 0 if log is None else len(log.events)
        fenced = self._leases_over(log, change)
        if log is not None and self._repeats(log, change, in_part=change.version != head or bool(fenced)):
            return
        if change.version != head:
            raise AppendConflict(
                f"The log of execution {change.execution_id} is at {head}; the change was decided at "
                f"{change.version}."
            )
        if fenced:
            raise LeaseFenced(fenced)
        if log is None:
            log = self._logs[change.execution_id] = _Log(change.execution)
        self._write(log, change)
        # Others may run while a real store writes; a twin that never let them would hide their mistakes.
        await asyncio.sleep(0)

    async def append_all(self, changes: Sequence[Append]) -> list[NoetlError | None]:
        for change in changes:
            require_consistent(change)
        answers: list[NoetlError | None] = []
        for change in changes:
            try:
                await self.append(change)
                answers.append(None)
            except NoetlError as refused:
                answers.append(refused)
        return answers

    def _leases_over(self, log: _Log | None, change: Append) -> tuple[str, ...]:
        commands, now = {} if log is None else log.commands, self._clock.now()
        return tuple(
            fence.command_id
            for fence in change.fences
            if not holds(fence, commands.get(fence.command_id), now)
        )

    def _write(self, log: _Log, change: Append) -> None:
        log.row = _own_row(change.execution)
        for event in change.events:
            body = encode_event(event)
            log.events.append(body)
            if event.event_type == "loop.iteration.done" and "block" not in event.payload:
                ended = log.iterations.setdefault(str(event.step_run_id), {})
                ended[int(event.iteration or 0)] = body
        for number, key in enumerate(change.idem_keys, start=change.version):
            if key is not None:
                log.keys[key] = number
        self._queue(log.commands, change)
        if change.remove_all_timers:
            log.timers.clear()
        for timer_id in change.remove_timers:
            log.timers.pop(timer_id, None)
        log.timers.update((each.timer_id, each) for each in change.add_timers)
        log.vars.update((name, encode_json(value)) for name, value in change.vars.items())
        self._bodies.update((each.key, each) for each in change.bodies)
        if change.snapshot is not None:
            log.snapshot = (len(log.events), change.snapshot)

    def _queue(self, commands: dict[str, CommandRow], change: Append) -> None:
        """What a change does to the queue, in the order in which every store does it."""
        if change.remove_all_commands:
            commands.clear()
        for command_id in change.remove_commands:
            commands.pop(command_id, None)
        until = lease_end(self._clock.now(), change.lease_seconds)
        commands.update((each.command_id, begun(each, until)) for each in change.add_commands)
        for command_id in change.free_commands:
            if command_id in commands:
                commands[command_id] = freed(commands[command_id])
        for command_id in change.hold_commands:
            if command_id in commands:
                commands[command_id] = held(commands[command_id])
        if change.hold_unleased_commands:
            unleased = [each for each in commands.values() if each.worker_id is None]
            commands.update((each.command_id, held(each)) for each in unleased)

    def _repeats(self, log: _Log, change: Append, *, in_part: bool) -> bool:
        """Whether everything in the change that has a key is in the log, and says the same.

        A change of which only a part is there is refused, unless it is refused anyway (`in_part`).
        """
        keyed = [
            (key, event)
            for key, event in zip(change.idem_keys, change.events, strict=False)
            if key is not None
        ]
        known = 0
        for key, event in keyed:
            if key not in log.keys:
                continue
            if not says_the_same(log.events[log.keys[key]], event):
                raise KeyReusedError(
                    f"The key `{key}` of execution {change.execution_id} stands for another event.", key
                )
            known += 1
        if known and known < len(keyed) and not in_part:
            raise KeyReusedError(
                f"Execution {change.execution_id} has a part of this change already; append the rest alone.",
                keyed[0][0],
            )
        return known > 0 and known == len(keyed)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("The store is closed. Open it again to go on.")

    # --- executions --------------------------------------------------------------------------------------

    async def events(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        log = self._logs.get(execution_id)
        stop = None if limit is None else after + limit
        return [] if log is None else [decode_event(body) for body in log.events[after:stop]]

    async def iteration_results(self, execution_id: str, step_run_id: str) -> list[tuple[int, Any]]:
        log = self._logs.get(execution_id)
        ended = {} if log is None else log.iterations.get(step_run_id, {})
        return [(index, decode_iteration_result(ended[index])) for index in sorted(ended)]

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None:
        log = self._logs.get(execution_id)
        return None if log is None else log.snapshot

    async def execution(self, execution_id: str) -> ExecutionRow | None:
        log = self._logs.get(execution_id)
        return None if log is None else log.row

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
        listed = [log.row for log in self._logs.values()]
        if since is not None:
            listed.sort(key=lambda row: row.requested_at)
        if order == "newest":
            listed.reverse()
        if before is not None:
            place = next((n for n, row in enumerate(listed) if row.execution_id == before), len(listed))
            listed = listed[place + 1 :]
        wanted = [
            row
            for row in listed
            if status in (None, row.status)
            and path in (None, row.path)
            and parent in (None, row.parent_execution_id)
            and (since is None or row.requested_at >= since)
        ]
        return wanted[:limit]

    async def start_key(self, key: str, execution_id: str, now: float) -> str:
        self._require_open()
        return self._start_keys.setdefault(key, (execution_id, now))[0]

    async def forget_before(self, moment: float) -> int:
        self._require_open()
        ends = timestamp(moment)
        gone = [
            name for name, log in self._logs.items() if log.row.finished_at and log.row.finished_at < ends
        ]
        for name in gone:
            del self._logs[name]
        self._bodies = {key: row for key, row in self._bodies.items() if row.execution_id not in gone}
        self._start_keys = {
            key: (name, asked)
            for key, (name, asked) in self._start_keys.items()
            if asked >= moment or name in self._logs
        }
        return len(gone)

    async def commands(
        self,
        *,
        execution_id: str | None = None,
        pool: str | None = None,
        state: CommandState | None = None,
        limit: int = 100,
    ) -> list[CommandRow]:
        found = [
            command
            for name, log in self._logs.items()
            if execution_id in (None, name)
            for command in log.commands.values()
            if pool in (None, command.pool) and state in (None, state_of(command))
        ]
        found.sort(key=waiting_order)
        return found[:limit]

    async def queue(self, *, execution_id: str | None = None) -> list[QueueCount]:
        counted: dict[tuple[str, CommandState], list[CommandRow]] = {}
        for name, log in self._logs.items():
            for row in log.commands.values() if execution_id in (None, name) else ():
                counted.setdefault((row.pool, state_of(row)), []).append(row)
        return [
            QueueCount(pool=pool, state=state, depth=len(rows), oldest=_oldest(rows, state))
            for (pool, state), rows in sorted(counted.items())
        ]

    async def command(self, execution_id: str, command_id: str) -> CommandRow | None:
        log = self._logs.get(execution_id)
        return None if log is None else log.commands.get(command_id)

    async def claim(self, *, pool: str, worker_id: str, limit: int, lease_seconds: float) -> list[CommandRow]:
        self._require_open()
        now = self._clock.now()
        free = [
            row
            for log in self._logs.values()
            for row in log.commands.values()
            if row.pool == pool and row.worker_id is None and not row.is_held and row.not_before <= now
        ]
        free.sort(key=waiting_order)
        taken = [claimed(row, worker_id, lease_end(now, lease_seconds)) for row in free[:limit]]
        for row in taken:
            self._logs[row.execution_id].commands[row.command_id] = row
        await asyncio.sleep(0)
        return taken

    async def renew(self, worker_id: str, leases: Sequence[Fence], lease_seconds: float) -> tuple[str, ...]:
        self._require_open()
        until = lease_end(self._clock.now(), lease_seconds)
        by_id = {
            row.command_id: (log.commands, row)
            for log in self._logs.values()
            for row in log.commands.values()
            if row.worker_id == worker_id
        }
        lost = []
        for lease in leases:
            commands, row = by_id.get(lease.command_id, ({}, None))
            if row is None or row.epoch != lease.epoch:
                lost.append(lease.command_id)
            else:
                commands[row.command_id] = msgspec.structs.replace(row, lease_until=until)
        return tuple(lost)

    async def expired(self, limit: int = 100) -> list[CommandRow]:
        now = self._clock.now()
        over = [row for log in self._logs.values() for row in log.commands.values() if is_over(row, now)]
        over.sort(key=lambda row: (row.lease_until or 0.0, *waiting_order(row)))
        return over[:limit]

    async def open_children(self, execution_id: str) -> list[str]:
        rows = (log.row for log in self._logs.values() if log.row.parent_execution_id == execution_id)
        return [row.execution_id for row in rows if row.finished_at is None]

    async def timers_due(self, now: float, limit: int = 100) -> list[TimerRow]:
        due = [timer for log in self._logs.values() for timer in log.timers.values() if timer.due <= now]
        due.sort(key=lambda timer: (timer.due, timer.execution_id, timer.timer_id))
        return due[:limit]

    async def next_timer(self) -> float | None:
        return min((timer.due for log in self._logs.values() for timer in log.timers.values()), default=None)

    async def vars(self, execution_id: str) -> dict[str, Any]:
        log = self._logs.get(execution_id)
        return {} if log is None else {name: decode_json(value) for name, value in log.vars.items()}

    # --- bodies, catalog, inbox --------------------------------------------------------------------------

    async def body(self, key: str) -> BodyRow | None:
        return self._bodies.get(key)

    async def put_body(self, row: BodyRow) -> None:
        self._require_open()
        self._bodies[row.key] = row

    async def register(self, path: str, name: str, dialect: str, source: bytes, now: str) -> CatalogEntry:
        self._require_open()
        digest = hashlib.sha256(source).hexdigest()
        versions = self._catalog.setdefault(path, [])
        if versions and versions[-1].digest == digest:
            return versions[-1]
        entry = CatalogEntry(
            path=path,
            version=len(versions) + 1,
            name=name,
            dialect=dialect,
            digest=digest,
            registered_at=now,
            source=source,
        )
        versions.append(entry)
        return entry

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        versions = self._catalog.get(path, [])
        number = len(versions) if version is None else version
        return versions[number - 1] if 0 < number <= len(versions) else None

    async def catalog_by_digest(self, digest: str) -> CatalogEntry | None:
        entries = (entry for versions in self._catalog.values() for entry in versions)
        return next((entry for entry in entries if entry.digest == digest), None)

    async def catalog(self, *, path: str | None = None, limit: int = 100) -> list[CatalogEntry]:
        if path is None:
            found = [self._catalog[name][-1] for name in sorted(self._catalog)]
        else:
            found = self._catalog.get(path, [])[::-1]
        return [msgspec.structs.replace(entry, source=b"") for entry in found[:limit]]

    async def changed(self) -> bool:
        """There is no other process; whoever puts a request into the inbox stands for one."""
        changed, self._changed = self._changed, False
        return changed

    async def put_inbox(self, row: InboxRow) -> None:
        self._require_open()
        self._changed = True
        self._inbox.setdefault(row.request_id, encode_json(row))

    async def take_inbox(self) -> list[InboxRow]:
        self._require_open()
        taken, self._inbox = self._inbox, {}
        return [msgspec.convert(decode_json(row), InboxRow) for row in taken.values()]


def _own_row(row: ExecutionRow) -> ExecutionRow:
    """A projection of the store's own: the error in the one it was given belongs to a live state."""
    return (
        row if row.error is None else msgspec.structs.replace(row, error=decode_json(encode_json(row.error)))
    )


def _oldest(rows: list[CommandRow], state: CommandState) -> float | None:
    if state != "free":
        return None
    since = (max(seconds_of(row.created_at), row.not_before) for row in rows if row.created_at)
    return min(since, default=None)
