"""Takes away what nobody needs any more: secrets of executions that are over, what has expired, old logs.

It runs beside the answers of a replica, on every one of them: what one has taken away the others do not find.
Nothing depends on it being prompt. It never ends an execution.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from noetl.errors import NoetlError
from noetl.ids import Clock, made_at
from noetl.records.event import Event
from noetl.registry.caller_secrets import CallerSecrets
from noetl.store.protocol import Store

SWEEP_SECONDS: Final = 600.0
ENDINGS_SECONDS: Final = 1.0
DAY: Final = 86_400.0
NEVER_BEGUN_SECONDS: Final = 3_600.0
"""How long secrets are kept for an execution that is not in the store: it may be just about to be."""
MOST_WAITING: Final = 10_000

_log = structlog.get_logger("noetl.server")

CleanUp = Callable[[], Awaitable[int]]


class Chore(NamedTuple):
    """Something that is done every now and then, and says how much there was to do."""

    name: str
    work: CleanUp


class BodyPlace(Protocol):
    """Somewhere outside the store where bodies of results lie, those of one deployment alone."""

    async def executions(self) -> list[str]:
        """Those that have bodies there."""
        ...

    async def forget(self, execution_ids: Collection[str]) -> None: ...


class Housekeeping:
    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        callers: CallerSecrets,
        chores: Sequence[Chore] = (),
        retention_days: float | None = None,
        places: Sequence[BodyPlace] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`retention_days`: how long executions are kept once they are over; None: for ever."""
        self._store = store
        self._clock = clock
        self._callers = callers
        self._retention_days = retention_days
        self._places = places
        self._sleep = sleep
        self._ended: list[str] = []
        self._chores = [*chores, Chore("secrets of executions that are over", self.forget_ended)]
        if retention_days is not None:
            self._chores.append(Chore("executions past their retention", self._forget_old))
            self._chores.append(Chore("results of executions that are forgotten", self.forget_bodies))

    def event(self, event: Event) -> None:
        """Hears of each event once it is committed."""
        if event.event_type == "playbook.processed" and len(self._ended) < MOST_WAITING:
            self._ended.append(event.execution_id)  # one that does not fit is found by the next sweep

    def jobs(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """What is to run as long as the replica does."""
        return self.run_endings, self.run_chores

    async def run_endings(self) -> None:
        """Forgets what was kept for executions soon after they end, until it is cancelled."""
        while True:
            await self._sleep(ENDINGS_SECONDS)
            await self.forget_heard_of()

    async def forget_heard_of(self) -> None:
        """In one go, however many executions have ended: most never had a secret."""
        ended, self._ended = self._ended, []
        if ended:
            await self._callers.forget(ended)

    async def run_chores(self) -> None:
        """Does everything that is to be done now and then, until it is cancelled."""
        while True:
            await self.sweep()
            await self._sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """What goes wrong with one of them keeps the others from nothing."""
        for chore in self._chores:
            try:
                done = await chore.work()
            except NoetlError as error:
                _log.warning("cleaning up failed", what=chore.name, code=error.code, error=error.message)
                continue
            if done:
                _log.info("cleaned up", what=chore.name, count=done)

    async def forget_ended(self) -> int:
        """Secrets whose execution ended while nobody heard of it, or never began."""
        ended, now = [], self._clock.now()
        for execution_id, since in await self._callers.executions():
            row = await self._store.execution(execution_id)
            if row.finished_at is not None if row else now - since > NEVER_BEGUN_SECONDS:
                ended.append(execution_id)
        if ended:
            await self._callers.forget(ended)
        return len(ended)

    async def forget_bodies(self) -> int:
        """Bodies outside the store whose execution is not in it, and began before the time of retention.

        The time stands in the id. It keeps off those that are about to begin, and a deployment with a longer
        time of retention that was given the same place by mistake loses nothing that it could not lose here.
        """
        assert self._retention_days is not None
        count, oldest = 0, self._clock.now() - self._retention_days * DAY
        for place in self._places:
            old = [each for each in await place.executions() if made_at(each) < oldest]
            gone = [each for each in old if await self._store.execution(each) is None]
            if gone:
                await place.forget(gone)
                count += len(gone)
        return count

    async def _forget_old(self) -> int:
        assert self._retention_days is not None
        return await self._store.forget_before(self._clock.now() - self._retention_days * DAY)
