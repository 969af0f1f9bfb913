"""The store with faults is to be trusted itself: a lagging read shows what was, never less than was seen."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec

from noetl.records.event import Event
from noetl.store.protocol import Append, ExecutionRow
from tests.simulation.scenarios import Scenario, Trouble, draw_scenario
from tests.simulation.stores import MOST_KEPT, FailingStore
from tests.simulation.world import OneProcess, loaded

EVENT = Event(
    event_id="1",
    execution_id="1",
    seq=1,
    event_type="playbook.execution.requested",
    timestamp="2025-06-15T15:06:40.000000Z",
    source="server",
    entity_type="playbook",
    entity_id="1",
    status="success",
    parent_id=None,
    workflow_run_id="1",
    payload={},
)
STALE = (Trouble("stale reads", 10_000),)


def lagging(folder: Path) -> OneProcess:
    drawn = draw_scenario(random.Random(1))
    scenario: Scenario = drawn._replace(troubles=STALE)
    world = OneProcess(scenario, loaded(drawn.playbook), folder)
    world.committed = lambda *told: None  # type: ignore[method-assign]
    world.lagging_reads = 1_000
    return world


def written(status: str) -> Append:
    row = ExecutionRow(
        execution_id="1", status=status, name="n", path="p", version=1, dialect="canonical", requested_at=""
    )
    return Append(execution_id="1", version=0, events=(), execution=row)


async def status(view: FailingStore) -> int:
    row = await view.execution("1")
    return int(row.status)


def test_a_lagging_read_shows_what_was_before_but_never_less_than_was_written_or_seen(tmp_path: Path) -> None:
    world = lagging(tmp_path)

    async def look() -> list[int]:
        writer, reader = FailingStore(world), FailingStore(world)
        lags = []
        last = -1
        for number in range(200):
            await writer.append(written(str(number)))
            seen = await status(reader)
            assert last <= seen <= number
            last = seen
            lags.append(number - seen)
            assert await status(writer) == number
        return lags

    lags = world.clock.run(look())
    assert 0 in lags
    assert 1 <= max(lags) < MOST_KEPT
    assert world.tally["trouble: stale read"] == sum(lag > 0 for lag in lags)


def test_an_append_that_arrives_again_is_not_written_again(tmp_path: Path) -> None:
    world = lagging(tmp_path)
    world._troubles = [Trouble("duplicate commit", 1)]

    async def look() -> int:
        event = msgspec.structs.replace(EVENT, payload={"n": 1})
        change = msgspec.structs.replace(written("requested"), events=(event,))
        await FailingStore(world).append(change)
        await asyncio.gather(*world._others)
        return len(await world.store.events("1"))

    assert world.clock.run(look()) == 1
    assert world.tally["trouble: duplicate commit"] == 1
