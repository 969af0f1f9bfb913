"""The store on SQLite: one file, one process that owns it, any number of others that read.

`open_store` gives it. The owner alone appends; another process reads, and asks for something through the
inbox. Writing is the work of `sqlite_writer`, in a thread of its own; here are the questions, and what they
answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from noetl.errors import NoetlError
from noetl.ids import timestamp
from noetl.private_folders import begin_private, make_private
from noetl.records.event import Event
from noetl.store.codec import decode_event, decode_iteration_result, decode_json, encode_json
from noetl.store.leases import lease_end, waiting_order
from noetl.store.listing import list_query
from noetl.store.protocol import (
    Append,
    BodyRow,
    CatalogEntry,
    CommandRow,
    CommandState,
    ExecutionRow,
    Fence,
    InboxRow,
    ListOrder,
    QueueCount,
    StoreError,
    TimerRow,
)
from noetl.store.queries import for_rows, queries
from noetl.store.sqlite_changes import MAX_ROWS, Row, body_values, command_of, prepare
from noetl.store.sqlite_connection import (
    check_schema,
    connect,
    database_path,
    driver_errors,
    keep_log_ahead,
    migrate,
    synchronous_of,
)
from noetl.store.sqlite_lock import OwnerLock, owner_of
from noetl.store.sqlite_reader import FileReader, MemoryReader, Reader
from noetl.store.sqlite_writer import Writer

BUSY_SECONDS: Final = 5.0
"""How long to wait for another process that writes: it only ever puts a row into the inbox."""

_QUERIES: Final = queries("sqlite")


def open_store(
    url: str, *, create: bool = True, owner: bool = True, busy_seconds: float = BUSY_SECONDS
) -> SqliteStore:
    """The store at `sqlite:///path`; StoreError where there is none, or it cannot be used.

    The owner makes the file (unless `create` is false) and brings its schema up to date. Anybody else
    (`owner` is false) may read and put requests into the inbox, whether there is an owner at the time or not.
    """
    path = database_path(url)
    if path is None:
        return _open(None, None, owner=True, busy_seconds=busy_seconds)
    _look_at(path, create=create and owner)
    if not owner:
        return _open(path, None, owner=False, busy_seconds=busy_seconds)
    lock = OwnerLock(path)
    try:
        return _open(path, lock, owner=True, busy_seconds=busy_seconds)
    except StoreError:
        lock.release()
        raise


def _look_at(path: Path, *, create: bool) -> None:
    """StoreError where there is no database and none is to be made; its folder is made if it must be."""
    try:
        if path.is_dir():
            raise StoreError(f"{path} is a folder. Name a file in it for the database.")
        if path.exists():
            return
        if not create:
            raise StoreError(
                f"There is no database at {path}. Run a playbook with it first, or name another."
            )
        make_private(path.parent)
    except OSError as refused:
        raise StoreError(
            f"There can be no database at {path} ({refused.strerror}). Choose another place for it."
        ) from refused


def _open(path: Path | None, lock: OwnerLock | None, *, owner: bool, busy_seconds: float) -> SqliteStore:
    if owner and path is not None:
        begin_private(path)  # the journals beside it get its mode
    with driver_errors(path):
        connection = connect(path, busy_seconds=busy_seconds)
        try:
            if owner:
                # Before anything else: a file of another program is not even switched to another journal.
                check_schema(connection, path)
                if path is not None:
                    keep_log_ahead(connection, path)
                migrate(connection, path)
            elif check_schema(connection, path) == 0:
                raise StoreError(f"The database {path} is empty. Run a playbook with it first.")
            return SqliteStore(connection, path, lock, owner=owner, busy_seconds=busy_seconds)
        except (sqlite3.Error, StoreError):
            connection.close()
            raise


class SqliteStore:
    """A store; see `noetl.store.protocol.Store`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path | None,
        lock: OwnerLock | None,
        *,
        owner: bool,
        busy_seconds: float,
    ) -> None:
        self.path = path
        self.synchronous = synchronous_of(connection)
        """`full`: a commit is on the disk when it returns. Read back from the open connection."""
        self._is_owner = owner
        self._connection = connection
        self._lock = lock
        self._writer = Writer(connection, path)
        self._reader: Reader = (
            MemoryReader(self._writer) if path is None else FileReader(path, busy_seconds=busy_seconds)
        )
        self._data_version: int | None = None
        self._closed = False

    async def close(self) -> None:
        """Writes what is queued, moves the write-ahead log into the database, and gives the store up."""
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        try:
            self._writer.stop()
            self._reader.stop()
            with driver_errors(self.path):
                if self._is_owner:
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._connection.close()
            if self._lock is not None:
                self._lock.release()

    def owned_by_other(self) -> bool:
        """Whether a store other than this one owns the database now."""
        return not self._is_owner and self.path is not None and owner_of(self.path) is not None

    async def changed(self) -> bool:
        """Whether another process has written since this was last asked; true when it is asked first."""
        version = await self._writer.look(lambda on: int(on.execute("PRAGMA data_version").fetchone()[0]))
        changed, self._data_version = version != self._data_version, version
        return changed

    async def append(self, change: Append) -> None:
        """See `Store.append`. KeyReusedError where a key stands for another event."""
        self._require_owner()
        await self._writer.append(prepare(change))

    async def append_all(self, changes: Sequence[Append]) -> list[NoetlError | None]:
        """See `Store.append_all`."""
        self._require_owner()
        answers: list[NoetlError | None] = []
        for answer in await self._writer.append_all([prepare(change) for change in changes]):
            if answer is not None and not isinstance(answer, NoetlError):
                raise answer
            answers.append(answer)
        return answers

    async def claim(self, *, pool: str, worker_id: str, limit: int, lease_seconds: float) -> list[CommandRow]:
        self._require_owner()
        claimed = await self._writer.claim(
            pool=pool, worker_id=worker_id, limit=limit, lease_seconds=lease_seconds
        )
        return sorted(claimed, key=waiting_order)

    async def renew(self, worker_id: str, leases: Sequence[Fence], lease_seconds: float) -> tuple[str, ...]:
        self._require_owner()

        def renew(connection: sqlite3.Connection) -> tuple[str, ...]:
            until, kept = lease_end(time.time(), lease_seconds), set()
            for first in range(0, len(leases), MAX_ROWS):
                some = leases[first : first + MAX_ROWS]
                pairs = [value for lease in some for value in (lease.command_id, lease.epoch)]
                query = for_rows(_QUERIES["renew"], len(some))
                kept |= {row[0] for row in connection.execute(query, [until, worker_id, *pairs]).fetchall()}
            return tuple(lease.command_id for lease in leases if lease.command_id not in kept)

        return await self._writer.run(renew)

    async def expired(self, limit: int = 100) -> list[CommandRow]:
        return [command_of(row) for row in await self._rows("expired", time.time(), limit)]

    async def events(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        def read(connection: sqlite3.Connection) -> list[Event]:
            found = connection.execute(
                _QUERIES["events"], (execution_id, after, -1 if limit is None else limit)
            )
            return [decode_event(body) for (body,) in found]

        return await self._reader.read(read)

    async def iteration_results(self, execution_id: str, step_run_id: str) -> list[tuple[int, Any]]:
        def read(connection: sqlite3.Connection) -> list[tuple[int, Any]]:
            found = connection.execute(_QUERIES["iteration_results"], (execution_id, step_run_id))
            # An iteration that was run again counts by its last end.
            return [*{index: decode_iteration_result(body) for index, body in found}.items()]

        return await self._reader.read(read)

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None:
        found = await self._row("snapshot", execution_id)
        return None if found is None else (found[0], found[1])

    async def execution(self, execution_id: str) -> ExecutionRow | None:
        found = await self._row("execution", execution_id)
        return None if found is None else _execution(found)

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
        wanted = {
            "status": status, "path": path, "parent": parent, "since": since, "before": before, "limit": limit
        }  # fmt: skip
        query = list_query(_QUERIES, wanted, order, by_time=since is not None)
        found = await self._reader.read(lambda on: on.execute(query, wanted).fetchall())
        return [_execution(row) for row in found]

    async def start_key(self, key: str, execution_id: str, now: float) -> str:
        self._require_owner()

        def write(connection: sqlite3.Connection) -> str:
            connection.execute(_QUERIES["put_start_key"], (key, execution_id, now))
            return str(connection.execute(_QUERIES["start_key"], (key,)).fetchone()[0])

        return await self._writer.run(write)

    async def forget_before(self, moment: float) -> int:
        self._require_owner()

        def write(connection: sqlite3.Connection) -> int:
            ends = (timestamp(moment),)
            connection.execute(_QUERIES["forget_bodies"], ends)
            forgotten = connection.execute(_QUERIES["forget_executions"], ends).rowcount
            connection.execute(_QUERIES["forget_start_keys"], (moment,))
            return forgotten

        return await self._writer.run(write)

    async def commands(
        self,
        *,
        execution_id: str | None = None,
        pool: str | None = None,
        state: CommandState | None = None,
        limit: int = 100,
    ) -> list[CommandRow]:
        wanted = {"execution_id": execution_id, "pool": pool, "state": state, "limit": limit}
        found = await self._reader.read(lambda on: on.execute(_QUERIES["commands"], wanted).fetchall())
        return [command_of(row) for row in found]

    async def queue(self, *, execution_id: str | None = None) -> list[QueueCount]:
        wanted = {"execution_id": execution_id}
        found = await self._reader.read(lambda on: on.execute(_QUERIES["queue"], wanted).fetchall())
        return [QueueCount(pool=row[0], state=row[1], depth=row[2], oldest=row[3]) for row in found]

    async def command(self, execution_id: str, command_id: str) -> CommandRow | None:
        found = await self._row("command", execution_id, command_id)
        return None if found is None else command_of(found)

    async def open_children(self, execution_id: str) -> list[str]:
        return [row[0] for row in await self._rows("open_children", execution_id)]

    async def timers_due(self, now: float, limit: int = 100) -> list[TimerRow]:
        return [
            TimerRow(timer_id=row[0], execution_id=row[1], due=row[2], payload=decode_json(row[3]))
            for row in await self._rows("timers_due", now, limit)
        ]

    async def next_timer(self) -> float | None:
        found = await self._row("next_timer")
        return None if found is None else found[0]

    async def body(self, key: str) -> BodyRow | None:
        row = await self._row("body", key)
        if row is None:
            return None
        return BodyRow(key=row[0], execution_id=row[1], media_type=row[2], checksum=row[3], body=row[4])

    async def put_body(self, row: BodyRow) -> None:
        self._require_owner()
        await self._writer.run(lambda on: on.execute(_QUERIES["save_bodies"], body_values(row)))

    async def vars(self, execution_id: str) -> dict[str, Any]:
        return {name: decode_json(value) for name, value in await self._rows("vars", execution_id)}

    async def register(self, path: str, name: str, dialect: str, source: bytes, now: str) -> CatalogEntry:
        self._require_owner()
        digest = hashlib.sha256(source).hexdigest()

        def write(connection: sqlite3.Connection) -> CatalogEntry:
            found = connection.execute(_QUERIES["newest_catalog_entry"], (path,)).fetchone()
            newest = None if found is None else _catalog_entry(found)
            if newest is not None and newest.digest == digest:
                return newest
            version = 1 if newest is None else newest.version + 1
            row = (path, version, name, dialect, digest, now, source)
            connection.execute(_QUERIES["insert_catalog_entry"], row)
            return _catalog_entry(row)

        return await self._writer.run(write)

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        if version is None:
            found = await self._row("newest_catalog_entry", path)
        else:
            found = await self._row("catalog_entry", path, version)
        return None if found is None else _catalog_entry(found)

    async def catalog_by_digest(self, digest: str) -> CatalogEntry | None:
        found = await self._row("catalog_by_digest", digest)
        return None if found is None else _catalog_entry(found)

    async def catalog(self, *, path: str | None = None, limit: int = 100) -> list[CatalogEntry]:
        if path is None:
            found = await self._rows("catalog", limit)
        else:
            found = await self._rows("catalog_versions", path, limit)
        return [_catalog_entry(row) for row in found]

    async def put_inbox(self, row: InboxRow) -> None:
        """Open to every process, not to the owner alone."""
        values = (row.request_id, row.kind, row.execution_id, encode_json(row.payload))
        await self._writer.run(lambda on: on.execute(_QUERIES["put_inbox"], values))

    async def take_inbox(self) -> list[InboxRow]:
        self._require_owner()

        def take(connection: sqlite3.Connection) -> list[Row]:
            found = connection.execute(_QUERIES["inbox"]).fetchall()
            if found:
                connection.execute(_QUERIES["clear_inbox"])
            return found

        return [
            InboxRow(request_id=row[0], kind=row[1], execution_id=row[2], payload=decode_json(row[3]))
            for row in await self._writer.run(take)
        ]

    async def _rows(self, query: str, *values: object) -> list[Row]:
        return await self._reader.read(lambda on: on.execute(_QUERIES[query], values).fetchall())

    async def _row(self, query: str, *values: object) -> Row | None:
        found = await self._rows(query, *values)
        return found[0] if found else None

    def _require_owner(self) -> None:
        if not self._is_owner:
            raise StoreError(
                f"The database {self.path} was opened for reading. Only its owner writes: put a request into "
                "the inbox, or open it as the owner."
            )


def _execution(row: Row) -> ExecutionRow:
    return ExecutionRow(
        execution_id=row[0],
        status=row[1],
        name=row[2],
        path=row[3],
        version=row[4],
        dialect=row[5],
        requested_at=row[6],
        finished_at=row[7],
        parent_execution_id=row[8],
        error=None if row[9] is None else decode_json(row[9]),
        playbook_digest=row[10],
    )


def _catalog_entry(row: Row) -> CatalogEntry:
    return CatalogEntry(
        path=row[0],
        version=row[1],
        name=row[2],
        dialect=row[3],
        digest=row[4],
        registered_at=row[5],
        source=row[6],
    )
