"""Executions in memory, over one store: opened from their logs, changed by the engine, written.

Whatever is decided is written here before anybody hears of it. This knows nothing of workers but that
rows of the queue are to be told of.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from noetl.bus.in_process import InProcessBus
from noetl.bus.protocol import Bus, wake_key
from noetl.control.alarms import Alarms
from noetl.control.bodies import LoadStored, StoredBodies
from noetl.control.changes import DUE, ENDED, change_of
from noetl.control.live import UNKNOWN, Asked, Live, LogReader, Stopwatch
from noetl.control.newest import CatalogReader
from noetl.control.replay import replayed
from noetl.engine import decide
from noetl.engine.leases import leased, run_and_lease
from noetl.engine.parking import waiting_children
from noetl.engine.plan import Plan
from noetl.engine.state import Data, State
from noetl.engine.turn import Turn
from noetl.errors import NoetlError
from noetl.ids import Clock, Snowflakes, timestamp
from noetl.playbook.load import load
from noetl.playbook.model import Playbook
from noetl.records.command import Command, HeldLease, PlaybookVersion
from noetl.records.event import Event
from noetl.records.protocols import NotWrittenError
from noetl.records.report import (
    AnyCommand,
)
from noetl.records.tool import ToolDescription
from noetl.secrets.keychain import KeychainError
from noetl.store.protocol import (
    Append,
    AppendConflict,
    CatalogEntry,
    CommandRow,
    LeaseFenced,
    Store,
)

MOST_IN_MEMORY: Final = 2_000
"""Executions kept decoded; the one that was used longest ago goes first."""
ENDS_OF_LEASES: Final = frozenset({"hold", "remove", "free"})
"""What becomes of a row of the queue that leaves no lease of it in force."""
FOR_EVER: Final = 10 * 365 * 86_400.0
"""The lease of a worker that shares the process: they die together."""


class UnknownExecutionError(NoetlError):
    code = "execution.unknown"


class InvalidPlaybookError(NoetlError):
    code = "playbook.invalid"


class UnknownPlaybookError(NoetlError):
    code = "playbook.unknown"


class Origin(NamedTuple):
    """The execution that a keychain is for, and what whoever asked for it sent along."""

    execution_id: str
    called_by: str | None = None
    """The execution whose task calls it just now: what was sent along with that is for this one too.

    Whoever asks from outside may name a parent as well, but does not come by its secrets.
    """
    secrets: Mapping[str, str] = MappingProxyType({})
    """Values of the caller for variables that the keychain names; only of one that is just being started."""

    def __repr__(self) -> str:
        """Without the values: they must not reach a log by accident."""
        return f"Origin(execution_id={self.execution_id!r}, secrets of {sorted(self.secrets)})"


Prepare = Callable[[Playbook, Data, Origin], Awaitable[tuple[dict[str, Any], Data | None]]]
"""Gives the keychain of a playbook that is to be started, or what keeps it from being started."""


async def _nothing_to_prepare(
    playbook: Playbook, payload: Data, origin: Origin
) -> tuple[dict[str, Any], Data | None]:
    return {}, None


class Executions:
    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, ToolDescription],
        *,
        clock: Clock,
        bus: Bus | None = None,
        prepare: Prepare = _nothing_to_prepare,
        on_event: Callable[[Event], None] | None = None,
        on_decided: Callable[[float], None] | None = None,
        load_stored: LoadStored | None = None,
        lease_seconds: float = FOR_EVER,
        shared: bool = False,
        distributed: bool = False,
        node: int = 0,
    ) -> None:
        """`shared`: other processes write the store too. `distributed`: workers share out loops.

        `on_decided` hears how many seconds each decision took.
        """
        self.store = store
        self.clock = clock
        self.bus = bus or InProcessBus()
        self.lease_seconds = lease_seconds
        self._kinds = kinds
        self._ids = Snowflakes(clock, node=node)
        self._prepare = prepare
        self._on_event = on_event
        self._on_decided = on_decided
        self._bodies = StoredBodies(store, load_stored)
        self._catalog = CatalogReader(store)
        self._shared = shared
        self._distributed = distributed
        self._claiming: AbstractAsyncContextManager[None] = nullcontext() if shared else asyncio.Lock()
        """Held from a claim in the store until its lease is known here."""
        self._live: dict[str, Live] = {}
        self._opening: dict[str, asyncio.Future[Live]] = {}
        self._plans: dict[str, Plan] = {}
        self._alarms = Alarms(clock, self._wake)
        self.on_not_written: Callable[[str, BaseException], None] | None = None
        """Hears of each execution that cannot go on because the store refused a change to it."""
        self.on_revoked: Callable[[str], None] | None = None
        """Hears of each command of a worker in this process that is over, so that its work is stopped."""

    # --- executions in memory -----------------------------------------------------------------------------

    async def open(self, execution_id: str) -> Live:
        """The execution in memory, replayed from its log if it was not there."""
        live = self._live.pop(execution_id, None)
        if live is not None:
            self._live[execution_id] = live  # now the one that was used last
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
        return await replayed(self.store, execution_id)

    async def _with_keychain(self, live: Live) -> None:
        """Resolves the keychain of an execution that another process started; one that is over needs none."""
        if live.keychain is None and not live.state.is_over:
            origin = Origin(live.state.execution_id)
            payload = await self.payload_of(live) if live.plan.playbook.keychain else {}
            keychain, problem = await self._prepare(live.plan.playbook, payload, origin)
            if problem is not None:
                raise KeychainError(str(problem["message"]))
            live.use_keychain(keychain)

    async def with_secrets_known(self, execution_id: str) -> Live:
        """An execution that takes data from outside: a secret that stands in it is kept out of the log."""
        live = await self.open(execution_id)
        await self._with_keychain(live)
        return live

    async def payload_of(self, live: Live) -> Data:
        """What an execution was started with, whole."""
        found: Data = await self._bodies.without_references(live.state.payload)
        return found

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
            reader=LogReader(
                self.replay, self.store.events, lambda _, ref: self._bodies.load(ref), self.store.command
            ),
            keychain=keychain if plan.playbook.keychain else {},
            parent_execution_id=parent,
            shared=self._shared,
            distributed=self._distributed,
            stopwatch=None if self._on_decided is None else Stopwatch(self.clock.monotonic, self._on_decided),
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

    # --- writing ------------------------------------------------------------------------------------------

    async def _commit(self, live: Live, turn: Turn, version: int, batch: Sequence[Asked]) -> None:
        change = change_of(live, turn, version, batch, ids=self._ids, lease_seconds=self.lease_seconds)
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
            _note_ended_leases(live, turn, batch)
            await self._tell_of_commands(live, turn, change)
        if "signal.received" in turn.happened:
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
            if wanted in ENDS_OF_LEASES:
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
        elif "step.paused" in turn.happened and waiting_children(state):
            self._alarms.run(self._look_after_children(live))

    async def _wake(self, execution_id: str) -> None:
        live = await self.open(execution_id)
        await self._with_keychain(live)
        if self._shared:
            live.due = UNKNOWN  # the row that led here is written anew, whoever wrote it
        await live.change(decide.wake, fresh=True, ended_timers=(DUE,) if self._shared else ())
        if live.due is not None and live.due == live.next_due():
            self._alarms.set_at(execution_id, live.due, again=True)

    def _not_written(self, execution_id: str, error: NoetlError) -> NotWrittenError:
        """Tells of it at once: some of those who report only hear that their lease is over."""
        problem = NotWrittenError(error.message)
        if self.on_not_written is not None:
            self.on_not_written(execution_id, problem)
        return problem

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

    async def cancel(self, execution_id: str, reason: str | None = None) -> None:
        live = await self.open(execution_id)
        if reason is not None:
            with contextlib.suppress(KeychainError):  # it ends all the same
                await self._with_keychain(live)
        await live.change(lambda turn: decide.cancel(turn, reason))


def _note_ended_leases(live: Live, turn: Turn, batch: Sequence[Asked]) -> None:
    """Whoever reported may have been told to go on before something else in the same turn ended the lease."""
    for asked in batch:
        if asked.fence is not None:
            command_id = asked.fence.command_id
            is_run_over = run_and_lease(command_id)[0] not in live.state.runs
            asked.lease_is_over = is_run_over or turn.commands.get(command_id) in ENDS_OF_LEASES
