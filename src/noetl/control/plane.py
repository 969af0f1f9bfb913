"""The control plane over one store: starts executions, hands out their work, takes reports.

It is the only writer of the store. It decides nothing itself: it brings what happened to the engine,
writes what the engine decided, and hands the work that came of it to whoever asks.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from noetl.control.live import HEARD, Heard, Live
from noetl.control.timers import Timers
from noetl.engine import decide
from noetl.engine.bodies import PARTS_STORE, is_ref
from noetl.engine.facts import Fact
from noetl.engine.fold import fold
from noetl.engine.loops import LOG_STORE
from noetl.engine.plan import Plan
from noetl.engine.reuse import Reuse
from noetl.engine.state import Data, State
from noetl.engine.turn import Turn
from noetl.errors import NoetlError
from noetl.ids import Clock, Snowflakes, timestamp
from noetl.playbook.load import load
from noetl.playbook.model import Playbook
from noetl.records.event import Event
from noetl.records.report import LeaseReport, ReportedEvent, Verdict
from noetl.records.result_ref import ref_from_data
from noetl.records.tool import ToolDescription
from noetl.store.protocol import Append, BodyRow, CatalogEntry, CommandRow, ExecutionRow, Store

SNAPSHOT_EVERY = 5_000
"""Events after which a state is kept, so that a later start replays at most this many."""


class UnknownExecutionError(NoetlError):
    code = "execution.unknown"


class InvalidPlaybookError(NoetlError):
    code = "playbook.invalid"


class UnknownPlaybookError(NoetlError):
    code = "playbook.unknown"


class NotWrittenError(NoetlError):
    """The store refused what was decided: it has not happened, and a later process may go on."""

    code = "store.error"


Prepare = Callable[[Playbook, Data], Awaitable[tuple[dict[str, Any], Data | None]]]
"""Gives the keychain of a playbook that is to be started, or what keeps it from being started."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A step run handed to a worker in the same process."""

    live: Any
    run_id: str
    epoch: int


