"""One execution in memory: its plan, its state, and the changes that wait to be decided.

Changes are decided one batch at a time. Whatever arrives while a batch is being written waits and goes
into the next one, so a busy execution needs fewer commits, not longer queues. Where other processes write
the same log, a batch that was overtaken is decided again on what they wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from noetl.engine.bodies import Bodies, BodiesNeeded, is_ref
from noetl.engine.fold import fold
from noetl.engine.loops import LOG_STORE
from noetl.engine.parking import next_due
from noetl.engine.plan import Plan
from noetl.engine.state import Data, State
from noetl.engine.turn import Turn
from noetl.records.event import Event
from noetl.records.protocols import LeaseLostError
from noetl.records.report import AnyCommand
from noetl.secrets.redaction import KeychainInUse, Redactor, SecretTooShortError
from noetl.store.protocol import AppendConflict, CatalogEntry, CommandRow, Fence, LeaseFenced

Act = Callable[[Turn], Any]

MOST_CONFLICTS: Final = 20
"""How often a batch is decided again before whoever asked is told that the store is too busy."""
CONTESTED_TURNS: Final = 50
"""After a turn was overtaken, so many more are likely to be: others work on this execution too. Before that a
turn which is overtaken costs a replay, and all the others nothing."""

MOST_BYTES_AT_HAND: Final = 4 << 20
"""Of stored results, as JSON, that an execution has in memory between two turns."""

UNKNOWN: Final = math.nan
"""Of a moment: it equals no other."""


class Taker(NamedTuple):
    """A worker that would take along what its report leads to."""

    worker_id: str
    pool: str
    slots: int


class Answer(NamedTuple):
    """What an act gave, once it is committed, and the commands its taker has been given."""

    given: Any
    commands: tuple[AnyCommand, ...] = ()
    lease_is_over: bool = False
    """Of what was asked under a lease: by this change, or by one that was written together with it."""


class Asked:
    """A change that waits to be decided, and who waits for it."""

    __slots__ = ("act", "answer", "commands", "ended_timers", "fence", "fresh", "lease_is_over", "taker")

    def __init__(
        self,
        act: Act,
        answer: asyncio.Future[Answer],
        fence: Fence | None,
        taker: Taker | None,
        fresh: bool,
        ended_timers: tuple[str, ...],
    ) -> None:
        self.act = act
        self.answer = answer
        self.fence = fence
        self.taker = taker
        self.fresh = fresh
        self.ended_timers = ended_timers
        self.commands: list[AnyCommand] = []
        self.lease_is_over = False

    def refuse(self, error: BaseException) -> None:
        """Raises `error` where the answer is waited for; if nobody does any more, it is nobody's."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()

    @property
    def must_be_written(self) -> bool:
        return self.fence is not None or bool(self.ended_timers)


class LogReader(NamedTuple):
    """How a log is read, and stored bodies are."""

    replay: Callable[[str], Awaitable[State]]
    events: Callable[[str, int], Awaitable[list[Event]]]
    load_body: Callable[[Live, Data], Awaitable[Any]]
    command: Callable[[str, str], Awaitable[CommandRow | None]]


class Stopwatch(NamedTuple):
    """By what decisions are measured, and who hears of it."""

    seconds: Callable[[], float]
    decided: Callable[[float], None]


class ActFailedError(Exception):
    """One of the changes of a batch could not be decided."""

    def __init__(self, asked: Asked, error: Exception) -> None:
        super().__init__(str(error))
        self.asked = asked
        self.error = error


