"""A world of many machines: replicas of the control plane over one store, and workers that come and go.

Workers reach the replicas over a link that loses answers. Leases run out on the fake clock, beats renew them,
and every replica reaps and rings alarms beside the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noetl.control.plane import ControlPlane
from noetl.control.repeating import repeat
from noetl.engine.plan import Plan
from noetl.engine.state import Data, State
from noetl.engine.turn import error_data
from noetl.engine.workload import materialise
from noetl.errors import NoetlError
from noetl.playbook.load import Loaded
from noetl.playbook.model import Playbook
from noetl.records.protocols import NotWrittenError
from noetl.records.report import Beat, Report, ReportReply
from noetl.results.bodies import FileBodies
from noetl.store.protocol import AppendConflict, StoreError
from noetl.tools.registry import builtin_kinds
from noetl.worker.worker import Worker
from tests.simulation.invariants import Violation
from tests.simulation.scenarios import Scenario
from tests.simulation.scripted import DELAYS
from tests.simulation.stores import Cut, FailingStore, ProcessDiedError
from tests.simulation.world import EXECUTION, World, loaded

LEASE_SECONDS = 30.0
BEAT_SECONDS = 10.0
POLL_SECONDS = 2.0
"""How often a worker asks that no wake-up reached."""
SILENCE_SECONDS = 70.0
"""How long a zombie is not heard of: its leases run out, and others take its work."""
COMES_BACK_AFTER = 3.0
OTHERS = 100
"""The number of the first worker of a world that was taken over."""
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PATIENCE_SECONDS = 3_600.0
"""Without a commit for that long, nothing will ever happen."""


class LossyBus:
    """Wakes those who wait, mostly; whoever hears nothing asks by itself after a while."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_up(self) -> bool:
        return True

    async def publish(self, pool: str, command_ids: Sequence[str]) -> None:
        if self._world.chance.randint(0, 9) == 0:
            self._world.tally["wake-ups lost"] += 1
            return
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, pool: str, timeout: float, limit: int = 1) -> bool:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(woken)
        try:
            async with asyncio.timeout(min(timeout, POLL_SECONDS)):
                await woken
        except TimeoutError:
            return timeout > POLL_SECONDS
        return True

    async def close(self) -> None:
        self._waiting.clear()


class Replica:
    """One process with a control plane; whoever is talking to it when it dies gets no answer."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self._cluster = cluster
        self.view = FailingStore(cluster)
        view: Any = self.view
        self.control = ControlPlane(
            view,
            builtin_kinds(),
            clock=cluster.clock,
            bus=cluster.bus,
            prepare=cluster.prepare,
            lease_seconds=LEASE_SECONDS,
            shared=True,
            distributed=True,
            node=node,
        )
        self.view.watch(self.control)
        cluster.keep_plans(self.control)
        self.died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running = [
            asyncio.ensure_future(self.control.run_timers()),
            asyncio.ensure_future(self.control.run_reaper()),
        ]

    @property
    def is_up(self) -> bool:
        return not self.died.done()

    def die(self) -> None:
        if self.is_up:
            self.view.die()
            self.died.set_result(None)
            self.control._alarms.stop()
            for task in self._running:
                task.cancel()

    async def settle(self) -> None:
        self.die()
        for ended in await asyncio.gather(*self._running, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, NoetlError):
                raise ended
        await self.control.settle()

    async def serve(self, name: str, *asked: Any) -> Any:
        """Answers a call, unless it dies meanwhile."""
        work: asyncio.Future[Any]
        if name == "report":
            work = asyncio.ensure_future(self._cluster.reported(self.control, asked[0]))
        else:
            work = asyncio.ensure_future(getattr(self.control, name)(*asked))
        either: set[asyncio.Future[Any]] = {work, self.died}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ProcessDiedError("the replica died")
            return work.result()
        finally:
            work.cancel()


class Link:
    """The control plane as a worker reaches it: any replica that is up, again until one answers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.is_cut = False
        """The worker is dead: nothing of what it still does reaches anybody."""

    def __getattr__(self, name: str) -> Any:
        async def call(*asked: Any) -> Any:
            return await self._call(name, *asked)

        return call

    async def report(self, report: Report) -> ReportReply:
        cluster = self._cluster
        while True:
            reply: ReportReply = await self._call("report", report)
            if not cluster.lose_next_reply:
                return reply
            # It is in the log, but nobody has heard so; the same is reported to another replica.
            cluster.lose_next_reply = False
            cluster.tally["trouble: lost reply"] += 1

    async def _call(self, name: str, *asked: Any) -> Any:
        cluster = self._cluster
        while True:
            if self.is_cut and name == "stop_child":
                raise ProcessDiedError("the worker is dead")  # it would be waited for by those who clean up
            if self.is_cut:
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(cluster.chance.choice((0.0, 0.0, 0.001, 0.02)))
            up = [replica for replica in cluster.replicas if replica.is_up]
            if up:
                try:
                    answer = await cluster.chance.choice(up).serve(name, *asked)
                except (StoreError, NotWrittenError, AppendConflict) as error:
                    cluster.tally[f"calls repeated: {error.code}"] += 1
                else:
                    if self.is_cut:
                        continue
                    return answer
            await asyncio.sleep(0.5)


