"""A lease is given back when all its branches wait, and never between two who hand over to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from noetl.engine.state import Waits
from noetl.testing import FakeClock
from noetl.worker.lanes import run_lanes
from noetl.worker.parking import Parking

Scenario = Callable[[Parking], Awaitable[None]]


def given_back(scenario: Scenario) -> bool:
    """Whether the lease was given back in the course of a scenario."""

    async def whole() -> bool:
        parking = Parking(lambda: None)
        await scenario(parking)
        return parking.parked is not None

    return FakeClock().run(whole())


def test_a_lease_whose_branches_all_wait_is_given_back() -> None:
    async def scenario(parking: Parking) -> None:
        async def waits() -> None:
            async with parking.waiting(Waits(signals=["go"]), at_once=False):
                await asyncio.sleep(10)

        lanes = asyncio.create_task(run_lanes([waits, waits], parking, lambda: False))
        await asyncio.sleep(20)
        lanes.cancel()

    assert given_back(scenario)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_branch_that_goes_on_after_those_it_started_is_at_work_all_the_time(depth: int) -> None:
    async def scenario(parking: Parking) -> None:
        async def waits() -> None:
            async with parking.waiting(Waits(signals=["go"]), at_once=True):
                await asyncio.sleep(100)

        async def works(left: int) -> None:
            await asyncio.sleep(5)
            if left:
                await run_lanes([lambda: works(left - 1)] * 2, parking, lambda: False)
            await asyncio.sleep(5)

        async def beside() -> None:
            await works(depth)
            done.set()
            await asyncio.sleep(100)

        done = asyncio.Event()
        lanes = asyncio.create_task(run_lanes([waits, beside], parking, lambda: False))
        await done.wait()
        lanes.cancel()

    assert not given_back(scenario)


def test_a_branch_that_raises_is_heard_of_before_anything_is_given_back() -> None:
    async def scenario(parking: Parking) -> None:
        async def waits() -> None:
            async with parking.waiting(Waits(signals=["go"]), at_once=True):
                await asyncio.sleep(100)

        async def fails() -> None:
            await asyncio.sleep(5)
            raise ValueError("a bug")

        with pytest.raises(ValueError, match="a bug"):
            await run_lanes([waits, fails], parking, lambda: False)
        assert parking._working == 1

    assert not given_back(scenario)
