"""The store in memory keeps its leases by the clock it was given."""

from __future__ import annotations

import asyncio

import pytest

from noetl.store.memory import MemoryStore
from noetl.store.protocol import Fence, LeaseFenced
from tests.contract.store.changes import change, command


class SetClock:
    at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def test_leases_run_out_and_work_becomes_due_by_the_clock_that_was_given() -> None:
    clock = SetClock()

    async def scenario() -> None:
        store = MemoryStore(clock)
        rows = (command("1", "a", worker_id="w"), command("1", "later", not_before=1050.0))
        await store.append(change("1", add_commands=rows, lease_seconds=30.0))
        lost = change("1", 1, fences=(Fence(command_id="a", epoch=1, expired=True),), free_commands=("a",))
        clock.at = 1029.9
        assert await store.expired() == []
        assert await store.claim(pool="default", worker_id="v", limit=9, lease_seconds=30.0) == []
        with pytest.raises(LeaseFenced):
            await store.append(lost)
        clock.at = 1030.0
        assert [row.command_id for row in await store.expired()] == ["a"]
        await store.append(lost)
        clock.at = 1050.0
        claimed = await store.claim(pool="default", worker_id="v", limit=9, lease_seconds=30.0)
        assert [(row.command_id, row.epoch, row.lease_until) for row in claimed] == [
            ("a", 2, 1080.0),
            ("later", 1, 1080.0),
        ]

    asyncio.run(scenario())
