"""Cancellation at every commit: `python -m tests.simulation.cancels`.

A drawn playbook is played once, undisturbed. Then it is played again for each commit of it, the same up to
there, and cancelled right after. By the time that is answered the execution is over: cancelled, or ended
otherwise before it could be. Soon nothing of it runs, waits or is in the queue, nor of its children.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

from noetl.records.protocols import NotWrittenError
from noetl.store.protocol import AppendConflict, StoreError
from tests.simulation.cluster import BEAT_SECONDS
from tests.simulation.invariants import Violation, require
from tests.simulation.many import arguments, play_chosen
from tests.simulation.play import judged, played, tell_of, world_of
from tests.simulation.scenarios import Scenario
from tests.simulation.world import EXECUTION, World, loaded

PLAYER = "tests.simulation.cancels:cancel_at_every_commit"
GRACE_SECONDS = BEAT_SECONDS + 1.0
"""So long a worker elsewhere may not know that its lease is over: it hears of it with its next beat."""
CHILDREN_SECONDS = 0.5
"""So long after it its children may be ended: nothing has to be waited for."""


def cancel_at_every_commit(seed: int, folder: Path, tally: Counter[str], *, tell: bool = False) -> str | None:
    """Plays the playbook of a seed, and cancels it after each of its commits; what is wrong, or None."""
    return judged(seed, cancelled, folder, tally, tell=tell)


def cancelled(drawn: Scenario, folder: Path, tally: Counter[str], *, tell: bool = False) -> None:
    scenario = drawn._replace(troubles=(), again=None)
    playbook = loaded(scenario.playbook)
    whole = world_of(scenario, playbook, folder, undisturbed=True)
    commits = 0

    def count() -> None:
        nonlocal commits
        commits += 1

    whole.on_commit = count
    played(whole)
    tally.update(whole.tally)
    tally["playbooks"] += 1
    tally["executions"] += 1
    for number in range(1, commits + 1):
        world = world_of(scenario, playbook, folder, undisturbed=True)
        canceller = Canceller(world, number)
        try:
            state = played(world)
            require(state.status == "cancelled" or canceller.was_over, "cancel.ends", state.status)
        except Violation as violation:
            raise Violation(violation.invariant, f"after commit {number}: {violation}") from violation
        finally:
            tally["executions"] += 1
            tally["cancellations"] += 1
            if tell and sys.exc_info()[0] is not None:
                tell_of(world)
        tally[f"then it was {state.status}"] += 1
        tally["calls begun after the end, elsewhere"] += len(world.late_calls)


class Canceller:
    """Cancels the execution of a world right after one of its commits, and looks what is left of it."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number
        self._commits = 0
        self._events: int | None = None
        """In the log once the cancellation was answered."""
        self.was_over = False
        """It ended otherwise, before or while that was asked for."""
        world.on_commit = self._committed
        world.on_end = self._look

    def _committed(self) -> None:
        self._commits += 1
        if self._commits == self._number:
            self._world.spawn(self._cancel())

    async def _cancel(self) -> None:
        world = self._world
        while True:
            control = world.control()
            try:
                if control is not None:
                    await control.cancel(EXECUTION, "by the simulation")
                    break
            except (StoreError, NotWrittenError, AppendConflict):
                world.tally["cancellations asked for again"] += 1
            await asyncio.sleep(0.5)
        log = world.store._logs[EXECUTION]
        self._events = len(log.events)
        self.was_over = log.row.status in ("completed", "failed")
        with world.noting_violations():
            require(log.row.finished_at is not None, "cancel.ends", "it goes on though that was answered")

    def _look(self) -> None:
        world = self._world
        logs = world.store._logs
        require(self._events == len(logs[EXECUTION].events), "nothing.after.the.end", "after a cancellation")
        going_on = [name for name, log in logs.items() if log.row.finished_at is None]
        require(not going_on, "cancel.ends", f"children go on: {going_on}")
        ended = world.ended_at
        later = {name: round(at - ended[EXECUTION], 3) for name, at in ended.items() if name != EXECUTION}
        late_ends = {name: seconds for name, seconds in later.items() if seconds > CHILDREN_SECONDS}
        require(not late_ends, "cancel.ends", f"children went on for some seconds: {late_ends}")
        rows = [(*log.commands, *log.timers) for log in logs.values()]
        require(not any(rows), "cancel.ends", f"left in the queue: {rows}")
        flights = [watcher.in_flight for watcher in world.watchers.values()]
        require(not any(flights), "cancel.ends", f"calls in flight: {flights}")
        require(not world.held(), "cancel.ends", f"workers work on {world.held()}")
        most = GRACE_SECONDS if world.scenario.distributed else 0.0
        late = max(world.late_calls, default=0.0)
        require(late <= most, "cancel.ends", f"a call was begun {late:g} s after the end")


if __name__ == "__main__":
    sys.exit(
        play_chosen(PLAYER, arguments("python -m tests.simulation.cancels", __doc__, 1_000).parse_args())
    )
