"""A world in which executions run: a store that can fail, tools that do as told, processes that die.

Time is a fake clock and every choice comes from the scenario's seed, so a run can be repeated exactly.
Here is what every world has, and the one with a single process, as `noetl run` is.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from noetl.control import live
from noetl.control.live import Live
from noetl.control.plane import ControlPlane
from noetl.embedded import Embedded
from noetl.engine import bodies, decide, entering
from noetl.engine.leases import run_and_lease
from noetl.engine.state import State
from noetl.errors import NoetlError
from noetl.playbook.load import Loaded, load
from noetl.playbook.model import Playbook
from noetl.records.command import HeldLease
from noetl.records.report import LeaseReport, Report, ReportReply
from noetl.secrets.keychain import Resolver
from noetl.store.codec import decode_event
from noetl.store.protocol import Append, CatalogEntry, ExecutionRow, Fence, StoreError
from noetl.testing import FakeClock, FakeTimeLoop
from noetl.tools.registry import builtin_kinds, runnable
from tests.simulation.invariants import Violation, Watcher, require
from tests.simulation.scenarios import Scenario, Trouble
from tests.simulation.scripted import DELAYS, RealWait, ScriptedTask
from tests.simulation.standing import left_standing
from tests.simulation.stores import Cut, FailingStore, ProcessDiedError, WatchedStore, copied

EXECUTION = "1"
REPEATED = "2"
"""The execution that repeats the first one from a step."""
GOES_ON_AFTER = 5.0
"""Seconds of a pause."""
LAGGING = (10, 40, 160)
"""How many reads a lag lasts."""
MOST_RUNS_IN_A_TURN = 300
"""What is taken for running away here; the engine waits for far more, which would only take longer."""
AT_HAND_BYTES = 100
"""Nearly nothing: what is stored has to be loaded again and again."""
MOST_ROUNDS = 200_000
"""Of the event loop in one play; most need a few thousand."""
LINGERING = 60.0
"""Seconds that a world goes on after the end, where somebody looks at it then."""
SECRETS = {"TOKEN": "s3cr3t-of-the-simulation"}


def loaded(playbook: dict[str, Any]) -> Loaded:
    """JSON is YAML, and quicker to write."""
    return load(json.dumps(playbook).encode(), builtin_kinds())


class RunawayError(RuntimeError):
    """It goes on and on without coming to an end."""


class ShuffledLoop(FakeTimeLoop):
    """Runs what is ready in an order of its own."""

    def __init__(self, clock: FakeClock, chance: random.Random) -> None:
        super().__init__(clock, 0.0)
        self._chance = chance
        self._rounds = 0

    def _run_once(self) -> None:
        self._rounds += 1
        if self._rounds > MOST_ROUNDS:
            raise RunawayError
        ready = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            self._chance.shuffle(ready)
        super()._run_once()  # type: ignore[misc]


class World(ABC):
    """One scenario being played."""

    def __init__(
        self, scenario: Scenario, playbook: Loaded, folder: Path, *, undisturbed: bool = False
    ) -> None:
        self.scenario = scenario
        self.loaded = playbook
        self.chance = random.Random(scenario.seed + undisturbed)
        self.clock = FakeClock()
        self.tally: Counter[str] = Counter()
        self.watchers: dict[str, Watcher] = {}
        self._troubles: list[Trouble] = [] if undisturbed else list(scenario.troubles)
        keeps_past = any(trouble.kind == "stale reads" for trouble in self._troubles)
        self.store = WatchedStore(self, keeps_past=keeps_past)
        self.lagging_reads = 0
        """So many reads do not answer at once, or not as of now."""
        self.living_since = 0
        """The place in the store from which on those who claim are alive."""
        self.on_commit: Callable[[], None] | None = None
        """Hears of every commit once it was looked at."""
        self.on_end: Callable[[], None] | None = None
        """Looks at the world a while after the end."""
        self.ended_at: dict[str, float] = {}
        """When executions were over, by the clock."""
        self.late_calls: list[float] = []
        """How long after the end of its execution a call was begun, in seconds."""
        self.folder = folder
        self.violation: Exception | None = None
        self.is_over = False
        """Nothing more is to begin."""
        self._playbooks = [playbook, *(loaded(child) for child in scenario.children)]
        self._registered: list[tuple[CatalogEntry, Playbook]] = []
        self._commits = 0
        self._others: set[asyncio.Task[None]] = set()
        self.reports: list[LeaseReport] = []
        environment = SECRETS if scenario.has_secrets else {}
        self.resolver = Resolver(environment, folder, self.clock)

    def play(self) -> State:
        """The state of the execution at its end, or of the one that repeats it."""
        with (
            mock.patch.object(entering, "MOST_RUNS_IN_A_TURN", MOST_RUNS_IN_A_TURN),
            mock.patch.object(bodies, "MOST_BYTES", AT_HAND_BYTES),
            mock.patch.object(live, "MOST_BYTES_AT_HAND", AT_HAND_BYTES),
            mock.patch.object(bodies, "RECENT_USES", 2),
            asyncio.Runner(loop_factory=lambda: ShuffledLoop(self.clock, self.chance)) as runner,
        ):
            runner.get_loop().set_exception_handler(self.heard_of)
            state = runner.run(self._play())
        if self.violation is not None:
            raise self.violation
        for execution_id, watcher in self.watchers.items():
            watcher.ended(state if state.execution_id == execution_id else None)
        self.tally[f"status: {state.status}"] += 1
        return state

    @abstractmethod
    async def _play(self) -> State: ...

    def heard_of(self, loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
        """What nobody waited for went wrong: expected where the store failed, else a violation."""
        problem = about.get("exception")
        if isinstance(problem, NoetlError) and about["message"] == "an alarm could not be handled":
            self.tally["alarms that the store failed"] += 1
            return
        if isinstance(problem, ProcessDiedError):
            return  # whoever would have waited for it is dead too
        if isinstance(problem, Exception):
            self.violation = self.violation or problem
        loop.default_exception_handler(about)

    @abstractmethod
    def control(self) -> ControlPlane | None:
        """A control plane that can be asked now."""

    @abstractmethod
    def fail_append(self, trouble: str, view: FailingStore) -> None:
        """Lets an append fail; raises."""

    @abstractmethod
    async def meddle(self, kind: str) -> bool:
        """Causes a trouble that only this world has; False: there was nothing to trouble."""

    async def register(self) -> None:
        for each in self._playbooks:
            assert each.playbook is not None, each.diagnostics
            playbook = each.playbook
            entry = await self.store.register(
                playbook.path, playbook.name, playbook.dialect, each.text.encode(), "2025-06-15T15:06:40Z"
            )
            self._registered.append((entry, playbook))

    def keep_plans(self, control: ControlPlane) -> None:
        """Spares every process the loading of what is loaded here."""
        for entry, playbook in self._registered:
            control.keep_plan(entry, playbook)

    def tool(self, kind: str) -> Any:
        if kind in ("wait", "playbook"):
            return RealWait(self, kind)
        return runnable("noop") if kind == "noop" else ScriptedTask(self)

    # --- beginning in the middle ----------------------------------------------------------------------------

    def take_over(self, cut: Cut) -> None:
        """Begins where another world was cut off: what ran in it is gone, what it wrote is there."""
        self.clock.elapsed = cut.elapsed + GOES_ON_AFTER
        self.store._logs = {name: copied(log) for name, log in cut.logs.items()}
        self.store._bodies = dict(cut.bodies)
        for execution_id, log in cut.logs.items():
            watcher = self.watcher(execution_id)
            watcher.committed([decode_event(body) for body in log.events], None, self._loaded_of(log.row))
            watcher.process_died()

    def answer_parked(self) -> None:
        """Whoever was to send a signal still does: a lease that is parked for one would not ask again."""
        for execution_id, watcher in self.watchers.items():
            for run in watcher.state.runs.values():
                for name in (name for waits in run.parked.values() for name in waits.signals):
                    self.send_signal_soon(execution_id, name)

    async def linger(self) -> None:
        """Goes on after the end for a while, if that is wanted."""
        if self.on_end is not None:
            await asyncio.sleep(LINGERING)
            with self.noting_violations():
                self.on_end()

    @abstractmethod
    def held(self) -> list[str]:
        """The commands that workers work on."""

    # --- what is seen ---------------------------------------------------------------------------------------

    def watcher(self, execution_id: str) -> Watcher:
        found = self.watchers.get(execution_id)
        if found is None:
            found = self.watchers[execution_id] = Watcher(self.tally, self.chance)
        return found

    def committed(self, change: Append, live: Live | None) -> None:
        log = self.store._logs[change.execution_id]
        if log.row.finished_at is not None:
            self.ended_at.setdefault(change.execution_id, self.clock.elapsed)
        with self.noting_violations():
            watcher = self.watcher(change.execution_id)
            known = None if live is None else live.state
            watcher.committed(change.events, known, self._loaded_of(change.execution))
            self._note_given_away(change, watcher)
            standing = left_standing(watcher.state, log.commands, log.timers)
            require(standing is None, "never.stuck", str(standing))
            if self.on_commit is not None:
                self.on_commit()

    def _note_given_away(self, change: Append, watcher: Watcher) -> None:
        """Two replicas gave one signal to two leases: the later one goes on under a new lease."""
        told = {event.event_type for event in change.events}
        if change.free_commands and not told & {"step.resumed", "execution.resumed", "command.expired"}:
            self.tally["signals given away twice"] += 1
            watcher.lease_lost()

    def lease_taken_back(self, change: Append) -> None:
        self.tally["leases taken back by a resume"] += 1
        self.watcher(change.execution_id).lease_lost()

    def _loaded_of(self, row: ExecutionRow) -> Loaded:
        digest = row.playbook_digest
        return next(
            each for each in self._playbooks if hashlib.sha256(each.text.encode()).hexdigest() == digest
        )

    @contextlib.contextmanager
    def calling(self, call: Any, lease: Any, *, waits: bool = False) -> Iterator[None]:
        watcher = self.watcher(lease.execution_id)
        ended = self.ended_at.get(lease.execution_id)
        if ended is not None:
            self.late_calls.append(self.clock.elapsed - ended)
        is_live = self.is_live(lease.held)
        key = object()
        with self.noting_violations():
            watcher.call_begins(call, key, lease, self.is_live, is_zombie=not is_live, waits=waits)
        try:
            yield
        finally:
            watcher.call_ends(key)

    def is_live(self, held: HeldLease) -> bool:
        """Whether a lease is the current one of its command."""
        log = self.store._logs.get(held.execution_id)
        row = None if log is None else log.commands.get(held.command_id)
        return row is not None and row.worker_id is not None and row.epoch == held.epoch

    @contextlib.contextmanager
    def noting_violations(self) -> Iterator[None]:
        """The engine turns exceptions into failures; a violation must not drown in one."""
        try:
            yield
        except (Violation, LookupError, TypeError, AttributeError) as problem:
            self.violation = self.violation or problem
            self.stop()
            raise

    @abstractmethod
    def stop(self) -> None:
        """Ends the play: something is wrong."""

    # --- troubles -------------------------------------------------------------------------------------------

    def trouble_at_commit(self) -> str | None:
        """Counts a commit; what is to go wrong with it, or None. Other troubles begin now."""
        self._commits += 1
        due = [trouble for trouble in self._troubles if trouble.at <= self._commits]
        found = None
        for trouble in due:
            self._troubles.remove(trouble)
            if trouble.kind.endswith(" commit"):
                if found is not None:
                    self._troubles.append(trouble)
                    continue
                found = trouble.kind
            elif trouble.kind == "stale reads":
                self.lagging_reads += self.chance.choice(LAGGING)
            else:
                self.spawn(self._cause(trouble.kind))
        return found

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def end_others(self) -> None:
        for task in list(self._others):
            task.cancel()
        for done in await asyncio.gather(*self._others, return_exceptions=True):
            if isinstance(done, Exception) and not isinstance(done, NoetlError | Violation):
                raise done
        self._others.clear()

    async def _cause(self, kind: str) -> None:
        await asyncio.sleep(self.chance.choice(DELAYS))
        # A process that dies meanwhile takes along whoever talks to it.
        with contextlib.suppress(NoetlError):
            if await (self._steer(kind) if kind in STEERING else self.meddle(kind)):
                self.tally[f"trouble: {kind}"] += 1

    async def _steer(self, kind: str) -> bool:
        """What comes from people, and reports that come again."""
        execution_id = self._open_execution()
        control = self.control()
        if execution_id is None or control is None:
            return False
        match kind:
            case "pause":
                with contextlib.suppress(NoetlError):  # it may be paused all the same
                    await control.pause(execution_id)
                await asyncio.sleep(self.chance.choice([0.0, 0.02, GOES_ON_AFTER]))
                await self._resumed(execution_id)
            case "cancel":
                await control.cancel(execution_id, "by the simulation")
            case "signal":
                await control.signal(execution_id, "unasked", {"n": 1})
            case "repeated report" | "late report":
                if not self.reports:
                    return False
                await self.repeat_report(self.reports[-1 if kind == "repeated report" else 0])
        return True

    async def _resumed(self, execution_id: str) -> None:
        """Somebody always resumes what was paused, however often it takes."""
        while True:
            control = self.control()
            if control is not None:
                try:
                    await control.resume(execution_id)
                except NoetlError:
                    pass
                else:
                    return
            await asyncio.sleep(1.0)

    async def repeat_report(self, report: LeaseReport) -> None:
        """Sends a report once more, to whichever control plane answers."""
        control = self.control()
        if control is None:
            return
        watcher = self.watcher(report.lease.execution_id)
        before = len(watcher.events)
        reply = await self.reported(control, Report(worker_id="again", leases=(report,)))
        with self.noting_violations():
            watcher.report_came_again(report, reply.verdicts[0], before)

    async def reported(self, control: ControlPlane, report: Report) -> ReportReply:
        """Passes a report on, and looks whether one under a lease that is over was refused."""
        live = [self.is_live(each.lease) for each in report.leases]
        copy = msgspec.convert(msgspec.to_builtins(report), Report)
        reply = await type(control).report(control, report)
        self.reports.extend(copy.leases)
        with self.noting_violations():
            for was_live, verdict in zip(live, reply.verdicts, strict=True):
                holds = was_live or verdict.verdict == "refused"
                require(holds, "stale.refused", f"{verdict} though its lease was over")
        return reply

    def _open_execution(self) -> str | None:
        """One that is not over: the last that was begun."""
        rows = [log.row for log in self.store._logs.values() if log.row.finished_at is None]
        return rows[-1].execution_id if rows else None

    def send_signal_soon(self, execution_id: str, name: str) -> None:
        async def send() -> None:
            await asyncio.sleep(self.chance.choice((*DELAYS, 20.0, 40.0)))
            while True:
                control, row = self.control(), await self.store.execution(execution_id)
                if row is None or row.finished_at is not None:
                    return
                if control is not None:
                    try:
                        await control.signal(execution_id, name, {"sent": True})
                    except NoetlError:
                        pass
                    else:
                        return
                await asyncio.sleep(1.0)

        self.spawn(send())


STEERING = ("pause", "cancel", "signal", "repeated report", "late report")


class OneProcess(World):
    """One process at a time: when it dies, another goes on with what it left."""

    def __init__(
        self, scenario: Scenario, playbook: Loaded, folder: Path, *, undisturbed: bool = False
    ) -> None:
        super().__init__(scenario, playbook, folder, undisturbed=undisturbed)
        self._engine: Embedded | None = None
        self._view: FailingStore | None = None
        self._died: asyncio.Future[None] | None = None
        self._zombies: dict[str, asyncio.Task[None]] = {}

    def control(self) -> ControlPlane | None:
        is_dead = self._died is None or self._died.done() or self._engine is None
        return None if is_dead or self._engine is None else self._engine.control

    async def _play(self) -> State:
        await self.register()
        self.answer_parked()
        state = None
        while state is None and self.violation is None:
            state = await self._process()
        await self.end_others()
        return state or State(execution_id=EXECUTION)

    async def _process(self) -> State | None:
        """One process from its start to the end of the execution, or to its death."""
        self._died = asyncio.get_running_loop().create_future()
        self._view = FailingStore(self)
        self._view.catch_up()  # there is nobody else
        self.living_since = self.store.place
        view: Any = self._view
        engine = Embedded(view, self.folder, clock=self.clock, tool=self.tool, resolver=self.resolver)
        engine._worker._random = self.chance  # jitter
        self._engine = engine
        self._view.watch(engine.control)
        self.keep_plans(engine.control)
        self._intercept(engine)
        running = asyncio.ensure_future(self._run_engine(engine))
        either: set[asyncio.Future[Any]] = {running, self._died}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self._bury_zombies()
        if not running.done() or self._died.done():
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for watcher in self.watchers.values():
                watcher.process_died()
            return None
        return await running

    async def _run_engine(self, engine: Embedded) -> State:
        async with engine:
            state = await self._brought_to_its_end(engine, EXECUTION)
            again = self.scenario.again
            if again is not None and await self.store.execution(REPEATED) is None:
                changed = loaded(again.playbook) if again.playbook is not None else None
                if changed is not None:
                    self._playbooks.append(changed)
                try:
                    await engine.repeat(
                        EXECUTION,
                        changed,
                        {},
                        step=again.step,
                        failed_items=again.failed_items,
                        announce=lambda: REPEATED,
                    )
                except StoreError:
                    raise
                except NoetlError as refused:
                    self.tally[f"not repeated: {refused.code}"] += 1
                    return state
                self.tally[f"repeated: {'failed items' if again.failed_items else 'from a step'}"] += 1
                state = await engine.finished(REPEATED)
            elif again is not None:
                state = await self._brought_to_its_end(engine, REPEATED)
            await self.linger()
            return state

    def held(self) -> list[str]:
        return [] if self._engine is None else sorted(self._engine._worker.held)

    async def _brought_to_its_end(self, engine: Embedded, execution_id: str) -> State:
        row = await self.store.execution(execution_id)
        if row is None:
            await engine.start(self.loaded, self.scenario.payload, execution_id=execution_id)
        elif row.finished_at is None:
            await engine.resume(execution_id)
        return await engine.finished(execution_id)

    def _intercept(self, engine: Embedded) -> None:
        """Sees every report, and keeps zombies from hearing that they are dead."""
        control: Any = engine.control
        self.reports.clear()
        revoke = engine._worker.revoke

        async def report(told: Report) -> ReportReply:
            return await self.reported(control, told)

        def revoked(command_id: str) -> None:
            if command_id not in self._zombies:
                revoke(command_id)

        control.report = report
        control.on_revoked = revoked

    def fail_append(self, trouble: str, view: FailingStore) -> None:
        self.crash(trouble)
        raise ProcessDiedError(trouble)

    def crash(self, how: str) -> None:
        self.tally[f"trouble: {how}"] += 1
        self.stop()

    def stop(self) -> None:
        if self._view is not None:
            self._view.die()
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    async def meddle(self, kind: str) -> bool:
        execution_id, control = self._open_execution(), self.control()
        if execution_id is None or control is None:
            return False
        if kind in ("crash in between", "replica dies", "worker dies"):
            self.crash("crash in between")
            return False
        if kind in ("lost lease", "lost leases", "zombie"):
            return await self._lose_lease(control, kind)
        return False

    async def _lose_lease(self, control: ControlPlane, kind: str) -> bool:
        assert self._engine is not None
        worker = self._engine._worker
        if not worker._leases:
            return False
        command_id = self.chance.choice(sorted(worker._leases))
        execution_id = worker.held[command_id].lease.execution_id
        if kind == "zombie" or self.chance.randint(0, 1):
            self.tally["zombies"] += 1  # the worker is not dead, it only was not heard of
            self._zombies[command_id] = worker._leases.pop(command_id)
            del worker.held[command_id]
        live = await control.open(execution_id)
        run_id, lease = run_and_lease(command_id)
        for _ in range(decide.MOST_LOSSES if kind == "lost leases" else 1):
            epoch = live.held.get(command_id)
            if epoch is None:
                break
            fence = Fence(command_id=command_id, epoch=epoch)
            await live.change(lambda turn: decide.lose(turn, run_id, lease), fence=fence)
            await asyncio.sleep(0.001)  # it is taken up again, and lost again
        return True

    def _bury_zombies(self) -> None:
        for task in self._zombies.values():
            task.cancel()
            self._others.add(task)
        self._zombies.clear()
