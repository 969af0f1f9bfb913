"""Turns appends into rows: what each is to write, and the writing of many of them with few statements.

Preparing a change (the encoding of JSON) happens in the caller's thread. A `ChangeSet` collects changes
that were admitted and writes their net effect: rows of the same table go in one statement, and what a later
change removes again is not written first. It checks nothing; the writer does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from noetl.records.event import Event
from noetl.store.codec import encode_event, encode_json
from noetl.store.leases import begun, lease_end
from noetl.store.protocol import Append, BodyRow, CommandRow, ExecutionRow
from noetl.store.queries import for_rows, queries

Row: TypeAlias = tuple[Any, ...]
Key = TypeVar("Key", bound=Hashable)

MAX_ROWS: Final = 64
EXACT_ROWS: Final = 16
"""Up to this many rows go in one statement whatever their number; above it sizes are powers of two, up to
`MAX_ROWS`, so that few statements are prepared, and kept."""

_QUERIES: Final = queries("sqlite")


class PreparedChange(msgspec.Struct, frozen=True):
    """An append with its rows in the shape the database takes."""

    change: Append
    events: list[Row]
    keys: list[Row]
    timers: list[Row]
    vars: list[Row]
    error: bytes | None

    @property
    def last_seq(self) -> int:
        return self.change.version + len(self.events)


def prepare(change: Append) -> PreparedChange:
    """ValueError where the change contradicts itself."""
    execution_id = change.execution_id
    if change.execution.execution_id != execution_id:
        raise ValueError(
            f"the projection is of {change.execution.execution_id}, the change of {execution_id}"
        )
    if change.idem_keys and len(change.idem_keys) != len(change.events):
        raise ValueError("each event has a key or None, or there are no keys at all")
    keys = [
        (execution_id, key, event.seq)
        for key, event in zip(change.idem_keys, change.events, strict=False)
        if key is not None
    ]
    if len({key for _, key, _ in keys}) != len(keys):
        raise ValueError("two events of one change have the same key")
    error = change.execution.error
    return PreparedChange(
        change=change,
        events=[_event_row(change, number, event) for number, event in enumerate(change.events, 1)],
        keys=keys,
        timers=[
            (execution_id, timer.timer_id, timer.due, encode_json(timer.payload))
            for timer in change.add_timers
        ],
        vars=[(execution_id, name, encode_json(value)) for name, value in change.vars.items()],
        error=None if error is None else encode_json(error),
    )


def _event_row(change: Append, number: int, event: Event) -> Row:
    if event.seq != change.version + number or event.execution_id != change.execution_id:
        raise ValueError(
            f"event {number} of a change to {change.execution_id} at {change.version} is number {event.seq} "
            f"of {event.execution_id}"
        )
    if event.event_type == "loop.iteration.done" and "block" not in event.payload:
        loop_run_id, loop_index = event.step_run_id, event.iteration
    else:
        loop_run_id, loop_index = None, None
    return event.execution_id, event.seq, event.event_type, loop_run_id, loop_index, encode_event(event)


class _NetRows(Generic[Key]):
    """The rows of a table that changes put and removed, as they stand after the last one."""

    def __init__(self, table: str) -> None:
        self._save = _QUERIES[f"save_{table}"]
        self._delete = _QUERIES[f"delete_{table}"]
        self._delete_of = _QUERIES[f"delete_{table}_of"]
        self._rows: dict[tuple[str, Key], Row | None] = {}
        self._emptied: set[str] = set()

    def empty(self, execution_id: str) -> None:
        for key in [each for each in self._rows if each[0] == execution_id]:
            del self._rows[key]
        self._emptied.add(execution_id)

    def remove(self, execution_id: str, keys: Iterable[Key]) -> None:
        for key in keys:
            self._rows[execution_id, key] = None

    def put(self, execution_id: str, key: Key, row: Row) -> None:
        self._rows[execution_id, key] = row

    def write(self, connection: sqlite3.Connection) -> None:
        if self._emptied:
            write_rows(connection, self._delete_of, [(each,) for each in self._emptied])
        if self._rows:
            write_rows(connection, self._delete, [key for key, row in self._rows.items() if row is None])
            write_rows(connection, self._save, [row for row in self._rows.values() if row is not None])


class ChangeSet:
    """Admitted changes that are to be written together, in the order they were added."""

    def __init__(self) -> None:
        self._executions: dict[str, Row] = {}
        self._heads: dict[str, int] = {}
        self._events: list[Row] = []
        self._keys: list[Row] = []
        self._commands = _NetRows[str]("commands")
        self._timers = _NetRows[str]("timers")
        self._vars: dict[tuple[str, str], Row] = {}
        self._bodies: dict[str, Row] = {}
        self._snapshots: dict[str, Row] = {}

    def add(self, prepared: PreparedChange, *, same_projection: bool, now: float) -> None:
        """`same_projection`: the row of the execution is known to be what the database has.

        What it frees and holds is not in here: that is done to rows which the set may not know.
        """
        change, execution_id = prepared.change, prepared.change.execution_id
        if same_projection and execution_id not in self._executions:
            self._heads[execution_id] = prepared.last_seq
        else:
            self._heads.pop(execution_id, None)
            self._executions[execution_id] = execution_values(prepared)
        self._events += prepared.events
        self._keys += prepared.keys
        if change.remove_all_commands:
            self._commands.empty(execution_id)
        self._commands.remove(execution_id, change.remove_commands)
        until = lease_end(now, change.lease_seconds)
        for each in change.add_commands:
            row = command_values(begun(each, until))
            self._commands.put(execution_id, each.command_id, row)
        if change.remove_all_timers:
            self._timers.empty(execution_id)
        self._timers.remove(execution_id, change.remove_timers)
        for timer in prepared.timers:
            self._timers.put(execution_id, timer[1], timer)
        for var in prepared.vars:
            self._vars[execution_id, var[1]] = var
        for body in change.bodies:
            self._bodies[body.key] = body_values(body)
        if change.snapshot is not None:
            self._snapshots[execution_id] = (execution_id, prepared.last_seq, change.snapshot)

    def write(self, connection: sqlite3.Connection) -> None:
        """Executions first: the other rows refer to them."""
        write_rows(connection, _QUERIES["save_executions"], [*self._executions.values()])
        write_rows(connection, _QUERIES["advance_executions"], [*self._heads.items()])
        write_rows(connection, _QUERIES["insert_events"], self._events)
        write_rows(connection, _QUERIES["insert_event_keys"], self._keys)
        self._commands.write(connection)
        self._timers.write(connection)
        write_rows(connection, _QUERIES["save_vars"], [*self._vars.values()])
        write_rows(connection, _QUERIES["save_bodies"], [*self._bodies.values()])
        write_rows(connection, _QUERIES["save_snapshots"], [*self._snapshots.values()])


def execution_values(prepared: PreparedChange) -> Row:
    row: ExecutionRow = prepared.change.execution
    return (
        row.execution_id,
        prepared.last_seq,
        row.status,
        row.name,
        row.path,
        row.version,
        row.dialect,
        row.requested_at,
        row.finished_at,
        row.parent_execution_id,
        prepared.error,
        row.playbook_digest,
    )


def command_values(row: CommandRow) -> Row:
    return (
        row.execution_id,
        row.command_id,
        row.step,
        row.step_run_id,
        row.pool,
        row.created_at,
        row.not_before,
        row.worker_id,
        row.epoch,
        row.lease_until,
        row.is_held,
    )


def command_of(values: Row) -> CommandRow:
    return CommandRow(
        execution_id=values[0],
        command_id=values[1],
        step=values[2],
        step_run_id=values[3],
        pool=values[4],
        created_at=values[5],
        not_before=values[6],
        worker_id=values[7],
        epoch=values[8],
        lease_until=values[9],
        is_held=bool(values[10]),
    )


def body_values(body: BodyRow) -> Row:
    return body.key, body.execution_id, body.media_type, body.checksum, body.body


def write_rows(connection: sqlite3.Connection, query: str, rows: Sequence[Row]) -> None:
    """Runs a query that is written for one row for all of them, many at a time.

    Each statement gives the interpreter lock away and has to win it back, against an event loop that is busy;
    that is why this is not `executemany`, which does so for each row.
    """
    done, left = 0, len(rows)
    while left:
        count = left if left <= EXACT_ROWS else min(MAX_ROWS, 1 << (left.bit_length() - 1))
        connection.execute(for_rows(query, count), [*chain.from_iterable(rows[done : done + count])])
        done, left = done + count, left - count