class Live:
    """`commit` writes a turn to the store; it is the control plane's."""

    def __init__(
        self,
        plan: Plan,
        state: State,
        entry: CatalogEntry,
        *,
        now: Callable[[], str],
        commit: Callable[[Live, Turn, int, Sequence[Asked]], Awaitable[None]],
        reader: LogReader,
        keychain: Mapping[str, Any] | None,
        parent_execution_id: str | None = None,
        shared: bool = False,
        distributed: bool = False,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """`shared`: other processes write this log too."""
        self.plan = plan
        self.state = state
        self.entry = entry
        self.redactor = Redactor()
        self.keychain: Mapping[str, Any] | None = None
        """None: not resolved here yet."""
        if keychain is not None:
            self.use_keychain(keychain)
        self.parent_execution_id = parent_execution_id
        self.bodies = Bodies(MOST_BYTES_AT_HAND)
        self.over = asyncio.Event()
        self.held: dict[str, int] = {}
        """The leases that were given out in this process, by command: their epoch."""
        self.taken: dict[int, str] = {}
        """Signals a running task has in hand, by place: its command. Its end takes them from the mailbox."""
        self.due: float | None = None
        """When the next thing is due, as it stands in the store; UNKNOWN where others may have written."""
        self._signalled: list[asyncio.Future[None]] = []
        self._now = now
        self._commit = commit
        self._reader = reader
        self._shared = shared
        self._distributed = distributed
        self._stopwatch = stopwatch
        self._asked: deque[Asked] = deque()
        self._drainer: asyncio.Task[None] | None = None
        self._contested = 0
        """For how many turns the state before is kept, in case that they are overtaken."""
        self._is_unsure = False
        """A change was decided that may not have been written: the log has to be read again."""

    def use_keychain(self, keychain: Mapping[str, Any]) -> None:
        """What templates read as `keychain` from now on, and what is kept out of the log."""
        self.keychain = KeychainInUse(keychain, self.redactor)
        # A secret that is too short to be kept out is refused by the worker, before its first task.
        with contextlib.suppress(SecretTooShortError):
            self.redactor.register_keychain(keychain)

    async def change(
        self,
        act: Act,
        *,
        fence: Fence | None = None,
        taker: Taker | None = None,
        fresh: bool = False,
        ended_timers: tuple[str, ...] = (),
    ) -> Answer:
        """Decides and writes one change; answers once it is committed.

        `fence`: the lease under which it is asked; LeaseLostError once that is over. `taker`: who is given
        new work along with the answer. `fresh`: the log is looked at first. `ended_timers`: rows of the store
        that have done their part.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked.append(Asked(act, answer, fence, taker, fresh, ended_timers))
        if self._drainer is None:
            self._drainer = asyncio.create_task(self._drain())
        return await answer

    async def look(self, read: Act, *, last_seq: int | None = None) -> Any:  # noqa: ANN401 - whatever is read
        """Reads the state as it is in the log; while a turn is being written there is more in it.

        `last_seq`: how far the log is known to go.
        """
        is_fresh = not self._shared or (last_seq is not None and self.state.seq >= last_seq)
        if not is_fresh or self._drainer is not None or self._is_unsure:
            return (await self.change(read, fresh=True)).given
        return read(self._turn_on_state())

    async def freshen(self) -> None:
        """Takes in what other processes have written."""
        if self._shared:
            await self.change(lambda turn: None, fresh=True)

    def next_due(self) -> float | None:
        """When the next thing is due by itself."""
        return next_due(self.state)

    @property
    def is_idle(self) -> bool:
        """Nothing is being decided, and nobody in this process works on it or waits for it."""
        return self._drainer is None and not self.held and not self._signalled

    # --- signals ------------------------------------------------------------------------------------------

    async def next_signal(self, name: str, command_id: str, wait_seconds: float) -> tuple[int, Any] | None:
        """The oldest signal of that name that nobody has, and its place in the log; waits a while for one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        while True:
            comes: asyncio.Future[None] = loop.create_future()
            self._signalled.append(comes)
            try:
                found: tuple[int, Any] | None = await self.look(
                    lambda turn: self._take_signal(turn, name, command_id)
                )
                left = until - loop.time()
                if found is not None or left <= 0:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await comes
            finally:
                if comes in self._signalled:
                    self._signalled.remove(comes)

    def _take_signal(self, turn: Turn, name: str, command_id: str) -> tuple[int, Any] | None:
        for place, found in turn.state.mailbox.items():
            if found["name"] == name and self.taken.get(place, command_id) == command_id:
                self.taken[place] = command_id
                return place, found["data"]
        return None

    def let_go_of_signals(self, command_id: str) -> None:
        """A lease is over: what it had in hand and did not use is anybody's."""
        for place in [place for place, taker in self.taken.items() if taker == command_id]:
            del self.taken[place]

    def wake_waiters(self) -> None:
        """Lets those who wait for a signal look again."""
        waiting, self._signalled = self._signalled, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    # --- deciding -----------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Waits until nothing is being decided or written."""
        while self._drainer is not None:
            await asyncio.wait({self._drainer})

    async def _drain(self) -> None:
        try:
            while self._asked:
                await self._decide(self._next_batch())
        finally:
            self._drainer = None

    def _next_batch(self) -> list[Asked]:
        """All that waits; what comes under two leases of one command is not decided together."""
        batch: list[Asked] = []
        epochs: dict[str, int] = {}
        while self._asked:
            fence = self._asked[0].fence
            if fence is not None and epochs.setdefault(fence.command_id, fence.epoch) != fence.epoch:
                break
            batch.append(self._asked.popleft())
        return batch

    async def _decide(self, batch: list[Asked]) -> None:
        try:
            if self._is_unsure:
                await self._read_again()
            elif self._shared and any(asked.fresh for asked in batch):
                await self._take_in_others()
            batch, given = await self._write(batch)
        # Nobody may wait for ever: whoever asked hears of whatever went wrong, and raises it there.
        except BaseException as error:
            for asked in batch:
                asked.refuse(error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        if self.state.is_over:
            self.over.set()
            self.bodies.forget()
        self.bodies.trim()
        for asked, answer in zip(batch, given, strict=True):
            if not asked.answer.done():
                asked.answer.set_result(Answer(answer, tuple(asked.commands), asked.lease_is_over))

    async def _write(self, batch: list[Asked]) -> tuple[list[Asked], list[Any]]:
        """Decides a batch and writes it; those whose lease is over are answered and left out."""
        for _ in range(MOST_CONFLICTS):
            before = msgspec.msgpack.encode(self.state) if self._contested else None
            version = self.state.seq
            try:
                turn, given = await self._turn(batch)
            except ActFailedError as failed:
                batch = [asked for asked in batch if asked is not failed.asked]
                await self._answer_failed(failed)
                continue
            # A report that says nothing new is written too where it has a lease: that must still hold.
            if not (turn.facts or turn.commands or any(asked.must_be_written for asked in batch)):
                return batch, given
            self._is_unsure = True
            try:
                await self._commit(self, turn, version, batch)
            except AppendConflict:
                if not self._shared:
                    raise
                self.bodies.forget()  # some may be of what was decided and not written
                self._contested = CONTESTED_TURNS
                if before is None:
                    await self._read_again()
                else:
                    self.state = msgspec.msgpack.decode(before, type=State)
                    await self._take_in_others()
            except LeaseFenced as fenced:
                batch = self._refused(batch, fenced.command_ids)
                self.bodies.forget()
                await self._read_again()
            else:
                self._is_unsure = False
                self._contested = max(0, self._contested - 1)
                return batch, given
            self._is_unsure = False
        raise AppendConflict(f"the log of execution {self.state.execution_id} is too busy; try again")

    async def _take_in_others(self) -> None:
        for event in await self._reader.events(self.state.execution_id, self.state.seq):
            fold(self.state, event)
            self.due = UNKNOWN

    async def _read_again(self) -> None:
        self.state = await self._reader.replay(self.state.execution_id)
        self._is_unsure = False
        if self._shared:
            self.due = UNKNOWN

    async def _answer_failed(self, failed: ActFailedError) -> None:
        """A late report may make no sense any more; the others of its batch are not to suffer from it."""
        fence, error = failed.asked.fence, failed.error
        if fence is not None:
            row = await self._reader.command(self.state.execution_id, fence.command_id)
            if row is None or row.worker_id is None or row.epoch != fence.epoch:
                error = LeaseLostError("the lease is over")
        failed.asked.refuse(error)

    def _refused(self, batch: list[Asked], command_ids: tuple[str, ...]) -> list[Asked]:
        left = []
        for asked in batch:
            if asked.fence is None or asked.fence.command_id not in command_ids:
                left.append(asked)
            else:
                asked.refuse(LeaseLostError("the lease is over"))
        return left

    def _turn_on_state(self) -> Turn:
        return Turn(
            self.plan,
            self.state,
            self._now(),
            self.bodies,
            keychain=self.keychain,
            mask=self.redactor.data if self.redactor.knows_secrets else None,
            distributed=self._distributed,
        )

    async def _turn(self, batch: list[Asked]) -> tuple[Turn, list[Any]]:
        """The batch decided in one turn; again from the start when a stored body had to be loaded first."""
        while True:
            turn = self._turn_on_state()
            try:
                return turn, self._decided(turn, batch)
            except BodiesNeeded as needed:
                await self._read_again()
                for ref in needed.refs:
                    body = await self._reader.load_body(self, ref)
                    if ref["store"] == LOG_STORE:
                        await self._add_unwritten(body, turn, ref["key"])
                    self.bodies.keep(ref, body)
            # Half a turn has not happened: whatever went wrong, the state is again that of the log.
            except BaseException:
                await self._read_again()
                raise

    async def _add_unwritten(self, results: list[Any], turn: Turn, run_id: str) -> None:
        """Adds what a loop's iterations gave in a turn that is not in the log yet, and is about to be."""
        for fact in turn.facts:
            is_end = fact.event_type == "loop.iteration.done" and "block" not in fact.payload
            if is_end and fact.step_run_id == run_id and fact.iteration is not None:
                result = fact.payload.get("result")
                if isinstance(result, dict) and is_ref(result):
                    result = await self._loaded(result)
                results[fact.iteration] = result

    async def _loaded(self, ref: Data) -> Any:  # noqa: ANN401 - plain data
        try:
            return self.bodies.get(ref)
        except BodiesNeeded:
            return await self._reader.load_body(self, ref)

    def _decided(self, turn: Turn, batch: list[Asked]) -> list[Any]:
        """What each of them gives. Only a turn that is decided to its end is measured."""
        if self._stopwatch is None:
            return [_given(asked, turn) for asked in batch]
        began = self._stopwatch.seconds()
        given = [_given(asked, turn) for asked in batch]
        self._stopwatch.decided(self._stopwatch.seconds() - began)
        return given


def _given(asked: Asked, turn: Turn) -> Any:  # noqa: ANN401 - whatever the act gives
    try:
        return asked.act(turn)
    except BodiesNeeded:
        raise
    # Whoever asked hears of it, nobody else.
    except Exception as error:
        raise ActFailedError(asked, error) from error
