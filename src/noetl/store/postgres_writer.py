"""Continuous group commit for PostgreSQL: what is asked for while an append is written goes into the next.

Changes to different executions go in one call and one transaction, and are answered each for itself; a second
change to an execution waits for the call after. There is no timer. If a call fails as a whole, its changes
are written one by one, so that only what is wrong itself fails. After a lost connection nobody can know what
was committed: all in that call are told, and asking again is safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from noetl.errors import NoetlError
from noetl.store.idempotency import KeyReusedError, says_the_same
from noetl.store.postgres_changes import Batch, PreparedChange
from noetl.store.postgres_connections import Connection, connect, is_alive, limited
from noetl.store.postgres_errors import is_lost, is_to_be_repeated, store_error
from noetl.store.postgres_text import unescaped
from noetl.store.protocol import STATEMENT_SECONDS, AppendConflict, LeaseFenced, StoreError
from noetl.store.queries import queries

MOST_CHANGES: Final = 256
ATTEMPTS: Final = 5
"""How often a call is made again that lost to another one: deadlocks are not to be expected, but possible."""

_APPEND: Final = queries("postgres")["append_all"]


class _Request:
    def __init__(self, prepared: PreparedChange) -> None:
        self.prepared = prepared
        self.answer: asyncio.Future[NoetlError | None] = asyncio.get_running_loop().create_future()

    def resolve(self, answer: NoetlError | None) -> None:
        if not self.answer.done():  # whoever asked may have been cancelled meanwhile
            self.answer.set_result(answer)


class Writer:
    """Has a connection of its own, which is opened again whenever it was lost."""

    def __init__(self, url: str, seconds: float = STATEMENT_SECONDS) -> None:
        """`seconds`: how long one call may take."""
        self._url = url
        self._seconds = seconds
        self._connection: Connection | None = None
        self._waiting: deque[_Request] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._closed = False

    async def append_all(self, changes: Sequence[PreparedChange]) -> list[NoetlError | None]:
        """For each what went wrong, or None."""
        if self._closed:
            raise StoreError("The store is closed. Open it again to go on.")
        requests = [_Request(prepared) for prepared in changes]
        self._waiting.extend(requests)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="noetl-postgres-writer")
        return [await request.answer for request in requests]

    async def close(self) -> None:
        """Returns when all that was asked for has been written."""
        self._closed = True
        if self._writing is not None:
            await self._writing
        if self._connection is not None:
            await self._connection.close()

    async def _write_all(self) -> None:
        """Ends when nothing is left: a store that is idle has no task."""
        batch: list[_Request] = []
        try:
            while self._waiting:
                batch = self._next_batch()
                for request, answer in zip(batch, await self._write(batch), strict=True):
                    request.resolve(answer)
        finally:
            self._writing = None
            # Only if this task was cancelled, with its event loop: nobody may wait for ever.
            for request in (*batch, *self._waiting):
                request.resolve(StoreError("The store was given up while it was writing."))
            self._waiting.clear()

    def _next_batch(self) -> list[_Request]:
        """In the order they came; at most one of each execution."""
        taken: dict[int, _Request] = {}
        left: deque[_Request] = deque()
        while self._waiting and len(taken) < MOST_CHANGES:
            request = self._waiting.popleft()
            if request.prepared.number in taken:
                left.append(request)
            else:
                taken[request.prepared.number] = request
        left.extend(self._waiting)
        self._waiting = left
        return list(taken.values())

    async def _write(self, requests: list[_Request]) -> list[NoetlError | None]:
        answers: list[NoetlError | None] = []
        changes = [request.prepared for request in requests]
        while changes:
            batch, count = Batch(), 0
            while count < len(changes) and not batch.is_large:
                batch.add(changes[count])
                count += 1
            answers += await self._write_together(batch, changes[:count])
            changes = changes[count:]
        return answers

    async def _write_together(self, batch: Batch, changes: list[PreparedChange]) -> list[NoetlError | None]:
        try:
            return _judge_all(changes, await self._call(batch, check_keys=False))
        except psycopg.Error as error:
            if is_lost(error):
                return [store_error(error, self._url) for _ in changes]
            if len(changes) == 1 and not isinstance(error, psycopg.errors.UniqueViolation):
                return [store_error(error, self._url)]
        except StoreError as error:
            return [StoreError(error.message) for _ in changes]
        return [await self._write_alone(prepared) for prepared in changes]

    async def _write_alone(self, prepared: PreparedChange) -> NoetlError | None:
        batch = Batch()
        batch.add(prepared)
        try:
            return _judge_all([prepared], await self._call(batch, check_keys=True))[0]
        except psycopg.Error as error:
            return store_error(error, self._url)
        except StoreError as error:
            return error

    async def _call(self, batch: Batch, *, check_keys: bool) -> list[dict[str, Any]]:
        parameters = batch.parameters(check_keys=check_keys)
        for attempt in range(1, ATTEMPTS + 1):
            connection = await self._living()
            try:
                with limited(connection, self._seconds):
                    cursor = await connection.execute(_APPEND, parameters, binary=True)
                    return await cursor.fetchall()
            except psycopg.Error as error:
                if not is_to_be_repeated(error) or attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _living(self) -> Connection:
        if self._connection is not None and is_alive(self._connection):
            return self._connection
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        self._connection = await connect(self._url, self._seconds)
        return self._connection


def _judge_all(changes: list[PreparedChange], rows: list[dict[str, Any]]) -> list[NoetlError | None]:
    """What each change is told, from what the database says about those it did not write."""
    if not rows:
        return [None] * len(changes)
    by_execution: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_execution.setdefault(row["execution_id"], []).append(row)
    return [_judge(prepared, by_execution.get(prepared.number, [])) for prepared in changes]


def _judge(prepared: PreparedChange, rows: list[dict[str, Any]]) -> NoetlError | None:
    change = prepared.change
    known = {unescaped(row["name"]): row["body"] for row in rows if row["verdict"] == "known"}
    keyed = {
        key: event for key, event in zip(change.idem_keys, change.events, strict=False) if key is not None
    }
    for key, body in known.items():
        if not says_the_same(body, keyed[key]):
            return KeyReusedError(
                f"The key `{key}` of execution {change.execution_id} stands for another event.", key
            )
    if known and len(known) == len(keyed):
        return None
    for row in rows:
        if row["verdict"] == "conflict":
            return AppendConflict(
                f"The log of execution {change.execution_id} is at {row['head'] or 0}; the change was "
                f"decided at {change.version}."
            )
    fenced = {unescaped(row["name"]) for row in rows if row["verdict"] == "fenced"}
    if fenced:
        return LeaseFenced(tuple(sorted(fenced)))
    if known:
        return KeyReusedError(
            f"Execution {change.execution_id} has a part of this change already; append the rest alone.",
            next(iter(keyed)),
        )
    return None
