"""The control plane over one store: starts executions, hands out their work, takes reports.

It is the only writer of the store. It decides nothing itself: it brings what happened to the engine,
writes what the engine decided, and hands the work that came of it to whoever asks. Any number of processes
may run one over the same store, where that store can be shared.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from noetl.bus.in_process import InProcessBus
from noetl.bus.protocol import Bus, wake_key
from noetl.control.alarms import Alarms
from noetl.control.bodies import LoadStored, StoredBodies
from noetl.control.changes import DUE, ENDED, change_of, facts_of
from noetl.control.live import Asked, Live, LogReader, Taker
from noetl.engine import decide
from noetl.engine.fold import HEARD, fold
from noetl.engine.leases import leased, run_and_lease
from noetl.engine.loops import loop_results
from noetl.engine.parking import waiting_children
from noetl.engine.plan import Plan
from noetl.engine.reuse import Reuse
from noetl.engine.state import Data, State
from noetl.engine.turn import Turn
from noetl.errors import NoetlError
from noetl.ids import Clock, Snowflakes, timestamp
from noetl.playbook.load import load
from noetl.playbook.model import Playbook
from noetl.records.command import Command, HeldLease, PlaybookVersion
from noetl.records.event import Event
from noetl.records.protocols import ExecutionRequest, LeaseLostError, NotWrittenError
from noetl.records.report import (
    PROTOCOL,
    AnyCommand,
    Beat,
    BeatReply,
    ChildCall,
    ChildState,
    Claim,
    Heard,
    LeaseReport,
    LoopSoFar,
    Report,
    ReportReply,
    TakenSignal,
    Verdict,
)
from noetl.records.tool import ToolDescription
from noetl.store.protocol import (
    Append,
    AppendConflict,
    BodyRow,
    CatalogEntry,
    CommandRow,
    Fence,
    LeaseFenced,
    Store,
)

MOST_IN_MEMORY: Final = 2_000
"""Executions kept decoded; the one that was used longest ago goes first."""
LOOK_SECONDS: Final = 0.5
"""How often a child that another process runs is looked at."""
FOR_EVER: Final = 10 * 365 * 86_400.0
"""The lease of a worker that shares the process: they die together."""
SWEEP_SECONDS: Final = 1.0


class UnknownExecutionError(NoetlError):
    code = "execution.unknown"


class InvalidPlaybookError(NoetlError):
    code = "playbook.invalid"


class UnknownPlaybookError(NoetlError):
    code = "playbook.unknown"


class ProtocolMismatchError(NoetlError):
    """A worker and a server that are too far apart to understand each other."""

    code = "worker.protocol"


Prepare = Callable[[Playbook, Data], Awaitable[tuple[dict[str, Any], Data | None]]]
"""Gives the keychain of a playbook that is to be started, or what keeps it from being started."""


async def _nothing_to_prepare(playbook: Playbook, payload: Data) -> tuple[dict[str, Any], Data | None]:
    return {}, None


class ControlPlane:
    """Implements `noetl.records.protocols.ControlPlane`."""

    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, ToolDescription],
        *,
        clock: Clock,
        bus: Bus | None = None,
        prepare: Prepare = _nothing_to_prepare,
        on_event: Callable[[Event], None] | None = None,
        load_stored: LoadStored | None = None,
        lease_seconds: float = FOR_EVER,
        shared: bool = False,
        distributed: bool = False,
        node: int = 0,
    ) -> None:
        """`shared`: other processes write the store too. `distributed`: workers share out loops."""
        self.store = store
        self.clock = clock
        self.bus = bus or InProcessBus()
        self.lease_seconds = lease_seconds
        self._kinds = kinds
        self._ids = Snowflakes(clock, node=node)
        self._prepare = prepare
        self._on_event = on_event
        self._bodies = StoredBodies(store, load_stored)
        self._shared = shared
        self._distributed = distributed
        self._live: dict[str, Live] = {}
        self._opening: dict[str, asyncio.Future[Live]] = {}
        self._plans: dict[str, Plan] = {}
        self._alarms = Alarms(clock, self._wake)
        self.on_not_written: Callable[[str, BaseException], None] | None = None
        """Hears of each execution that cannot go on because the store refused a change to it."""
        self.on_revoked: Callable[[str], None] | None = None
        """Hears of each command of a worker in this process that is over, so that its work is stopped."""

    # --- executions -------------------------------------------------------------------------------------

    async def start(self, request: ExecutionRequest) -> str:
        """Starts an execution of a playbook in the catalog; the same one again for the same key."""
        execution_id = None
        if request.idempotency_key is not None:
            execution_id = derived_id("request", request.idempotency_key)
            if await self.store.execution(execution_id) is not None:
                return execution_id
        entry = await self.catalog_entry(request.path, request.version)
        return await self.begin(
            entry,
            request.payload,
            execution_id=execution_id,
            parent_execution_id=request.parent_execution_id,
            trace=request.trace,
        )

    async def begin(
        self,
        entry: CatalogEntry,
        payload: Data,
        *,
        execution_id: str | None = None,
        parent_execution_id: str | None = None,
        reuse: Reuse | None = None,
        trace: str | None = None,
    ) -> str:
        """Starts an execution of a registered playbook."""
        execution_id = execution_id or self._ids.next()
        plan = self.plan(entry)
        keychain, problem = await self._prepare(plan.playbook, payload)
        live = self._opened(
            plan, State(execution_id=execution_id), entry, keychain=keychain, parent=parent_execution_id
        )
        try:
            await live.change(
                lambda turn: decide.request(turn, payload, problem=problem, reuse=reuse, trace=trace)
            )
        except AppendConflict:
            self._live.pop(execution_id, None)  # somebody else has started it meanwhile
        return execution_id

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry:
        entry = await self.store.catalog_entry(path, version)
        if entry is None:
            wanted = path if version is None else f"{path}@{version}"
            raise UnknownPlaybookError(f"there is no playbook `{wanted}` in the catalog")
        return entry

    async def resume(self, execution_id: str) -> None:
        """Goes on with an execution that was paused, or whose process ended."""
        live = await self.open(execution_id)
        if live.state.is_over:
            return
        await self._with_keychain(live)
        held = set(live.held)
        if self._shared:
            rows = await self.store.commands(execution_id=execution_id, limit=100_000)
            held = {row.command_id for row in rows if row.worker_id is not None}
        # Asked for when it is decided: work may be handed out until then.
        await live.change(
            lambda turn: decide.resume(turn, held if self._shared else frozenset(live.held)), fresh=True
        )

    async def cancel(self, execution_id: str, reason: str | None = None) -> None:
        live = await self.open(execution_id)
        await live.change(lambda turn: decide.cancel(turn, reason))

    async def pause(self, execution_id: str) -> None:
        live = await self.open(execution_id)
        await live.change(decide.pause)

    async def signal(self, execution_id: str, name: str, data: Any) -> None:  # noqa: ANN401 - plain data
        live = await self.open(execution_id)
        await live.change(lambda turn: decide.signal(turn, name, data))

    async def finished(self, execution_id: str) -> State:
        """The state of an execution of this process once it is over."""
        live = await self.open(execution_id)
        if not live.state.is_over:
            await live.over.wait()
        return live.state

    async def state(self, execution_id: str) -> State:
        live = await self.open(execution_id)
        await live.freshen()
        return live.state

    # --- executions in memory -----------------------------------------------------------------------------

    async def open(self, execution_id: str) -> Live:
        """The execution in memory, replayed from its log if it was not there."""
        live = self._live.get(execution_id)
        if live is not None:
            return live
        opening = self._opening.get(execution_id)
        if opening is None:
            opening = self._opening[execution_id] = asyncio.ensure_future(self._read(execution_id))
            opening.add_done_callback(lambda _: self._opening.pop(execution_id, None))
        return await asyncio.shield(opening)

    async def _read(self, execution_id: str) -> Live:
        row = await self.store.execution(execution_id)
        if row is None:
            raise UnknownExecutionError(f"there is no execution {execution_id} in this store")
        entry = await self.store.catalog_by_digest(row.playbook_digest)
        if entry is None:
            raise UnknownExecutionError(f"the playbook of execution {execution_id} is not in this store")
        state = await self.replay(execution_id)
        live = self._live.get(execution_id)
        if live is None:
            live = self._opened(self.plan(entry), state, entry, parent=row.parent_execution_id)
        return live

    async def replay(self, execution_id: str) -> State:
        """The state of an execution by its log alone."""
        kept = await self.store.snapshot(execution_id)
        state = State(execution_id=execution_id)
        if kept is not None:
            state = msgspec.msgpack.decode(kept[1], type=State)
        for event in await self.store.events(execution_id, after=state.seq):
            fold(state, event)
        return state

    async def _with_keychain(self, live: Live) -> None:
        """Resolves the keychain of an execution that another process started."""
        if live.keychain is None:
            keychain, problem = await self._prepare(live.plan.playbook, live.state.payload)
            if problem is not None:
                raise NoetlError(str(problem["message"]))
            live.use_keychain(keychain)

    def keep_plan(self, entry: CatalogEntry, playbook: Playbook) -> None:
        """Spares the loading of a playbook that whoever registered it has loaded."""
        if entry.digest not in self._plans:
            self._plans[entry.digest] = Plan(playbook)

    def known_plan(self, digest: str) -> Plan | None:
        """A playbook that is parsed already."""
        return self._plans.get(digest)

    def plan(self, entry: CatalogEntry) -> Plan:
        known = self._plans.get(entry.digest)
        if known is None:
            loaded = load(entry.source, self._kinds)
            if loaded.playbook is None:
                first = next(found for found in loaded.diagnostics if found.severity == "error")
                raise InvalidPlaybookError(f"playbook `{entry.path}`, line {first.line}: {first.message}")
            known = self._plans[entry.digest] = Plan(loaded.playbook)
        return known

    def _opened(
        self,
        plan: Plan,
        state: State,
        entry: CatalogEntry,
        *,
        keychain: Mapping[str, Any] | None = None,
        parent: str | None = None,
    ) -> Live:
        live = Live(
            plan,
            state,
            entry,
            now=lambda: timestamp(self.clock.now()),
            commit=self._commit,
            reader=LogReader(self.replay, self.store.events, lambda _, ref: self._bodies.load(ref)),
            keychain=keychain if plan.playbook.keychain else {},
            parent_execution_id=parent,
            shared=self._shared,
            distributed=self._distributed,
        )
        if state.is_over:
            live.over.set()
        self._live[state.execution_id] = live
        while len(self._live) > MOST_IN_MEMORY:
            oldest = next((each for each, old in self._live.items() if old.is_idle), None)
            if oldest is None:
                break
            del self._live[oldest]
        return live

    def is_open(self, execution_id: str) -> bool:
        """Whether an execution is in memory, and so under way in this process."""
        return execution_id in self._live

    def opened(self, execution_id: str) -> Live:
        """An execution that is in memory."""
        return self._live[execution_id]

    def is_current(self, execution_id: str) -> bool:
        """Whether an execution is in memory: not after something of it could not be written."""
        return execution_id in self._live

    def next_id(self) -> str:
        """An id for an execution that is still to be started."""
        return self._ids.next()

    async def settle(self) -> None:
        """Waits until everything that was decided is written."""
        await self._alarms.settle()
        for live in list(self._live.values()):
            await live.settle()
        self._alarms.stop()

    def forget(self, execution_id: str) -> None:
        """Drops a finished execution from memory."""
        self._live.pop(execution_id, None)
        self._alarms.set_at(execution_id, None)

    # --- work --------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> tuple[AnyCommand, ...]:
        self._check_protocol(claim.protocol)
        until = asyncio.get_running_loop().time() + claim.wait_seconds
        while True:
            rows = await self.store.claim(
                pool=claim.pool,
                worker_id=claim.worker_id,
                limit=claim.limit,
                lease_seconds=self.lease_seconds,
            )
            found = [await self._claimed(row) for row in rows]
            commands = tuple(command for command in found if command is not None)
            left = until - asyncio.get_running_loop().time()
            if commands or left <= 0 or not await self.bus.wait(claim.pool, left, claim.limit):
                return commands

    async def _claimed(self, row: CommandRow) -> AnyCommand | None:
        live = await self.open(row.execution_id)
        await live.freshen()
        await self._with_keychain(live)
        return self._lease(live, row)

    def _lease(self, live: Live, row: CommandRow) -> AnyCommand | None:
        """The command of a row that was just leased; None where its step run is over."""
        run = live.state.runs.get(row.step_run_id)
        if run is None:
            return None
        live.let_go_of_signals(row.command_id)
        live.held[row.command_id] = row.epoch
        _, lease = run_and_lease(row.command_id)
        return Command(
            lease=HeldLease(command_id=row.command_id, execution_id=row.execution_id, epoch=row.epoch),
            lease_seconds=self.lease_seconds,
            playbook=PlaybookVersion(
                path=live.entry.path, version=live.entry.version, digest=live.entry.digest
            ),
            step=run.step,
            step_run_id=run.run_id,
            context=leased(live.plan, live.state, run, lease),
            has_secrets=bool(live.keychain),
            parent_execution_id=live.parent_execution_id,
            trace=live.state.trace,
        )

    async def beat(self, beat: Beat) -> BeatReply:
        fences = [Fence(command_id=each.command_id, epoch=each.epoch) for each in beat.leases]
        lost = await self.store.renew(beat.worker_id, fences, self.lease_seconds) if fences else ()
        return BeatReply(lost=lost, lease_seconds=self.lease_seconds)

    async def report(self, report: Report) -> ReportReply:
        self._check_protocol(report.protocol)
        taker = Taker(report.worker_id, report.pool, report.free_slots) if report.free_slots else None
        if len(report.leases) == 1:
            told = [await self._take(report.leases[0], taker)]
        else:
            # One taker for all of them: each execution may lease it one command, so slots are not exceeded.
            share = None if taker is None else taker._replace(slots=1)
            shares = [share if number < report.free_slots else None for number in range(len(report.leases))]
            told = await asyncio.gather(*map(self._take, report.leases, shares))
        return ReportReply(
            verdicts=tuple(verdict for verdict, _ in told),
            commands=tuple(command for _, commands in told for command in commands),
        )

    async def _take(self, report: LeaseReport, taker: Taker | None) -> tuple[Verdict, tuple[AnyCommand, ...]]:
        command_id, epoch = report.lease.command_id, report.lease.epoch
        run_id, lease = run_and_lease(command_id)
        live = await self._live_of(report.lease)
        run = None if live is None else live.state.runs.get(run_id)
        if live is None or run is None:
            return _refused(command_id), ()
        facts = facts_of(report, run.step, run_id)
        try:
            answer = await live.change(
                lambda turn: decide.report(turn, run_id, facts, lease=lease, asks=report.asks_for_iterations),
                fence=Fence(command_id=command_id, epoch=epoch),
                taker=taker,
            )
        except LeaseLostError:
            return _refused(command_id), ()
        told: decide.Told = answer.given
        verdict = Verdict(
            command_id=command_id,
            verdict="accepted",
            stop=not told.goes_on,
            iterations=told.iterations,
        )
        return verdict, answer.commands

    async def _live_of(self, lease: HeldLease) -> Live | None:
        """The execution of a lease with the lease's step run in it; None where that is over."""
        live = self._live.get(lease.execution_id)
        if live is None and self._shared:
            live = await self.open(lease.execution_id)
            await self._with_keychain(live)
        if live is None or live.state.is_over:
            return None
        run_id, _ = run_and_lease(lease.command_id)
        if run_id not in live.state.runs:
            await live.freshen()
        return live if run_id in live.state.runs else None

    def _check_protocol(self, protocol: int) -> None:
        if abs(protocol - PROTOCOL) > 1:
            raise ProtocolMismatchError(
                f"this server speaks version {PROTOCOL} of the worker protocol, the worker {protocol}: "
                "upgrade the older of the two"
            )

    # --- what leases ask for --------------------------------------------------------------------------------

    async def playbook_source(self, digest: str) -> bytes:
        entry = await self.store.catalog_by_digest(digest)
        if entry is None:
            raise UnknownPlaybookError(f"there is no playbook with the digest {digest}")
        return entry.source

    async def _under(self, lease: HeldLease) -> Live:
        """The execution of a lease that still holds; LeaseLostError where it does not."""
        live = await self._live_of(lease)
        if live is None:
            raise LeaseLostError("the lease is over")
        epoch = live.held.get(lease.command_id)
        if self._shared and epoch != lease.epoch:
            row = await self.store.command(lease.execution_id, lease.command_id)
            epoch = None if row is None or row.worker_id is None else row.epoch
        if epoch != lease.epoch:
            raise LeaseLostError("the lease is over")
        return live

    async def keychain(self, lease: HeldLease) -> dict[str, Any]:
        live = await self._under(lease)
        await self._with_keychain(live)
        return dict(live.keychain or {})

    async def load_body(self, lease: HeldLease, ref: Data) -> Any:  # noqa: ANN401 - plain data
        await self._under(lease)
        return await self._bodies.load(ref)

    async def stored_value(self, ref: Data) -> Any:  # noqa: ANN401 - plain data
        """The value a reference stands for, for people who look at results."""
        return await self._bodies.load(ref)

    async def keep_body(self, lease: HeldLease, key: str, checksum: str, body: bytes) -> None:
        row = BodyRow(
            key=key,
            execution_id=lease.execution_id,
            media_type="application/json",
            checksum=checksum,
            body=body,
        )
        try:
            await self.store.put_body(row)
        except NoetlError as error:
            raise self._not_written(lease.execution_id, error) from error

    async def loop_so_far(self, lease: HeldLease) -> LoopSoFar:
        live = await self._under(lease)
        await live.freshen()
        run = live.state.runs.get(run_and_lease(lease.command_id)[0])
        if run is None or run.loop is None:
            raise LeaseLostError("the lease is over")
        return LoopSoFar(result=loop_results(lease.execution_id, run), collected=dict(run.loop.collected))

    async def heard(self, lease: HeldLease, after: int, limit: int | None = None) -> tuple[Heard, ...]:
        await self._under(lease)
        found = await self.store.events(lease.execution_id, after=after, limit=limit)
        return tuple(
            Heard(
                place=event.seq,
                event_type=event.event_type,
                timestamp=event.timestamp,
                step=event.step,
                step_run_id=event.step_run_id,
                payload=event.payload,
            )
            for event in found
            if event.event_type in HEARD
        )

    async def take_signal(self, lease: HeldLease, name: str, wait_seconds: float) -> TakenSignal | None:
        live = await self._under(lease)
        await live.freshen()
        try:
            async with asyncio.timeout(wait_seconds):
                place, data = await live.next_signal(name, lease.command_id)
        except TimeoutError:
            return None
        return TakenSignal(place=place, data=data)

    # --- children -------------------------------------------------------------------------------------------

    async def child(self, lease: HeldLease, call: ChildCall, wait_seconds: float) -> ChildState:
        await self._under(lease)
        child_id = derived_id(lease.execution_id, call.call_id)
        if not self.is_open(child_id) and await self.store.execution(child_id) is None:
            entry = await self.catalog_entry(call.path, call.version)
            await self.begin(
                entry, call.payload, execution_id=child_id, parent_execution_id=lease.execution_id
            )
        elif not self.is_open(child_id) and not self._shared:
            await self.resume(child_id)  # the process that ran it ended
        live = await self.open(child_id)
        until = asyncio.get_running_loop().time() + wait_seconds
        while not live.state.is_over and (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                async with asyncio.timeout(min(left, LOOK_SECONDS) if self._shared else left):
                    await live.over.wait()
            except TimeoutError:
                await live.freshen()
        state = live.state
        return ChildState(execution_id=child_id, status=state.status, result=state.result, error=state.error)

    async def stop_child(self, lease: HeldLease, call_id: str) -> None:
        """Cancels a child whose caller no longer waits for it: nobody would ever go on with it."""
        try:
            await self._under(lease)
        except LeaseLostError:
            live = await self._live_of(lease)
            if live is not None:
                return  # whoever has the lease now finds the child
        child_id = derived_id(lease.execution_id, call_id)
        if self.is_open(child_id) or await self.store.execution(child_id) is not None:
            await self.cancel(child_id, "the task that called it was stopped")

    async def _after_end(self, execution_id: str) -> None:
        """Ends the children of an execution that is over, and tells its parent."""
        live = await self.open(execution_id)
        for child_id in await self.store.open_children(execution_id):
            await self.cancel(child_id, "the execution that called it is over")
        parent_id = live.parent_execution_id
        if parent_id is not None and await self.store.execution(parent_id) is not None:
            parent = await self.open(parent_id)
            await parent.change(lambda turn: decide.child_ended(turn, execution_id), fresh=True)
        await live.change(lambda turn: None, ended_timers=(ENDED,))

    async def _look_after_children(self, live: Live) -> None:
        """A lease was parked for children: one may have ended before it was."""
        for child_id in waiting_children(live.state):
            row = await self.store.execution(child_id)
            if row is not None and row.finished_at is not None:
                await live.change(partial(decide.child_ended, child_id=child_id))

    # --- writing ------------------------------------------------------------------------------------------

    async def _commit(self, live: Live, turn: Turn, version: int, batch: Sequence[Asked]) -> None:
        change = change_of(
            live, turn, version, batch, next_id=self._ids.next, lease_seconds=self.lease_seconds
        )
        try:
            await self.store.append(change)
        except (AppendConflict, LeaseFenced):
            raise
        # What was decided is not in the log, so the state in memory is not what happened.
        except BaseException as error:
            self._live.pop(live.state.execution_id, None)
            if isinstance(error, NoetlError):
                raise self._not_written(live.state.execution_id, error) from error
            raise
        if self._on_event is not None:
            for event in change.events:
                self._on_event(event)
        self._hand_over(live, change.add_commands, batch)
        if turn.commands or live.state.is_over:
            await self._tell_of_commands(live, turn, change)
        if any(fact.event_type == "signal.received" for fact in turn.facts):
            live.wake_waiters()
        self._set_alarm(live, turn)

    def _hand_over(self, live: Live, rows: Sequence[CommandRow], batch: Sequence[Asked]) -> None:
        """Puts the commands that were leased along into the answers of their takers."""
        for row in rows:
            if row.worker_id is None:
                continue
            command = self._lease(live, row)
            asked = next(each for each in batch if each.taker and each.taker.worker_id == row.worker_id)
            if command is not None:
                asked.commands.append(command)

    async def _tell_of_commands(self, live: Live, turn: Turn, change: Append) -> None:
        """Wakes workers for what is free, and stops those whose work is over."""
        reporters = {fence.command_id for fence in change.fences if not fence.expired}
        over = [name for name in live.held if run_and_lease(name)[0] not in live.state.runs]
        for command_id, wanted in turn.commands.items():
            if wanted in ("hold", "remove", "free"):
                over.append(command_id)
        for command_id in over:
            live.let_go_of_signals(command_id)
            was_held = live.held.pop(command_id, None) is not None
            if was_held and self.on_revoked is not None and command_id not in reporters:
                self.on_revoked(command_id)  # whoever reported hears of it in the verdict
        free: dict[str, list[str]] = {}
        for row in change.add_commands:
            if row.worker_id is None:
                free.setdefault(row.pool, []).append(wake_key(row.command_id, 0))
        for command_id, wanted in turn.commands.items():
            run = live.state.runs.get(run_and_lease(command_id)[0])
            if wanted == "free" and run is not None:
                key = wake_key(command_id, live.state.seq)
                free.setdefault(live.plan.pool(run.step), []).append(key)
        for pool, keys in free.items():
            await self.bus.publish(pool, keys)

    def _set_alarm(self, live: Live, turn: Turn) -> None:
        state, due = live.state, live.next_due()
        if due != live.due:
            live.due = due
            self._alarms.set_at(state.execution_id, due)
        if state.is_over and not live.over.is_set():
            if live.parent_execution_id is not None or live.plan.has_children:
                self._alarms.run(self._after_end(state.execution_id))
        elif any(fact.event_type == "step.paused" for fact in turn.facts) and waiting_children(state):
            self._alarms.run(self._look_after_children(live))

    async def _wake(self, execution_id: str) -> None:
        live = await self.open(execution_id)
        await self._with_keychain(live)
        await live.change(decide.wake, fresh=True)
        if live.due is not None and live.due == live.next_due():
            self._alarms.set_at(execution_id, live.due, again=True)

    def _not_written(self, execution_id: str, error: NoetlError) -> NotWrittenError:
        """Tells of it at once: some of those who report only hear that their lease is over."""
        problem = NotWrittenError(error.message)
        if self.on_not_written is not None:
            self.on_not_written(execution_id, problem)
        return problem

    # --- what every process over a shared store does -------------------------------------------------------

    async def run_timers(self) -> None:
        """Wakes executions that have something due, until it is cancelled."""
        while True:
            for timer in await self.store.timers_due(self.clock.now()):
                if timer.timer_id == DUE:
                    await self._wake(timer.execution_id)
                else:
                    await self._after_end(timer.execution_id)
            await asyncio.sleep(SWEEP_SECONDS)

    async def run_reaper(self) -> None:
        """Takes back work whose worker is lost, until it is cancelled."""
        while True:
            for row in await self.store.expired():
                await self.lose(row)
            await asyncio.sleep(SWEEP_SECONDS)

    async def lose(self, row: CommandRow) -> None:
        """Takes back a lease that has run out."""
        live = await self.open(row.execution_id)
        run_id, lease = run_and_lease(row.command_id)
        await self._with_keychain(live)
        fence = Fence(command_id=row.command_id, epoch=row.epoch, expired=True)
        try:
            await live.change(lambda turn: decide.lose(turn, run_id, lease), fence=fence, fresh=True)
        except LeaseLostError:
            return  # it was renewed, or somebody else has taken it back


def derived_id(*parts: str) -> str:
    """An execution id that follows from what it is for."""
    digest = hashlib.sha256("|".join(parts).encode()).digest()
    return str(int.from_bytes(digest[:8], "big") >> 1)


def _refused(command_id: str) -> Verdict:
    return Verdict(command_id=command_id, verdict="refused", stop=True, reason="the lease is over")
