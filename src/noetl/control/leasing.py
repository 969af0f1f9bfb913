"""The control plane as workers see it: claims, beats and reports, and what they ask for under a lease."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from noetl.control.changes import facts_of
from noetl.control.executions import Executions, Origin, UnknownPlaybookError
from noetl.control.families import Families, NotTheirsError, owners_of
from noetl.control.live import Live, Taker
from noetl.control.reports import objection
from noetl.engine import decide
from noetl.engine.bodies import refuse_references
from noetl.engine.fold import HEARD
from noetl.engine.leases import run_and_lease
from noetl.engine.loops import loop_results
from noetl.engine.reuse import Reuse
from noetl.engine.state import Data, State
from noetl.engine.turn import Turn
from noetl.errors import NoetlError
from noetl.records.command import HeldLease
from noetl.records.protocols import LeaseLostError
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
from noetl.secrets.keychain import KeychainError
from noetl.store.protocol import (
    AppendConflict,
    BodyRow,
    CatalogEntry,
    CommandRow,
    Fence,
)

logger = logging.getLogger(__name__)

MOST_COMMANDS: Final = 100_000
MOST_CALLERS: Final = 50
"""Executions of which each was called by the one before it."""
LOOK_SECONDS: Final = 0.5
"""How often a child that another process runs is looked at."""


class ProtocolMismatchError(NoetlError):
    """A worker and a server that are too far apart to understand each other."""

    code = "worker.protocol"


class TooDeepError(NoetlError):
    code = "playbook.too_deep"


class Leasing(Executions):
    """Implements `noetl.records.protocols.WorkSource`."""

    # --- work --------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> tuple[AnyCommand, ...]:
        self._check_protocol(claim.protocol)
        until = asyncio.get_running_loop().time() + claim.wait_seconds
        while True:
            async with self._claiming:
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
        try:
            await self._with_keychain(live)
        except KeychainError as error:
            # Another server may have what is missing here; the others of the same claim need not wait for it.
            logger.warning("execution %s cannot go on here: %s", row.execution_id, error.message)
            return None
        found: AnyCommand | None = await live.look(lambda turn: self._lease(live, row), last_seq=row.last_seq)
        return found

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
        live = await self._live_of(report.lease)
        if live is None:
            return _refused(command_id), ()
        run = live.state.runs.get(run_and_lease(command_id)[0]) if self._shared else None
        problem = None if run is None else objection(report, live.plan, run.step)
        if problem is not None:
            logger.warning("a report on %s is refused: %s", command_id, problem)
            return _refused(command_id, problem), ()
        try:
            answer = await live.change(
                lambda turn: _reported(turn, report),
                fence=Fence(command_id=command_id, epoch=epoch),
                taker=taker,
            )
        except LeaseLostError:
            return _refused(command_id), ()
        told: decide.Told = answer.given
        verdict = Verdict(
            command_id=command_id,
            verdict="accepted",
            stop=answer.lease_is_over or not told.goes_on,
            iterations=told.iterations,
        )
        return verdict, answer.commands

    async def _live_of(self, lease: HeldLease) -> Live | None:
        """The execution of a lease; None where that is over."""
        live = self._live.get(lease.execution_id)
        if live is None and self._shared:
            live = await self.open(lease.execution_id)
            await self._with_keychain(live)
        return None if live is None or live.over.is_set() else live

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
        """The execution of a lease that still holds; LeaseLostError where it does not.

        Another process may have taken back what this one gave out, so the store is asked.
        """
        live = await self._live_of(lease)
        if live is None:
            raise LeaseLostError("the lease is over")
        epoch = live.held.get(lease.command_id)
        if self._shared:
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
        for owner in owners_of(ref) - {lease.execution_id}:
            if not await Families(self.store).share(lease.execution_id, owner):
                raise NotTheirsError(f"the stored result {ref['ref']} has nothing to do with this execution")
        return await self._bodies.load(ref)

    async def stored_value(self, ref: Data) -> Any:  # noqa: ANN401 - plain data
        """The value a reference stands for, for people who look at results."""
        return await self._bodies.load(ref)

    async def keep_body(self, lease: HeldLease, key: str, checksum: str, body: bytes) -> None:
        await self._under(lease)
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
        found: LoopSoFar | None = await live.look(lambda turn: _so_far(turn, lease))
        if found is None:
            raise LeaseLostError("the lease is over")
        return found

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
        found = await live.next_signal(name, lease.command_id, wait_seconds)
        return None if found is None else TakenSignal(place=found[0], data=found[1])

    # --- children -------------------------------------------------------------------------------------------

    async def child(self, lease: HeldLease, call: ChildCall, wait_seconds: float) -> ChildState:
        live = await self._under(lease)
        if not live.plan.has_children:
            raise UnknownPlaybookError("a playbook without a task of kind `playbook` calls no other one")
        child_id = derived_id(lease.execution_id, call.call_id)
        if not self.is_open(child_id) and await self.store.execution(child_id) is None:
            entry = await self.catalog_entry(call.path, call.version)
            await self._check_depth(lease.execution_id, call.path)
            await self.begin(
                entry,
                call.payload,
                execution_id=child_id,
                parent_execution_id=lease.execution_id,
                is_called=True,
            )
            await self._end_orphan(lease, child_id)
        elif not self.is_open(child_id) and not self._shared:
            await self.resume(child_id)  # the process that ran it ended
        live = await self.open(child_id)
        until = asyncio.get_running_loop().time() + wait_seconds
        while not live.over.is_set() and (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                async with asyncio.timeout(min(left, LOOK_SECONDS) if self._shared else left):
                    await live.over.wait()
            except TimeoutError:
                await live.freshen()
        state = live.state
        return ChildState(execution_id=child_id, status=state.status, result=state.result, error=state.error)

    async def _check_depth(self, execution_id: str, path: str) -> None:
        """A playbook that calls itself, if only by others, would never come to an end."""
        above: str | None = execution_id
        for _ in range(MOST_CALLERS):
            row = None if above is None else await self.store.execution(above)
            if row is None:
                return
            above = row.parent_execution_id
        raise TooDeepError(
            f"`{path}` is called by playbooks that call each other {MOST_CALLERS} deep: does one call itself?"
        )

    async def _end_orphan(self, lease: HeldLease, child_id: str) -> None:
        """Its caller may have ended by another process meanwhile, and that did not know of this child."""
        caller = await self.store.execution(lease.execution_id) if self._shared else None
        if caller is not None and caller.finished_at is not None:
            await self.cancel(child_id, "the execution that called it is over")

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

    # --- beginning and going on ---

    async def begin(
        self,
        entry: CatalogEntry,
        payload: Data,
        *,
        execution_id: str | None = None,
        parent_execution_id: str | None = None,
        reuse: Reuse | None = None,
        trace: str | None = None,
        secrets: Mapping[str, str] | None = None,
        is_called: bool = False,
    ) -> str:
        """Starts an execution of a registered playbook; one that has the given id already is left alone.

        `is_called`: by a task of its parent, which shares with it what was sent along.
        """
        if not is_called:
            refuse_references(payload, "the payload")
        chosen = execution_id or self._ids.next()
        plan = self.plan(entry)
        origin = Origin(chosen, parent_execution_id if is_called else None, secrets or {})
        keychain, problem = await self._prepare(plan.playbook, payload, origin)
        known = None if execution_id is None else self._live.get(chosen)
        if known is not None and await known.look(lambda turn: turn.state.seq):
            return chosen  # another object for it would know nothing of the leases this one has given
        live = self._opened(
            plan, State(execution_id=chosen), entry, keychain=keychain, parent=parent_execution_id
        )
        try:
            answer = await live.change(
                lambda turn: decide.request(turn, payload, problem=problem, reuse=reuse, trace=trace)
            )
            is_ours = bool(answer.given)
        except AppendConflict:
            is_ours = False
        if is_ours:
            return chosen
        self._live.pop(chosen, None)  # what is in memory here is not what was started
        if execution_id is not None:
            return chosen
        return await self.begin(  # another server has drawn the same id
            entry,
            payload,
            parent_execution_id=parent_execution_id,
            reuse=reuse,
            trace=trace,
            secrets=secrets,
        )

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry:
        entry = await self._catalog.entry(path, version)
        if entry is None:
            wanted = path if version is None else f"{path}@{version}"
            raise UnknownPlaybookError(f"there is no playbook `{wanted}` in the catalog")
        return entry

    async def resume(self, execution_id: str) -> None:
        """Goes on with an execution that was paused, or whose process ended."""
        live = await self.open(execution_id)
        # By the log: what is in memory may have been decided and not be written.
        if await live.look(lambda turn: turn.state.is_over):
            return
        await self._with_keychain(live)
        is_decided = False
        while not is_decided:
            place, idle = await self._idle_commands(live)

            def act(turn: Turn, place: int = place, idle: frozenset[str] = idle) -> bool:
                if (idle or turn.state.status == "paused") and turn.state.seq != place:
                    return False  # it may have changed since it was looked at
                decide.resume(turn, idle)
                return True

            is_decided = (await live.change(act, fresh=True)).given

    async def _idle_commands(self, live: Live) -> tuple[int, frozenset[str]]:
        """The commands that nobody has nor can claim, and the place in the log at which that was so.

        A claim does not stand in the log, but none takes these: they are held back, or leased to a worker of
        a process that ended. Where other processes have workers too, theirs may be alive.
        """
        async with self._claiming:  # else a lease could be in the store whose worker is not known here yet
            place: int = await live.look(lambda turn: turn.state.seq)
            rows = await self.store.commands(execution_id=live.state.execution_id, limit=MOST_COMMANDS)
            return place, frozenset(
                row.command_id
                for row in rows
                if row.is_held
                or (row.worker_id is not None and not self._shared and row.command_id not in live.held)
            )


def derived_id(*parts: str) -> str:
    """An execution id that follows from what it is for."""
    digest = hashlib.sha256("|".join(parts).encode()).digest()
    return str(int.from_bytes(digest[:8], "big") >> 1)


def _reported(turn: Turn, report: LeaseReport) -> decide.Told:
    run_id, lease = run_and_lease(report.lease.command_id)
    run = turn.state.runs.get(run_id)
    if run is None:
        return decide.Told(goes_on=False)
    facts = facts_of(report, run.step, run_id)
    return decide.report(turn, run_id, facts, lease=lease, asks=report.asks_for_iterations)


def _so_far(turn: Turn, lease: HeldLease) -> LoopSoFar | None:
    run = turn.state.runs.get(run_and_lease(lease.command_id)[0])
    if run is None or run.loop is None:
        return None
    return LoopSoFar(result=loop_results(lease.execution_id, run), collected=dict(run.loop.collected))


def _refused(command_id: str, reason: str = "the lease is over") -> Verdict:
    return Verdict(command_id=command_id, verdict="refused", stop=True, reason=reason)
