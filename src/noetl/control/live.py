"""One execution in memory: its plan, its state, and the changes that wait to be decided.

Changes are decided one batch at a time. Whatever arrives while a batch is being written waits and goes
into the next one, so a busy execution needs fewer commits, not longer queues.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from noetl.engine.bodies import Bodies, BodiesNeeded
from noetl.engine.facts import Fact
from noetl.engine.plan import Plan
from noetl.engine.state import Data, State
from noetl.engine.turn import Turn
from noetl.records.event import Event
from noetl.secrets.redaction import Redactor, SecretTooShortError
from noetl.store.protocol import CatalogEntry

Act = Callable[[Turn], Any]


HEARD: Final = frozenset({"signal.received", "timer.fired", "step.done", "step.failed", "loop.done"})
"""What a step that waits for events can hear of."""


class Heard(NamedTuple):
    """An event that was committed, and its place in the log."""

    place: int
    fact: Fact | Event


class Asked(NamedTuple):
    act: Act
    answer: asyncio.Future[Any]


class Live:
    """`commit` writes a turn to the store; it is the control plane's."""

    def __init__(
        self,
        plan: Plan,
        state: State,
        entry: CatalogEntry,
        *,
        now: Callable[[], str],
        commit: Callable[[Live, Turn, int], Awaitable[None]],
        load_body: Callable[[Live, Data], Awaitable[Any]],
        keychain: Mapping[str, Any],
        parent_execution_id: str | None = None,
    ) -> None:
        self.plan = plan
        self.state = state
        self.entry = entry
        self.redactor = Redactor()
        self.use_keychain(keychain)
        self.parent_execution_id = parent_execution_id
        self.bodies = Bodies()
        self.over = asyncio.Event()
        self.epochs: dict[str, int] = {}
        """The lease of each step run: a report with another number is refused."""
        self.taken: set[int] = set()
        """Signals a running task has in hand; they leave the mailbox when that task is done."""
        self._signalled: list[asyncio.Future[None]] = []
        self._listening: list[asyncio.Queue[Heard]] = []
        self._now = now
        self._commit = commit
        self._load_body = load_body
        self._asked: deque[Asked] = deque()
        self._drainer: asyncio.Task[None] | None = None

    def use_keychain(self, keychain: Mapping[str, Any]) -> None:
        """What templates read as `keychain` from now on, and what is kept out of the log."""
        self.keychain = keychain
        # A secret that is too short to be kept out is refused by the worker, before its first task.
        with contextlib.suppress(SecretTooShortError):
            self.redactor.register_keychain(keychain)

    async def change(self, act: Act) -> Any:  # noqa: ANN401 - whatever the act gives
        """Decides and writes one change; what `act` gives is the answer once it is committed."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append(Asked(act, answer))
        if self._drainer is None:
            self._drainer = asyncio.create_task(self._drain())
        return await answer

    async def next_signal(self, name: str) -> tuple[int, Any]:
        """The oldest signal of that name that nobody has, and its place in the log; waits for one."""
        while True:
            for place, found in self.state.mailbox.items():
                if found["name"] == name and place not in self.taken:
                    self.taken.add(place)
                    return place, found["data"]
            waiter = asyncio.get_running_loop().create_future()
            self._signalled.append(waiter)
            await waiter

    def listen(self) -> asyncio.Queue[Heard]:
        """A queue that gets every event from now on that a step can wait for."""
        heard: asyncio.Queue[Heard] = asyncio.Queue()
        self._listening.append(heard)
        return heard

    def stop_listening(self, heard: asyncio.Queue[Heard]) -> None:
        if heard in self._listening:
            self._listening.remove(heard)

    def tell(self, facts: list[Fact], version: int) -> None:
        """Passes on what was committed to those who listen."""
        if not self._listening:
            return
        for number, fact in enumerate(facts, start=1):
            if fact.event_type in HEARD:
                for heard in self._listening:
                    heard.put_nowait(Heard(version + number, fact))

    def wake_waiters(self) -> None:
        """Lets those who wait for a signal look again."""
        waiting, self._signalled = self._signalled, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def settle(self) -> None:
        """Waits until nothing is being decided or written."""
        while self._drainer is not None:
            await asyncio.wait({self._drainer})

    async def _drain(self) -> None:
        try:
            while self._asked:
                batch = list(self._asked)
                self._asked.clear()
                await self._decide(batch)
        finally:
            self._drainer = None

    async def _decide(self, batch: list[Asked]) -> None:
        try:
            turn, answers = await self._turn(batch)
            version = self.state.seq - len(turn.facts)
            if turn.facts:
                await self._commit(self, turn, version)
        # Nobody may wait for ever: whoever asked hears of whatever went wrong, and raises it there.
        except BaseException as error:
            for asked in batch:
                if not asked.answer.done():
                    asked.answer.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        if self.state.is_over:
            self.over.set()
        for asked, answer in zip(batch, answers, strict=True):
            if not asked.answer.done():
                asked.answer.set_result(answer)

    async def _turn(self, batch: list[Asked]) -> tuple[Turn, list[Any]]:
        """The batch decided in one turn; again from the start when a stored body had to be loaded first."""
        while True:
            before = msgspec.msgpack.encode(self.state)
            mask = self.redactor.data if self.redactor.knows_secrets else None
            turn = Turn(self.plan, self.state, self._now(), self.bodies, keychain=self.keychain, mask=mask)
            try:
                return turn, [asked.act(turn) for asked in batch]
            except BodiesNeeded as needed:
                self.state = msgspec.msgpack.decode(before, type=State)
                for ref in needed.refs:
                    self.bodies.keep(ref["ref"], await self._load_body(self, ref))
            # Half a turn has not happened: whatever went wrong, the state is again that of the log.
            except BaseException:
                self.state = msgspec.msgpack.decode(before, type=State)
                raise