class ControlPlane:
    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, ToolDescription],
        *,
        clock: Clock,
        on_event: Callable[[Event], None] | None = None,
        load_stored: Callable[[Data], Any] | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self._kinds = kinds
        self._ids = Snowflakes(clock)
        self._on_event = on_event
        self._load_stored = load_stored
        self._live: dict[str, Live] = {}
        self._plans: dict[str, Plan] = {}
        self._ready: asyncio.Queue[Work] = asyncio.Queue()
        self._timers = Timers(clock)
        self._giving_up: set[asyncio.Task[None]] = set()
        self.stopping = False
        """Set when the process ends: what is cancelled from then on is gone on with by a later one."""
        self.on_not_written: Callable[[str, BaseException], None] | None = None
        """Hears of each execution that cannot go on because the store refused a change to it."""
        self.on_revoked: Callable[[str], None] | None = None
        """Hears of each step run that is over, so that what still runs for it is stopped."""

    # --- executions -------------------------------------------------------------------------------------

    async def start(
        self,
        entry: CatalogEntry,
        payload: Data,
        *,
        keychain: Mapping[str, Any] | None = None,
        problem: Data | None = None,
        execution_id: str | None = None,
        parent_execution_id: str | None = None,
        reuse: Reuse | None = None,
    ) -> str:
        """Starts an execution of a registered playbook. `problem`: why it cannot be, to be recorded."""
        execution_id = execution_id or self._ids.next()
        plan = self.plan(entry)
        live = self._opened(
            plan, State(execution_id=execution_id), entry, keychain or {}, parent_execution_id
        )
        await live.change(lambda turn: decide.request(turn, payload, problem=problem, reuse=reuse))
        return execution_id

    async def resume(self, execution_id: str, keychain: Mapping[str, Any] | None = None) -> State:
        """Opens an execution again, from its log, and goes on with it."""
        live = await self.open(execution_id, keychain)
        if not live.state.is_over:
            # Asked for when it is decided: work may be handed out until then.
            await live.change(lambda turn: decide.resume(turn, frozenset(live.epochs)))
        return live.state

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
        """The state of an execution once it is over."""
        live = await self.open(execution_id)
        if not live.state.is_over:
            await live.over.wait()
        return live.state

    async def state(self, execution_id: str) -> State:
        return (await self.open(execution_id)).state

    async def open(self, execution_id: str, keychain: Mapping[str, Any] | None = None) -> Live:
        """The execution in memory, replayed from its log if it was not there."""
        live = self._live.get(execution_id)
        if live is not None:
            if keychain:
                live.use_keychain(keychain)
            return live
        row = await self.store.execution(execution_id)
        if row is None:
            raise UnknownExecutionError(f"there is no execution {execution_id} in this store")
        entry = await self.store.catalog_by_digest(row.playbook_digest)
        if entry is None:
            raise UnknownExecutionError(f"the playbook of execution {execution_id} is not in this store")
        state = await self.replay(execution_id)
        return self._opened(self.plan(entry), state, entry, keychain or {}, row.parent_execution_id)

    async def replay(self, execution_id: str) -> State:
        """The state of an execution by its log alone."""
        kept = await self.store.snapshot(execution_id)
        state = State(execution_id=execution_id)
        if kept is not None:
            state = msgspec.msgpack.decode(kept[1], type=State)
        for event in await self.store.events(execution_id, after=state.seq):
            fold(state, event)
        return state

    def keep_plan(self, entry: CatalogEntry, playbook: Playbook) -> None:
        """Spares the loading of a playbook that whoever registered it has loaded."""
        if entry.digest not in self._plans:
            self._plans[entry.digest] = Plan(playbook)

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
        self, plan: Plan, state: State, entry: CatalogEntry, keychain: Mapping[str, Any], parent: str | None
    ) -> Live:
        live = Live(
            plan,
            state,
            entry,
            now=lambda: timestamp(self.clock.now()),
            commit=self._commit,
            load_body=self.load_body,
            keychain=keychain,
            parent_execution_id=parent,
        )
        if parent in self._live:
            live.redactor.share(self._live[parent].redactor)  # a call may have handed secrets down
        if state.is_over:
            live.over.set()
        self._live[state.execution_id] = live
        return live

    def is_open(self, execution_id: str) -> bool:
        """Whether an execution is in memory, and so under way in this process."""
        return execution_id in self._live

    def opened(self, execution_id: str) -> Live:
        """An execution that is in memory."""
        return self._live[execution_id]

    def is_current(self, live: Live) -> bool:
        """Whether an execution is still the one in memory: not after something of it could not be written."""
        return self._live.get(live.state.execution_id) is live

    def next_id(self) -> str:
        """An id for an execution that is still to be started."""
        return self._ids.next()

    async def settle(self) -> None:
        """Waits until everything that was decided is written."""
        while self._giving_up:
            await asyncio.wait(self._giving_up)
        for live in list(self._live.values()):
            await live.settle()

    def forget(self, execution_id: str) -> None:
        """Drops a finished execution from memory."""
        self._live.pop(execution_id, None)

    async def run_child(
        self, parent_id: str, action_id: str, path: str, version: int | None, payload: Data, prepare: Prepare
    ) -> State:
        """Starts a child execution, or goes on with the one this call began before, and waits for its end.

        The child's id follows from the call, so a call that is made again finds its child.
        """
        digest = hashlib.sha256(f"{parent_id}|{action_id}".encode()).digest()
        child_id = str(int.from_bytes(digest[:8], "big") >> 1)
        if await self.store.execution(child_id) is None:
            entry = await self.store.catalog_entry(path, version)
            if entry is None:
                wanted = path if version is None else f"{path}@{version}"
                raise UnknownPlaybookError(f"there is no playbook `{wanted}` in the catalog")
            keychain, problem = await prepare(self.plan(entry).playbook, payload)
            await self.start(
                entry,
                payload,
                keychain=keychain,
                problem=problem,
                execution_id=child_id,
                parent_execution_id=parent_id,
            )
        elif not self.is_open(child_id):
            live = await self.open(child_id)
            keychain, _ = await prepare(live.plan.playbook, live.state.payload)
            await self.resume(child_id, keychain)
        try:
            return await self.finished(child_id)
        except asyncio.CancelledError:
            parent = self._live.get(parent_id)
            if not self.stopping or parent is None or parent.state.is_over:
                self._give_up(child_id)
            raise

    def _give_up(self, child_id: str) -> None:
        """Cancels a child whose parent no longer waits for it: nobody would ever go on with it."""
        task = asyncio.create_task(self.cancel(child_id, "the task that called it was stopped"))
        self._giving_up.add(task)
        task.add_done_callback(self._giving_up.discard)

    # --- work --------------------------------------------------------------------------------------------

    async def claim(self) -> Work:
        """The next step run, when there is one."""
        while True:
            work = await self._ready.get()
            if work.run_id in work.live.state.runs and work.live.epochs.get(work.run_id) == work.epoch:
                return work

    async def report(self, report: LeaseReport, run_id: str) -> Verdict:
        """Takes what a worker tells about a step run; answers once it is committed."""
        live = self._live.get(report.execution_id)
        if live is None or live.epochs.get(run_id) != report.epoch or run_id not in live.state.runs:
            return Verdict(command_id=run_id, verdict="refused", reason="the lease is over")
        step = live.state.runs[run_id].step
        facts = [_fact(event, report.execution_id, step, run_id) for event in report.events]
        goes_on = await live.change(lambda turn: decide.report(turn, run_id, facts))
        return Verdict(command_id=run_id, verdict="accepted", stop=not goes_on)

    # --- writing ------------------------------------------------------------------------------------------

    async def _commit(self, live: Live, turn: Turn, version: int) -> None:
        state = live.state
        events = tuple(
            _event(fact, self._ids.next(), state.execution_id, version + number)
            for number, fact in enumerate(turn.facts, start=1)
        )
        ended = [str(fact.step_run_id) for fact in turn.facts if fact.event_type in _RUN_ENDS]
        now = timestamp(self.clock.now())
        change = Append(
            execution_id=state.execution_id,
            version=version,
            events=events,
            execution=self._row(live),
            add_commands=tuple(
                CommandRow(
                    command_id=run_id,
                    execution_id=state.execution_id,
                    step=state.runs[run_id].step,
                    step_run_id=run_id,
                    created_at=now,
                )
                for run_id in turn.ready
                if run_id in state.runs
            ),
            remove_commands=tuple(ended),
            remove_all_commands=state.is_over,
            remove_all_timers=state.is_over,
            bodies=tuple(
                BodyRow(
                    key=stored.key,
                    execution_id=state.execution_id,
                    media_type="application/json",
                    checksum=stored.checksum,
                    body=stored.body,
                )
                for stored in turn.stored
            ),
            vars=_vars_of(turn),
            snapshot=self._snapshot(state, version),
        )
        try:
            await self.store.append(change)
        # What was decided is not in the log, so the state in memory is not what happened.
        except BaseException as error:
            self._live.pop(state.execution_id, None)
            if isinstance(error, NoetlError):
                raise self._not_written(state.execution_id, error) from error
            raise
        if self._on_event is not None:
            for event in events:
                self._on_event(event)
        if any(fact.event_type == "signal.received" for fact in turn.facts):
            live.wake_waiters()
        live.tell(turn.facts, version)
        self._revoke_ended(live)
        self._timers.set_after(live, turn)
        self._hand_out(live, turn)

    async def fire_timer(self, live: Live, run_id: str, timer_id: str) -> None:
        await live.change(lambda turn: decide.fire(turn, run_id, timer_id))

    def _revoke_ended(self, live: Live) -> None:
        """Tells the worker which of its step runs are over."""
        for run_id in [run_id for run_id in live.epochs if run_id not in live.state.runs]:
            del live.epochs[run_id]
            if self.on_revoked is not None:
                self.on_revoked(run_id)

    def _snapshot(self, state: State, version: int) -> bytes | None:
        if state.seq // SNAPSHOT_EVERY == version // SNAPSHOT_EVERY:
            return None
        return msgspec.msgpack.encode(state)

    def _row(self, live: Live) -> ExecutionRow:
        state, playbook = live.state, live.plan.playbook
        return ExecutionRow(
            execution_id=state.execution_id,
            status=state.status,
            name=playbook.name,
            path=playbook.path,
            version=live.entry.version,
            dialect=playbook.dialect,
            requested_at=state.requested_at,
            finished_at=state.finished_at,
            parent_execution_id=live.parent_execution_id,
            error=state.error,
            playbook_digest=live.entry.digest,
        )

    def _hand_out(self, live: Live, turn: Turn) -> None:
        for run_id in turn.ready:
            if run_id in live.state.runs:
                epoch = live.epochs.get(run_id, 0) + 1
                live.epochs[run_id] = epoch
                self._ready.put_nowait(Work(live=live, run_id=run_id, epoch=epoch))

    async def keep_body(self, execution_id: str, key: str, checksum: str, body: bytes) -> None:
        """Stores a body before the event that refers to it is reported."""
        row = BodyRow(
            key=key,
            execution_id=execution_id,
            media_type="application/json",
            checksum=checksum,
            body=body,
        )
        try:
            await self.store.put_body(row)
        except NoetlError as error:
            raise self._not_written(execution_id, error) from error

    def _not_written(self, execution_id: str, error: NoetlError) -> NotWrittenError:
        """Tells of it at once: some of those who report only hear that their lease is over."""
        problem = NotWrittenError(error.message)
        if self.on_not_written is not None:
            self.on_not_written(execution_id, problem)
        return problem

    async def heard_since(self, live: Live, place: int, *, limit: int | None = None) -> list[Heard]:
        """What a step can hear of that was committed after a place in the log, `limit` events of it."""
        found = await self.store.events(live.state.execution_id, after=place, limit=limit)
        return [Heard(event.seq, event) for event in found if event.event_type in HEARD]

    # --- stored bodies -------------------------------------------------------------------------------------

    async def load_body(self, live: Live, ref: Data) -> Any:  # noqa: ANN401 - plain data
        """The value a reference stands for, checked against its checksum."""
        if ref["store"] == LOG_STORE:
            # A result taken over from an earlier execution lies in that one's log.
            execution_id = ref["ref"].removeprefix("noetl://").partition("/")[0]
            found = await self.store.iteration_results(execution_id, ref["key"])
            results: list[Any] = [None] * ref["schema_hint"]["length"]
            for index, result in found:
                nested = ref_from_data(result)
                results[index] = result if nested is None else await self.load_body(live, result)
            return results
        if ref["store"] == PARTS_STORE:
            return await self._load_parts(live, ref["parts"])
        if ref["store"] == "database":
            row = await self.store.body(ref["key"])
            if row is None:
                raise NoetlError(f"the stored result {ref['ref']} is gone")
            if hashlib.sha256(row.body).hexdigest() != ref["checksum"]:
                raise NoetlError(f"the stored result {ref['ref']} does not have its checksum")
            return msgspec.json.decode(row.body)
        if self._load_stored is None:
            raise NoetlError(f"nothing here can load the stored result {ref['ref']}")
        return await self._load_stored(ref)

    async def _load_parts(self, live: Live, parts: list[Any]) -> list[Any]:
        whole: list[Any] = []
        for part in parts:
            if not is_ref(part):
                whole.append(part)
            elif part.get("spread"):
                whole.extend(await self.load_body(live, part))
            else:
                whole.append(await self.load_body(live, part))
        return whole


