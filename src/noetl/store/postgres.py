"""The store on PostgreSQL: one database, any number of servers that share it.

`open_postgres` gives it. Every process may write: what keeps them apart is the version each append was
decided on, which the database checks. Writing is the work of `postgres_writer`; here are the questions, and
what they answer. A request to another process needs no inbox: whoever reaches the database can append.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg

from noetl.errors import NoetlError
from noetl.records.event import Event
from noetl.store.codec import decode_event, decode_iteration_result, decode_json
from noetl.store.leases import LONGEST_LEASE, waiting_order
from noetl.store.listing import list_query
from noetl.store.postgres_changes import Fields, prepare
from noetl.store.postgres_connections import (
    LONG_STATEMENT_SECONDS,
    Connection,
    Connections,
    Pool,
    connect,
    limited,
)
from noetl.store.postgres_errors import store_error
from noetl.store.postgres_housekeeping import Housekeeping
from noetl.store.postgres_schema import require_schema
from noetl.store.postgres_text import escaped, number_of, number_or_none, unescaped
from noetl.store.postgres_writer import Writer
from noetl.store.protocol import (
    STATEMENT_SECONDS,
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
from noetl.store.queries import queries

_QUERIES: Final = queries("postgres")


def open_postgres(url: str, *, statement_seconds: float = STATEMENT_SECONDS) -> PostgresStore:
    """The store at `postgresql://…`; StoreError where it cannot be reached, or lacks this schema."""
    require_schema(url)
    return PostgresStore(url, statement_seconds)


class PostgresStore:
    """A store; see `noetl.store.protocol.Store`. It belongs to the event loop that first uses it."""

    def __init__(self, url: str, statement_seconds: float = STATEMENT_SECONDS) -> None:
        """`statement_seconds`: how long the database may take over a statement before it is given up."""
        self._url = url
        self._writer = Writer(url, statement_seconds)
        self._connections = Connections(url, seconds=statement_seconds)
        self._housekeeping = Housekeeping(self._connections)

    async def close(self) -> None:
        """Writes what was asked for, and gives the connections up."""
        await self._writer.close()
        await self._housekeeping.close()
        await self._connections.close()

    async def pool(self) -> Pool:
        """The connections, for what else lies in the same database."""
        return await self._connections.pool()

    # --- writing -----------------------------------------------------------------------------------------

    async def append(self, change: Append) -> None:
        """See `Store.append`. KeyReusedError where a key stands for another event."""
        (answer,) = await self.append_all([change])
        if answer is not None:
            raise answer

    async def append_all(self, changes: Sequence[Append]) -> list[NoetlError | None]:
        answers = await self._writer.append_all([prepare(change) for change in changes])
        self._housekeeping.note(sum(len(change.remove_commands) for change in changes))
        return answers

    async def put_body(self, row: BodyRow) -> None:
        await self._rows(
            "put_body",
            key=row.key,
            execution_id=number_of(row.execution_id),
            media_type=row.media_type,
            checksum=row.checksum,
            body=row.body,
        )

    async def register(self, path: str, name: str, dialect: str, source: bytes, now: str) -> CatalogEntry:
        digest = hashlib.sha256(source).hexdigest()
        (found,) = await self._rows(
            "register", path=path, name=name, dialect=dialect, digest=digest, registered_at=now, source=source
        )
        return CatalogEntry(**found)

    async def forget_before(self, moment: float) -> int:
        """Removes executions that ended before a moment (seconds since 1970), and says how many they were.

        The log goes by whole weeks, so what ended in the week of that moment stays until it is over.
        """
        # There may be much to remove, so it has a connection and a time of its own.
        connection = await connect(self._url, LONG_STATEMENT_SECONDS)
        async with connection:
            with limited(connection, LONG_STATEMENT_SECONDS):
                (found,) = await self._fetched(connection, _QUERIES["forget_before"], {"moment": moment})
                await self._fetched(connection, _QUERIES["forget_start_keys"], {"moment": moment})
        return int(found["forgotten"])

    async def start_key(self, key: str, execution_id: str, now: float) -> str:
        (found,) = await self._rows("start_key", key=key, execution_id=number_of(execution_id), now=now)
        return str(found["execution_id"])

    # --- the queue ---------------------------------------------------------------------------------------

    async def claim(self, *, pool: str, worker_id: str, limit: int, lease_seconds: float) -> list[CommandRow]:
        found = await self._rows(
            "claim",
            pool=pool,
            worker_id=worker_id,
            limit=limit,
            seconds=min(lease_seconds, LONGEST_LEASE),
        )
        return sorted(map(_command, found), key=waiting_order)

    async def renew(self, worker_id: str, leases: Sequence[Fence], lease_seconds: float) -> tuple[str, ...]:
        if not leases:
            return ()
        found = await self._rows(
            "renew",
            worker_id=worker_id,
            command_ids=[lease.command_id for lease in leases],
            epochs=[lease.epoch for lease in leases],
            seconds=min(lease_seconds, LONGEST_LEASE),
        )
        lost = {row["command_id"] for row in found}
        return tuple(lease.command_id for lease in leases if lease.command_id in lost)

    async def expired(self, limit: int = 100) -> list[CommandRow]:
        return [_command(row) for row in await self._rows("expired", limit=limit)]

    async def command(self, execution_id: str, command_id: str) -> CommandRow | None:
        found = await self._row("command", execution_id=number_or_none(execution_id), command_id=command_id)
        return None if found is None else _command(found)

    async def commands(
        self,
        *,
        execution_id: str | None = None,
        pool: str | None = None,
        state: CommandState | None = None,
        limit: int = 100,
    ) -> list[CommandRow]:
        found = await self._rows(
            "commands" if execution_id is None else "commands_of",
            execution_id=number_or_none(execution_id),
            pool=pool,
            state=state,
            limit=limit,
        )
        return [_command(row) for row in found]

    async def queue(self, *, execution_id: str | None = None) -> list[QueueCount]:
        query = "queue" if execution_id is None else "queue_of"
        found = await self._rows(query, execution_id=number_or_none(execution_id))
        return [QueueCount(**row) for row in found]

    async def timers_due(self, now: float, limit: int = 100) -> list[TimerRow]:
        return [
            TimerRow(
                timer_id=row["timer_id"],
                execution_id=str(row["execution_id"]),
                due=row["due"],
                payload=decode_json(row["payload"]),
            )
            for row in await self._rows("timers_due", now=now, limit=limit)
        ]

    async def next_timer(self) -> float | None:
        found = await self._row("next_timer")
        return None if found is None else found["due"]

    # --- executions --------------------------------------------------------------------------------------

    async def events(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        found = await self._rows(
            "events", execution_id=number_or_none(execution_id), after=after, limit=limit
        )
        return [decode_event(row["body"]) for row in found]

    async def iteration_results(self, execution_id: str, step_run_id: str) -> list[tuple[int, Any]]:
        found = await self._rows(
            "iteration_results", execution_id=number_or_none(execution_id), step_run_id=step_run_id
        )
        # An iteration that was run again counts by its last end.
        last = {row["loop_index"]: row["body"] for row in found}
        return [(index, decode_iteration_result(body)) for index, body in last.items()]

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None:
        found = await self._row("snapshot", execution_id=number_or_none(execution_id))
        return None if found is None else (found["seq"], found["state"])

    async def execution(self, execution_id: str) -> ExecutionRow | None:
        found = await self._row("execution", execution_id=number_or_none(execution_id))
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
        wanted: dict[str, object] = {
            "status": status, "path": path, "parent": parent, "since": since, "before": before
        }  # fmt: skip
        query = list_query(_QUERIES, wanted, order, by_time=since is not None)
        numbers = {"parent": number_or_none(parent), "before": number_or_none(before), "limit": limit}
        return [_execution(row) for row in await self._found(query, wanted | numbers)]

    async def open_children(self, execution_id: str) -> list[str]:
        found = await self._rows("open_children", execution_id=number_or_none(execution_id))
        return [str(row["execution_id"]) for row in found]

    async def vars(self, execution_id: str) -> dict[str, Any]:
        found = await self._rows("vars", execution_id=number_or_none(execution_id))
        return {row["name"]: decode_json(row["value"]) for row in found}

    async def body(self, key: str) -> BodyRow | None:
        found = await self._row("body", key=key)
        if found is None:
            return None
        return BodyRow(**(found | {"execution_id": str(found["execution_id"])}))

    # --- catalog -----------------------------------------------------------------------------------------

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        if version is None:
            found = await self._row("newest_catalog_entry", path=path)
        else:
            found = await self._row("catalog_entry", path=path, version=version)
        return None if found is None else CatalogEntry(**found)

    async def catalog_by_digest(self, digest: str) -> CatalogEntry | None:
        found = await self._row("catalog_by_digest", digest=digest)
        return None if found is None else CatalogEntry(**found)

    async def catalog(self, *, path: str | None = None, limit: int = 100) -> list[CatalogEntry]:
        if path is None:
            found = await self._rows("catalog", limit=limit)
        else:
            found = await self._rows("catalog_versions", path=path, limit=limit)
        return [CatalogEntry(**row) for row in found]

    # --- what only a store with one owner needs ----------------------------------------------------------

    async def changed(self) -> bool:
        """Nothing is ever asked for through an inbox."""
        return False

    async def put_inbox(self, row: InboxRow) -> None:
        raise StoreError(
            f"This store has no inbox for `{row.kind}`: ask a server, or append the change yourself."
        )

    async def take_inbox(self) -> list[InboxRow]:
        return []

    # --- asking ------------------------------------------------------------------------------------------

    async def _row(self, query: str, **values: object) -> Fields | None:
        found = await self._rows(query, **values)
        return found[0] if found else None

    async def _rows(self, query: str, **values: object) -> list[Fields]:
        return await self._found(_QUERIES[query], values)

    async def _found(self, query: str, values: Mapping[str, object]) -> list[Fields]:
        async with self._connections.one() as connection:
            found = await self._fetched(connection, query, values)
        return [{name: unescaped(value) for name, value in row.items()} for row in found]

    async def _fetched(
        self, connection: Connection, query: str, values: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        try:
            cursor = await connection.execute(query, escaped(values), binary=True)
            return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise store_error(error, self._url) from error


def _command(row: Fields) -> CommandRow:
    return CommandRow(**(row | {"execution_id": str(row["execution_id"])}))


def _execution(row: Fields) -> ExecutionRow:
    parent, error = row["parent_execution_id"], row["error"]
    return ExecutionRow(
        **(
            row
            | {
                "execution_id": str(row["execution_id"]),
                "parent_execution_id": None if parent is None else str(parent),
                "error": None if error is None else decode_json(error),
            }
        )
    )
