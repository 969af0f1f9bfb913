"""A turn of the engine as one change to the store: its events, rows of the queue, timers and bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from noetl.control.live import Asked, Live
from noetl.engine.facts import Fact
from noetl.engine.leases import run_and_lease
from noetl.engine.parking import next_due
from noetl.engine.state import Data, State
from noetl.engine.turn import Turn
from noetl.ids import Snowflakes, seconds_of
from noetl.records.event import Event
from noetl.records.report import LeaseReport
from noetl.store.protocol import Append, BodyRow, CommandRow, ExecutionRow, Fence, TimerRow

SNAPSHOT_EVERY: Final = 5_000
"""Events after which a state is kept, so that a later start replays at most this many."""
DUE: Final = "due"
"""The timer of an execution: the next moment at which something in it is due."""
ENDED: Final = "ended"
"""The timer of an execution that is over: its parent and its children have still to hear of it."""


def change_of(
    live: Live,
    turn: Turn,
    version: int,
    batch: Sequence[Asked],
    *,
    ids: Snowflakes,
    lease_seconds: float,
) -> Append:
    """What a turn that was decided at `version` writes."""
    state = live.state
    due = next_due(state)
    timers, ended_timers = _timers(live, due, turn.now, batch)
    by_wish: dict[str, list[str]] = {"free": [], "hold": [], "remove": []}
    for command_id, wanted in turn.commands.items():
        if wanted != "add":
            by_wish[wanted].append(command_id)
    return Append(
        execution_id=state.execution_id,
        version=version,
        events=tuple(
            _event(fact, event_id, state.execution_id, version + number)
            for number, (fact, event_id) in enumerate(
                zip(turn.facts, ids.many(len(turn.facts)), strict=True), start=1
            )
        ),
        execution=row_of(live),
        add_commands=_commands(live, turn, batch),
        lease_seconds=lease_seconds,
        free_commands=tuple(by_wish["free"]),
        hold_commands=tuple(by_wish["hold"]),
        hold_unleased_commands="execution.paused" in turn.happened,
        remove_commands=tuple(by_wish["remove"]),
        remove_all_commands=state.is_over,
        fences=_fences(batch),
        add_timers=timers,
        remove_timers=ended_timers,
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
        snapshot=_snapshot(state, version),
    )


def _commands(live: Live, turn: Turn, batch: Sequence[Asked]) -> tuple[CommandRow, ...]:
    """New rows; whoever reported is leased as many of them as it takes."""
    wanted = [name for name, wish in turn.commands.items() if wish == "add"]
    if not wanted:
        return ()
    takers = [asked.taker for asked in batch if asked.taker is not None]
    slots = {taker.worker_id: taker.slots for taker in takers}
    rows: list[CommandRow] = []
    for command_id in wanted:
        run = live.state.runs.get(run_and_lease(command_id)[0])
        if run is None:
            continue
        pool = live.plan.pool(run.step)
        taker = next((each for each in takers if each.pool == pool and slots[each.worker_id] > 0), None)
        if taker is not None:
            slots[taker.worker_id] -= 1
        rows.append(
            CommandRow(
                command_id=command_id,
                execution_id=live.state.execution_id,
                step=run.step,
                step_run_id=run.run_id,
                pool=pool,
                created_at=turn.now,
                worker_id=None if taker is None else taker.worker_id,
                epoch=0 if taker is None else 1,
            )
        )
    return tuple(rows)


def _fences(batch: Sequence[Asked]) -> tuple[Fence, ...]:
    found = {asked.fence.command_id: asked.fence for asked in batch if asked.fence is not None}
    return tuple(found.values())


def _timers(
    live: Live, due: float | None, now: str, batch: Sequence[Asked]
) -> tuple[tuple[TimerRow, ...], tuple[str, ...]]:
    """The rows to be written and those that have done their part."""
    execution_id = live.state.execution_id
    ended = [name for asked in batch for name in asked.ended_timers]
    rows = []
    if live.state.is_over:
        if not live.over.is_set() and (live.parent_execution_id is not None or live.plan.has_children):
            rows.append(TimerRow(timer_id=ENDED, execution_id=execution_id, due=seconds_of(now)))
    elif due is not None and (due != live.due or DUE in ended):
        rows.append(TimerRow(timer_id=DUE, execution_id=execution_id, due=due))
    elif due is None and live.due is not None:
        ended.append(DUE)
    return tuple(rows), tuple(ended)


def row_of(live: Live) -> ExecutionRow:
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


def _snapshot(state: State, version: int) -> bytes | None:
    if state.seq // SNAPSHOT_EVERY == version // SNAPSHOT_EVERY:
        return None
    return msgspec.msgpack.encode(state)


def _vars_of(turn: Turn) -> Data:
    found: Data = {}
    if "vars.set" in turn.happened:
        for fact in turn.facts:
            if fact.event_type == "vars.set":
                found.update(fact.payload["vars"])
    return found


def facts_of(report: LeaseReport, step: str, run_id: str) -> list[Fact]:
    """What a worker reported, as the engine takes it."""
    execution_id = report.lease.execution_id
    return [
        Fact(
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
        for event in report.events
    ]


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