class Machine:
    """A worker that beats, until it dies or falls silent."""

    def __init__(self, cluster: Cluster, worker_id: str, slots: int) -> None:
        self._cluster = cluster
        self.link = Link(cluster)
        source: Any = self.link
        self.worker = Worker(
            source,
            builtin_kinds(),
            cluster.tool,
            results=FileBodies(cluster.folder),
            folder=cluster.folder,
            clock=cluster.clock,
            worker_id=worker_id,
            slots=slots,
            claim_seconds=5.0,
            known_plan=cluster.known_plan,
        )
        self.worker._random = cluster.chance  # jitter
        self.silent_until = 0.0
        self._running = [asyncio.ensure_future(self.worker.run()), asyncio.ensure_future(self._beat())]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if self._cluster.clock.elapsed < self.silent_until:
                continue
            leases = tuple(command.lease for command in self.worker.held.values())
            reply = await self.link.beat(Beat(worker_id=self.worker.worker_id, leases=leases))
            for lease in leases:
                held = self.worker.held.get(lease.command_id)
                if lease.command_id in reply.lost and held is not None and held.lease.epoch == lease.epoch:
                    self.worker.revoke(lease.command_id)

    async def die(self) -> None:
        self.link.is_cut = True
        for task in self._running:
            task.cancel()
        for ended in await asyncio.gather(*self._running, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


class Cluster(World):
    def __init__(
        self, scenario: Scenario, playbook: Loaded, folder: Path, *, undisturbed: bool = False
    ) -> None:
        super().__init__(scenario, playbook, folder, undisturbed=undisturbed)
        self.bus = LossyBus(self)
        self.replicas: list[Replica] = []
        self.machines: list[Machine] = []
        self.lose_next_reply = False
        self._numbers = 0
        self._stopped: asyncio.Future[None] | None = None

    def take_over(self, cut: Cut) -> None:
        super().take_over(cut)
        self._numbers = OTHERS  # those of before do not come back

    def held(self) -> list[str]:
        return sorted(name for machine in self.machines for name in machine.worker.held)

    def control(self) -> ControlPlane | None:
        up = [replica for replica in self.replicas if replica.is_up]
        return self.chance.choice(up).control if up else None

    def known_plan(self, digest: str) -> Plan | None:
        return self.replicas[0].control.known_plan(digest)

    async def prepare(
        self, playbook: Playbook, payload: Data, origin: object
    ) -> tuple[dict[str, Any], Data | None]:
        if not playbook.keychain:
            return {}, None
        try:
            workload = materialise(playbook.workload, payload, "")
            return await self.resolver.resolve(playbook.keychain, workload), None
        except NoetlError as error:
            return {}, error_data(error.code, error.message)

    async def _play(self) -> State:
        self._stopped = asyncio.get_running_loop().create_future()
        await self.register()
        self.answer_parked()
        self.replicas = [Replica(self, node) for node in (1, 2)]
        for _ in range(self.chance.choice([2, 2, 3])):
            self._add_machine()
        try:
            return await self._to_its_end()
        finally:
            await self.end_others()
            for machine in self.machines:
                await machine.die()
            for replica in self.replicas:
                await replica.settle()

    def _add_machine(self) -> None:
        self._numbers += 1
        self.machines.append(Machine(self, f"w{self._numbers}", self.chance.choice([1, 2, 3])))

    async def _to_its_end(self) -> State:
        playbook = self.loaded.playbook
        assert playbook is not None
        execution_id = EXECUTION
        await self._started(playbook.path)
        state = await self._awaited(execution_id)
        await self.linger()
        again = self.scenario.again
        if again is None or self.violation is not None:
            return state
        control = self.control() or self.replicas[0].control
        try:
            entry = None
            if again.playbook is not None:
                changed = loaded(again.playbook)
                self._playbooks.append(changed)
                assert changed.playbook is not None
                entry = await self.store.register(
                    changed.playbook.path, "drawn", changed.playbook.dialect, changed.text.encode(), ""
                )
            execution_id = await repeat(
                control, execution_id, {}, entry=entry, step=again.step, failed_items=again.failed_items
            )
        except NoetlError as refused:
            self.tally[f"not repeated: {refused.code}"] += 1
            return state
        self.tally[f"repeated: {'failed items' if again.failed_items else 'from a step'}"] += 1
        return await self._awaited(execution_id)

    async def _started(self, path: str) -> None:
        """Two replicas are asked for the same execution, as by a client whose first answer was lost."""
        entry = await self.store.catalog_entry(path)
        assert entry is not None

        async def begin(number: int) -> None:
            await asyncio.sleep(self.chance.choice(DELAYS[:4]))
            while await self.store.execution(EXECUTION) is None:
                try:
                    await self.replicas[number].control.begin(
                        entry, self.scenario.payload, execution_id=EXECUTION, trace=TRACE
                    )
                except (StoreError, NotWrittenError):
                    await asyncio.sleep(0.5)

        await asyncio.gather(*(begin(number) for number in range(len(self.replicas))))

    async def _awaited(self, execution_id: str) -> State:
        """Waits for the end of an execution; a play that stands still is a violation."""
        commits, since = 0, self.clock.elapsed
        while self.violation is None:
            row = await self.store.execution(execution_id)
            if row is not None and row.finished_at is not None:
                break
            if self._commits != commits:
                commits, since = self._commits, self.clock.elapsed
            if self.clock.elapsed - since > PATIENCE_SECONDS:
                raise Violation("never.stuck", f"nothing was written for {PATIENCE_SECONDS:g} seconds")
            await asyncio.sleep(0.5)
        return self.watcher(execution_id).state

    def stop(self) -> None:
        """Whoever waits for the end sees the violation."""

    # --- troubles -------------------------------------------------------------------------------------------

    def fail_append(self, trouble: str, view: FailingStore) -> None:
        """A replica dies around a commit; or only its connection does, and it lives on."""
        self.tally[f"trouble: {trouble}"] += 1
        if trouble.startswith("crash"):
            replica = next(each for each in self.replicas if each.view is view)
            self._kill(replica)
            raise ProcessDiedError(trouble)
        raise StoreError(trouble)

    def _kill(self, replica: Replica) -> None:
        replica.die()
        self.spawn(self._replace(replica))

    async def _replace(self, dead: Replica) -> None:
        await asyncio.sleep(COMES_BACK_AFTER)
        self._numbers += 1
        self.replicas[self.replicas.index(dead)] = Replica(self, self._numbers % 1000)
        await dead.settle()

    async def meddle(self, kind: str) -> bool:
        match kind:
            case "replica dies" | "crash in between":
                up = [replica for replica in self.replicas if replica.is_up]
                if not up:
                    return False
                self._kill(self.chance.choice(up))
            case "worker dies" | "lost leases" | "zombie" | "lost lease" if not self.machines:
                return False  # all of them are dead at the moment
            case "worker dies" | "lost leases":
                machine = self._chosen()
                self.machines.remove(machine)
                await machine.die()
                await asyncio.sleep(self.chance.choice(DELAYS))
                self._add_machine()
            case "zombie" | "lost lease":
                self._chosen().silent_until = self.clock.elapsed + SILENCE_SECONDS
            case "lost reply":
                self.lose_next_reply = True
                return False
        return True

    def _chosen(self) -> Machine:
        busy = [machine for machine in self.machines if machine.worker.held]
        return self.chance.choice(busy or self.machines)
