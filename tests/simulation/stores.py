"""The store that all processes of a world share, and how one of them sees it: with faults.

An append may fail before its commit, lose its answer, take its time or arrive twice. A read may answer late,
or as of a few commits ago: a process sees all that it wrote and saw before, but hears of others with a lag.
That an execution exists is seen at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.control.live import Live
from noetl.control.plane import ControlPlane
from noetl.errors import NoetlError
from noetl.store.memory import MemoryStore, _Log
from noetl.store.protocol import Append, AppendConflict, BodyRow, LeaseFenced, StoreError
from tests.simulation.scripted import DELAYS

if TYPE_CHECKING:
    from tests.simulation.world import World

MOST_KEPT = 8
"""Moments that a lagging read may answer as of."""
SLOW_SECONDS = (0.3, 2.0, 7.0, 40.0)
"""What a slow commit takes; the last is longer than a lease."""
READS = frozenset(
    {
        "events",
        "snapshot",
        "iteration_results",
        "execution",
        "executions",
        "command",
        "commands",
        "expired",
        "timers_due",
        "next_timer",
        "open_children",
        "vars",
    }
)


class ProcessDiedError(StoreError):
    """The store is out of reach for this process: it is dead, it only has not noticed."""


class WatchedStore(MemoryStore):
    """What all processes share. Every commit is shown to the watcher the moment it is made."""

    def __init__(self, world: World, *, keeps_past: bool) -> None:
        super().__init__(world.clock)
        self._world = world
        self._past: deque[tuple[int, dict[str, _Log]]] = deque(maxlen=MOST_KEPT if keeps_past else 0)
        self.place = 0
        """How often it was written."""
        self.writer: Live | None = None
        """Whose append comes next."""
        self._claimed_at: dict[str, int] = {}

    def _write(self, log: Any, change: Append) -> None:
        taken_back = self._taken_back(log, change)
        super()._write(log, change)
        self._keep(change.execution_id)
        self._world.committed(change, self.writer)
        for _ in taken_back:
            self._world.lease_taken_back(change)

    def _taken_back(self, log: _Log, change: Append) -> list[str]:
        """What a resume frees though a living worker has it: it was claimed while that was decided."""
        if not any(event.event_type == "execution.resumed" for event in change.events):
            return []
        leased = [name for name in change.free_commands if log.commands[name].worker_id is not None]
        return [name for name in leased if self._claimed_at.get(name, -1) >= self._world.living_since]

    async def claim(self, **asked: Any) -> Any:
        taken = await super().claim(**asked)
        for row in taken:
            self._claimed_at[row.command_id] = self.place
            self._keep(row.execution_id)
        return taken

    async def renew(self, *asked: Any) -> Any:
        lost = await super().renew(*asked)
        for execution_id in list(self._logs) if self._past.maxlen else ():
            self._keep(execution_id)
        return lost

    def _keep(self, execution_id: str) -> None:
        self.place += 1
        if self._past.maxlen:
            log = copied(self._logs[execution_id])
            for _, logs in self._past:
                logs.setdefault(execution_id, log)
            before = self._past[-1][1] if self._past else {}
            self._past.append((self.place, {**before, execution_id: log}))

    def places(self, since: int) -> list[int]:
        """The moments that can be read as of, from one on."""
        return [place for place, _ in self._past if place >= since]

    def as_of(self, place: int) -> MemoryStore:
        found = MemoryStore(self._world.clock)
        found._logs = next(logs for kept, logs in self._past if kept == place)
        found._bodies, found._catalog = self._bodies, self._catalog
        return found


def copied(log: _Log) -> _Log:
    """As it is now: nothing that is written later is in it."""
    return _Log(
        row=log.row,
        events=log.events.copy(),
        keys=log.keys.copy(),
        iterations={run_id: ended.copy() for run_id, ended in log.iterations.items()},
        commands=log.commands.copy(),
        timers=log.timers.copy(),
        vars=log.vars.copy(),
        snapshot=log.snapshot,
    )


class Cut(NamedTuple):
    """What was in a store right after a commit, and when that was."""

    elapsed: float
    logs: dict[str, _Log]
    bodies: dict[str, BodyRow]


def cut_now(store: WatchedStore, elapsed: float) -> Cut:
    logs = {name: copied(log) for name, log in store._logs.items()}
    return Cut(elapsed, logs, dict(store._bodies))


class FailingStore:
    """The store as one process sees it; some calls fail on order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._committing: Live | None = None
        self._seen = 0
        """The last moment that this process has written or read."""
        self.is_dead = False

    def watch(self, control: ControlPlane) -> None:
        """Knows from now on which execution in memory an append comes from."""
        watched: Any = control
        commit = watched._commit

        async def committing(live: Live, *decided: Any) -> None:
            self._committing = live
            await commit(live, *decided)

        watched._commit = committing

    def __getattr__(self, name: str) -> Any:
        if self.is_dead:
            raise ProcessDiedError("this process is dead")
        if name in READS:
            return partial(self._read, name)
        self.catch_up()
        return getattr(self._world.store, name)

    def catch_up(self) -> None:
        """Whatever is not read with a lag is as of now, and so is all that follows."""
        self._seen = self._world.store.place

    def die(self) -> None:
        self.is_dead = True

    async def append(self, change: Append) -> None:
        world, live = self._world, self._committing
        await asyncio.sleep(world.chance.choice(DELAYS[:4]))
        self._require_alive()
        trouble = world.trouble_at_commit()
        if trouble is not None and trouble.endswith("before commit"):
            world.fail_append(trouble, self)
        if trouble == "slow commit":
            await self._take_time(trouble)
        world.store.writer = live
        try:
            await world.store.append(change)
        except NoetlError as refused:
            world.tally[f"append refused: {refused.code}"] += 1
            raise
        finally:
            self.catch_up()
        self._require_alive()
        if trouble is not None and trouble.endswith("after commit"):
            world.fail_append(trouble, self)
        if trouble == "slow answer to a commit":
            await self._take_time(trouble)
        if trouble == "duplicate commit":
            world.spawn(self._arrive_again(change))

    async def _take_time(self, trouble: str) -> None:
        self._world.tally[f"trouble: {trouble}"] += 1
        await asyncio.sleep(self._world.chance.choice(SLOW_SECONDS))
        self._require_alive()

    async def _arrive_again(self, change: Append) -> None:
        """The same append once more, as by a client that does not know of its answer: now or later."""
        world = self._world
        await asyncio.sleep(world.chance.choice(DELAYS))
        world.tally["trouble: duplicate commit"] += 1
        world.store.writer = None
        with contextlib.suppress(AppendConflict, LeaseFenced):
            await world.store.append(change)

    async def _read(self, name: str, *asked: Any, **named: Any) -> Any:
        """Answers at once, or late, or as of a moment that this process has not passed yet."""
        world = self._world
        self._require_alive()
        if not world.lagging_reads:
            self.catch_up()
            return await getattr(world.store, name)(*asked, **named)
        world.lagging_reads -= 1
        places = world.store.places(self._seen)
        if world.chance.randint(0, 4) == 0 or len(places) < 2:
            self.catch_up()
            answer = await getattr(world.store, name)(*asked, **named)
            if world.chance.randint(0, 3) == 0:
                world.tally["trouble: late answer to a read"] += 1
                await asyncio.sleep(world.chance.choice(DELAYS))
                self._require_alive()
            return answer
        self._seen = world.chance.choice(places[:-1])
        world.tally["trouble: stale read"] += 1
        return await getattr(world.store.as_of(self._seen), name)(*asked, **named)

    async def put_body(self, row: Any) -> None:
        self._require_alive()
        await self._world.store.put_body(row)

    def _require_alive(self) -> None:
        if self.is_dead:
            raise ProcessDiedError("this process is dead")
