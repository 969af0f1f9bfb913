"""A world in which executions run: a store that can fail, tools that do as told, processes that die.

Time is a fake clock and every choice comes from the scenario's seed, so a run can be repeated exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from noetl.embedded import Embedded
from noetl.engine import decide
from noetl.engine.state import State
from noetl.playbook.load import Loaded, load
from noetl.records.outcome import Outcome, OutcomeError, OutcomeMeta
from noetl.records.report import LeaseReport, Verdict
from noetl.store.memory import MemoryStore
from noetl.store.protocol import Append, StoreError
from noetl.testing import FakeClock, FakeTimeLoop
from noetl.tools.registry import builtin_kinds, runnable
from tests.simulation.invariants import Violation, Watcher
from tests.simulation.scenarios import Scenario, Trouble

EXECUTION = "1"
DELAYS = (0.0, 0.0, 0.001, 0.05, 0.3, 2.0, 7.0)
"""Seconds a tool takes; some longer than a start is held back."""
GOES_ON_AFTER = 5.0
"""Seconds of a pause."""


def loaded(playbook: dict[str, Any]) -> Loaded:
    """JSON is YAML, and quicker to write."""
    return load(json.dumps(playbook).encode(), builtin_kinds())


class ProcessDiedError(StoreError):
    """The store is out of reach for this process: it is dead, it only has not noticed."""


class ShuffledLoop(FakeTimeLoop):
    """Runs what is ready in an order of its own."""

    def __init__(self, clock: FakeClock, chance: random.Random) -> None:
        super().__init__(clock, 0.0)
        self._chance = chance

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            self._chance.shuffle(ready)
        super()._run_once()  # type: ignore[misc]


class FailingStore:
    """The store as one process sees it. Every commit is shown to the watcher; some fail on order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        if self._dead:
            raise ProcessDiedError("this process is dead")
        return getattr(self._world.store, name)

    def die(self) -> None:
        self._dead = True

    async def append(self, change: Append) -> None:
        world = self._world
        await asyncio.sleep(world.chance.choice(DELAYS[:4]))
        if self._dead:
            raise ProcessDiedError("this process is dead")
        trouble = world.trouble_at_commit()
        if trouble == "crash before commit":
            self._crash(trouble)
        await world.store.append(change)
        world.committed(change)
        if trouble == "crash after commit":
            self._crash(trouble)

    async def put_body(self, row: Any) -> None:
        if self._dead:
            raise ProcessDiedError("this process is dead")
        await self._world.store.put_body(row)

    def _crash(self, trouble: str) -> None:
        self._dead = True
        self._world.crash(trouble)
        raise ProcessDiedError(trouble)


