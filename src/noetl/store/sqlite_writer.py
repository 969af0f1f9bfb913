"""The one place that writes a SQLite database, and its continuous group commit.

Whatever has been asked for when the last commit returns goes into the next transaction together; there is no
timer. A quick disk is written by the event loop itself: handing a commit to a thread and back takes longer
than the commit. From a disk that is slow again and again the loop is spared by a thread.
First the whole batch is written at once. If anything in it fails, the transaction is rolled back and the
batch is written again piece by piece, each in a savepoint, so that only what is wrong itself fails. Nobody
is told of success before the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from noetl.store.idempotency import KeyReusedError, says_the_same
from noetl.store.leases import holds, lease_end
from noetl.store.protocol import Append, AppendConflict, CommandRow, ExecutionRow, LeaseFenced, StoreError
from noetl.store.queries import queries
from noetl.store.sqlite_changes import ChangeSet, PreparedChange, command_of, write_rows
from noetl.store.sqlite_connection import driver_errors, store_error

Result = TypeVar("Result")
Job: TypeAlias = Callable[[sqlite3.Connection], Any]

SLOW_SECONDS: Final = 0.01
SLOW_IN_A_ROW: Final = 5
"""After so many commits that took so long, a thread writes from then on."""
KNOWN_HEADS: Final = 10_000
"""Of how many executions the writer remembers how far their log goes."""

_QUERIES: Final = queries("sqlite")


class _Request:
    """Something to be written (or, `outside` a transaction, looked at), and who waits for it."""

    def __init__(self, work: PreparedChange | Job, *, outside: bool = False) -> None:
        self.work = work
        self.outside = outside
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None


class _Head:
    """How far a log goes, and the projection as it was last written; None where the writer cannot know.

    `leases` has the epochs of rows that are leased now, as far as the writer knows: others may be leased too.
    """

    __slots__ = ("leases", "row", "seq")

    def __init__(self, seq: int, row: ExecutionRow | None) -> None:
        self.seq = seq
        self.row = row
        self.leases: dict[str, int] = {}


class Writer:
    """Owns the writing connection: nobody else may use it until `stop` has returned."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self._connection = connection
        self._path = path
        self._queue: SimpleQueue[Sequence[_Request] | None] = SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._heads: dict[str, _Head] = {}
        self._pending = ChangeSet()
        self._asked: list[_Request] = []
        self._slow = 0
        self._thread: threading.Thread | None = None

    async def append(self, prepared: PreparedChange) -> None:
        await self._put(_Request(prepared))

    async def append_all(self, changes: Sequence[PreparedChange]) -> list[BaseException | None]:
        """In one transaction; the answer has for each what went wrong."""
        requests = [_Request(prepared) for prepared in changes]
        self._queue_all(requests)
        answers: list[BaseException | None] = await asyncio.gather(
            *(each.future for each in requests), return_exceptions=True
        )
        return answers

    async def claim(self, *, pool: str, worker_id: str, limit: int, lease_seconds: float) -> list[CommandRow]:
        def claim(connection: sqlite3.Connection) -> list[CommandRow]:
            now = time.time()
            until = lease_end(now, lease_seconds)
            wanted = {"pool": pool, "worker_id": worker_id, "limit": limit, "now": now, "until": until}
            found = [command_of(row) for row in connection.execute(_QUERIES["claim"], wanted).fetchall()]
            for row in found:
                if (head := self._heads.get(row.execution_id)) is not None:
                    head.leases[row.command_id] = row.epoch
            return found

        return await self.run(claim)

    async def run(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        """Runs a job inside the next transaction; it may run twice, if something beside it fails."""
        result: Result = await self._put(_Request(job))
        return result

    async def look(self, job: Callable[[sqlite3.Connection], Result]) -> Result:
        """Runs a job between two transactions."""
        result: Result = await self._put(_Request(job, outside=True))
        return result

    def stop(self) -> None:
        """Returns when all that was asked for has been written."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        elif self._asked:
            asked, self._asked = self._asked, []
            self._handle(asked)
            _answer(asked)

    async def _put(self, request: _Request) -> Any:  # noqa: ANN401 - what the job gives
        self._queue_all((request,))
        return await request.future

    def _queue_all(self, requests: Sequence[_Request]) -> None:
        """Those that are asked for in one pass of the event loop are written together."""
        with self._closing:
            if self._closed:
                raise StoreError("The store is closed. Open it again to go on.")
            if self._thread is not None:
                self._queue.put(requests)
                return
            if requests and not self._asked:
                requests[0].loop.call_soon(self._serve_loop)
            self._asked.extend(requests)

    def _serve_loop(self) -> None:
        asked, self._asked = self._asked, []
        if not asked:  # the store was closed in between, which has written them
            return
        began = time.perf_counter()
        self._handle(asked)
        self._slow = self._slow + 1 if time.perf_counter() - began > SLOW_SECONDS else 0
        _resolve(asked)
        if self._slow >= SLOW_IN_A_ROW:
            # A daemon: a program that forgets to close its store must still be able to end. All that was
            # acknowledged is on the disk.
            self._thread = threading.Thread(target=self._serve, name="noetl-sqlite-writer", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        stopping = False
        while not stopping:
            batch: list[_Request] = []
            waiting = self._queue.get()
            with contextlib.suppress(Empty):
                while waiting is not None:
                    batch.extend(waiting)
                    waiting = self._queue.get_nowait()
                stopping = True
            self._handle(batch)
            _answer(batch)

    def _handle(self, batch: list[_Request]) -> None:
        for request in batch:
            if request.outside:
                self._guarded(request)
        written = [request for request in batch if not request.outside]
        if not written:
            return
        if len(self._heads) > KNOWN_HEADS:
            self._heads.clear()
        try:
            with driver_errors(self._path):
                self._write(written)
        except StoreError as error:
            self._roll_back()
            for request in written:
                request.error = StoreError(error.message)

    def _write(self, batch: list[_Request]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        if not self._write_together(batch):
            self._roll_back()
            self._connection.execute("BEGIN IMMEDIATE")
            self._write_one_by_one(batch)
        self._connection.execute("COMMIT")

    def _write_together(self, batch: list[_Request]) -> bool:
        """Whether all went well; changes that are refused by their version alone count as well."""
        try:
            for request in batch:
                if isinstance(request.work, PreparedChange):
                    request.error = self._admit(request.work)
                else:
                    self._flush()
                    request.result = request.work(self._connection)
            self._flush()
        except Exception:  # noqa: BLE001 - whatever it was, writing one by one finds whose it is and tells them
            return False
        return True

    def _write_one_by_one(self, batch: list[_Request]) -> None:
        for request in batch:
            request.result, request.error = None, None
            self._connection.execute("SAVEPOINT request")
            self._guarded(request)
            if request.error is not None:
                if not self._connection.in_transaction:
                    # The database gave up the whole transaction, and with it those before.
                    raise StoreError(str(request.error))
                self._heads.clear()
                self._pending = ChangeSet()
                self._connection.execute("ROLLBACK TO request")
            self._connection.execute("RELEASE request")

    def _guarded(self, request: _Request) -> None:
        """Does what a request asks; what goes wrong becomes its error."""
        work = request.work
        try:
            if not isinstance(work, PreparedChange):
                request.result = work(self._connection)
            else:
                request.error = self._admit(work, ask_for_keys=True)
                self._flush()
        except sqlite3.Error as error:
            request.error = store_error(error, self._path)
        except UnicodeEncodeError as error:
            request.error = StoreError(f"A name cannot be stored: it holds half a character ({error}).")
        except Exception as error:  # noqa: BLE001 - a bug in one job reaches its caller; the thread goes on
            request.error = error

    def _admit(
        self, prepared: PreparedChange, *, ask_for_keys: bool = False
    ) -> AppendConflict | KeyReusedError | LeaseFenced | None:
        """Takes a change into the set that is written next, or says why not; a repetition needs no writing.

        At the right version a known key is rare: the first attempt leaves it to the table to refuse it.
        """
        change = prepared.change
        head = self._head(change.execution_id)
        in_time = change.version == head.seq
        fenced = self._leases_over(head, change) if in_time and change.fences else ()
        if not in_time or fenced:
            self._flush()  # what it repeats may be waiting to be written
        if not in_time or fenced or ask_for_keys:
            try:
                if self._is_repetition(prepared, in_part=not in_time or bool(fenced)):
                    return None
            except KeyReusedError as refused:
                return refused
        if not in_time:
            return AppendConflict(
                f"The log of execution {change.execution_id} is at {head.seq}; the change was decided at "
                f"{change.version}."
            )
        if fenced:
            return LeaseFenced(fenced)
        same_projection = head.row is not None and head.row == change.execution
        self._pending.add(prepared, same_projection=same_projection, now=time.time())
        head.seq, head.row = prepared.last_seq, change.execution
        _note_leases(head.leases, change)
        if change.free_commands or change.hold_commands or change.hold_unleased_commands:
            self._free_and_hold(change)
        return None

    def _leases_over(self, head: _Head, change: Append) -> tuple[str, ...]:
        """The fences of a change that do not hold. What the writer remembers need not be looked up."""
        over = []
        for fence in change.fences:
            if not fence.expired and head.leases.get(fence.command_id) == fence.epoch:
                continue
            self._flush()
            row = self._connection.execute(
                _QUERIES["command"], (change.execution_id, fence.command_id)
            ).fetchone()
            if not holds(fence, row and command_of(row), time.time()):
                over.append(fence.command_id)
            else:
                head.leases[fence.command_id] = fence.epoch
        return tuple(over)

    def _free_and_hold(self, change: Append) -> None:
        """After all that the set has: these change rows that it may have to write first."""
        self._flush()
        execution_id = change.execution_id
        for query, ids in (("free_commands", change.free_commands), ("hold_commands", change.hold_commands)):
            write_rows(self._connection, _QUERIES[query], [(execution_id, each) for each in ids])
        if change.hold_unleased_commands:
            self._connection.execute(_QUERIES["hold_unleased_commands"], (execution_id,))

    def _head(self, execution_id: str) -> _Head:
        """Remembered, because no other process may append; forgotten whenever something is rolled back."""
        head = self._heads.get(execution_id)
        if head is None:
            found = self._connection.execute(_QUERIES["head"], (execution_id,)).fetchone()
            head = self._heads[execution_id] = _Head(found[0] if found else 0, None)
        return head

    def _is_repetition(self, prepared: PreparedChange, *, in_part: bool = False) -> bool:
        """Whether everything in the change that has a key is in the log, and says the same.

        A change of which only a part is there is refused, unless its version refuses it anyway (`in_part`).
        """
        known, execution_id = 0, prepared.change.execution_id
        first = prepared.change.version + 1
        for _, key, seq in prepared.keys:
            found = self._connection.execute(_QUERIES["event_with_key"], (execution_id, key)).fetchone()
            if found is None:
                continue
            if not says_the_same(found[0], prepared.change.events[seq - first]):
                raise KeyReusedError(
                    f"The key `{key}` of execution {execution_id} stands for another event.", key
                )
            known += 1
        if known and known < len(prepared.keys) and not in_part:
            raise KeyReusedError(
                f"Execution {execution_id} has a part of this change already; append the rest alone.",
                str(prepared.keys[0][1]),
            )
        return known > 0 and known == len(prepared.keys)

    def _flush(self) -> None:
        pending, self._pending = self._pending, ChangeSet()
        pending.write(self._connection)

    def _roll_back(self) -> None:
        self._heads.clear()
        self._pending = ChangeSet()
        # A database that gave up the transaction by itself, or is beyond repair, has nothing to roll back.
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _note_leases(leases: dict[str, int], change: Append) -> None:
    if change.remove_all_commands:
        leases.clear()
    for command_id in change.remove_commands:
        leases.pop(command_id, None)
    for row in change.add_commands:
        if row.worker_id is not None:
            leases[row.command_id] = max(row.epoch, 1)
        else:
            leases.pop(row.command_id, None)
    for command_id in (*change.free_commands, *change.hold_commands):
        leases.pop(command_id, None)


def _answer(batch: list[_Request]) -> None:
    """Wakes each event loop once for all its requests."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Request]] = {}
    for request in batch:
        by_loop.setdefault(request.loop, []).append(request)
    for loop, requests in by_loop.items():
        # A loop that has been closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, requests)


def _resolve(requests: list[_Request]) -> None:
    for request in requests:
        if request.future.done():  # whoever asked was cancelled meanwhile
            continue
        if request.error is not None:
            request.future.set_exception(request.error)
            request.future.exception()  # whoever asked may be cancelled before it hears of it
        else:
            request.future.set_result(request.result)