_RUN_ENDS = frozenset({"step.done", "step.failed", "step.skipped", "loop.done"})


def _vars_of(turn: Turn) -> Data:
    found: Data = {}
    for fact in turn.facts:
        if fact.event_type == "vars.set":
            found.update(fact.payload["vars"])
    return found


def _fact(event: ReportedEvent, execution_id: str, step: str, run_id: str) -> Fact:
    return Fact(
        event_type=event.event_type,
        timestamp=event.timestamp,
        source="worker",
        entity_type=event.entity_type,
        entity_id=event.entity_id,
        status=event.status,
        parent_id=event.parent_id,
        workflow_run_id=execution_id,
        step=step,
        step_run_id=run_id,
        task_run_id=event.task_run_id,
        task_label=event.task_label,
        iteration_id=event.iteration_id,
        iteration=event.iteration,
        attempt=event.attempt,
        page=event.page,
        action_id=event.action_id,
        payload=event.payload,
    )


def _event(fact: Fact, event_id: str, execution_id: str, seq: int) -> Event:
    return Event(
        event_id=event_id,
        execution_id=execution_id,
        seq=seq,
        event_type=fact.event_type,
        timestamp=fact.timestamp,
        source=fact.source,
        entity_type=fact.entity_type,
        entity_id=fact.entity_id,
        status=fact.status,
        parent_id=fact.parent_id,
        workflow_run_id=fact.workflow_run_id,
        step=fact.step,
        step_run_id=fact.step_run_id,
        task_run_id=fact.task_run_id,
        task_label=fact.task_label,
        iteration_id=fact.iteration_id,
        iteration=fact.iteration,
        attempt=fact.attempt,
        page=fact.page,
        action_id=fact.action_id,
        payload=fact.payload,
    )