class World:
    """One scenario being played."""

    def __init__(
        self, scenario: Scenario, playbook: Loaded, folder: Path, *, undisturbed: bool = False
    ) -> None:
        self.scenario = scenario
        self.loaded = playbook
        self.chance = random.Random(scenario.seed + undisturbed)
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.tally: Counter[str] = Counter()
        self.watcher = Watcher(self.tally, self.chance)
        self._folder = folder
        self._troubles: list[Trouble] = [] if undisturbed else list(scenario.troubles)
        self._commits = 0
        self.violation: Exception | None = None
        self._engine: Embedded | None = None
        self._view: FailingStore | None = None
        self._died: asyncio.Future[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        self._reports: list[tuple[LeaseReport, str]] = []

    def play(self) -> State:
        with asyncio.Runner(loop_factory=lambda: ShuffledLoop(self.clock, self.chance)) as runner:
            return runner.run(self._play())

    async def _play(self) -> State:
        state = None
        while state is None:
            state = await self._process()
            if self.violation is not None:
                raise self.violation
        self.watcher.ended(state)
        return state

    async def _process(self) -> State | None:
        """One process from its start to the end of the execution, or to its death."""
        self._died = asyncio.get_running_loop().create_future()
        self._view = FailingStore(self)
        view: Any = self._view
        engine = Embedded(view, self._folder, clock=self.clock, tool=self._tool)
        engine._worker._random = self.chance  # jitter
        self._engine = engine
        self._intercept_reports(engine)
        running = asyncio.ensure_future(self._run_engine(engine))
        either: set[asyncio.Future[Any]] = {running, self._died}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() or self._died.done():
            running.cancel()
            for task in self._others:
                task.cancel()
            await asyncio.gather(running, *self._others, return_exceptions=True)
            self._others.clear()
            self.watcher.process_died()
            return None
        return await running

    async def _run_engine(self, engine: Embedded) -> State:
        async with engine:
            if await self.store.execution(EXECUTION) is None:
                await engine.start(self.loaded, self.scenario.payload, execution_id=EXECUTION)
            else:
                await engine.resume(EXECUTION)
            state = await engine.finished(EXECUTION)
            for task in list(self._others):
                task.cancel()
            await asyncio.gather(*self._others, return_exceptions=True)
            self._others.clear()
            return state

    def _tool(self, kind: str) -> Any:
        return runnable("noop") if kind == "noop" else ScriptedTask(self)

    # --- what happens at commits ----------------------------------------------------------------------------

    def trouble_at_commit(self) -> str | None:
        """Counts a commit; what is to go wrong with it, or None. Other troubles begin now."""
        self._commits += 1
        due = [trouble for trouble in self._troubles if trouble.at <= self._commits]
        found = None
        for trouble in due:
            self._troubles.remove(trouble)
            if trouble.kind in ("crash before commit", "crash after commit"):
                if found is not None:
                    self._troubles.append(trouble)
                    continue
                found = trouble.kind
            else:
                self._spawn(self._cause(trouble.kind))
        return found

    def committed(self, change: Append) -> None:
        assert self._engine is not None
        live = self._engine.control._live.get(EXECUTION)
        with self.noting_violations():
            self.watcher.committed(change, None if live is None else live.state, self.loaded)

    @contextlib.contextmanager
    def noting_violations(self) -> Iterator[None]:
        """The engine turns exceptions into failures; a violation must not drown in one."""
        try:
            yield
        except (Violation, LookupError, TypeError) as problem:
            self.violation = self.violation or problem
            self.crash("violation")
            raise

    def crash(self, how: str) -> None:
        self.tally[f"trouble: {how}"] += 1
        if self._view is not None:
            self._view.die()
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _cause(self, kind: str) -> None:
        # A process that dies meanwhile takes along whoever talks to it.
        with contextlib.suppress(StoreError):
            await self._meddle(kind)

    async def _meddle(self, kind: str) -> None:
        await asyncio.sleep(self.chance.choice(DELAYS))
        assert self._engine is not None
        control = self._engine.control
        live = control._live.get(EXECUTION)
        if live is None or live.state.is_over:
            return
        match kind:
            case "crash in between":
                self.crash(kind)
                return
            case "pause":
                await control.pause(EXECUTION)
                await asyncio.sleep(self.chance.choice([0.0, GOES_ON_AFTER]))
                await control.resume(EXECUTION)
            case "cancel":
                await control.cancel(EXECUTION, "by the simulation")
            case "signal":
                await control.signal(EXECUTION, "unasked", {"n": 1})
            case "lost lease" | "lost leases":
                leased = list(self._engine._worker._leases)
                if not leased:
                    return
                run_id = self.chance.choice(leased)
                if self.chance.randint(0, 1):
                    self.tally["zombies"] += 1  # the worker is not dead, it only was not heard of
                else:
                    self._engine._worker._leases[run_id].cancel()
                for _ in range(1 if kind == "lost lease" else decide.MOST_LOSSES):
                    self.watcher.lease_lost()
                    await live.change(lambda turn: decide.lose(turn, run_id))
            case "repeated report" | "late report":
                if not self._reports:
                    return
                report, run_id = self._reports[-1] if kind == "repeated report" else self._reports[0]
                before = len(await self.store.events(EXECUTION))
                verdict = await control.report(report, run_id)
                with self.noting_violations():
                    self.watcher.report_came_again(report, verdict, before)
        self.tally[f"trouble: {kind}"] += 1

    def _intercept_reports(self, engine: Embedded) -> None:
        original = engine.control.report
        self._reports.clear()

        async def report(told: LeaseReport, run_id: str) -> Verdict:
            verdict = await original(told, run_id)
            self._reports.append((msgspec.convert(msgspec.to_builtins(told), LeaseReport), run_id))
            return verdict

        control: Any = engine.control
        control.report = report

    def send_signal_soon(self, name: str) -> None:
        async def send() -> None:
            await asyncio.sleep(self.chance.choice(DELAYS))
            assert self._engine is not None
            live = self._engine.control._live.get(EXECUTION)
            if live is not None and not live.state.is_over:
                with contextlib.suppress(StoreError):
                    await self._engine.control.signal(EXECUTION, name, {"sent": True})

        self._spawn(send())
