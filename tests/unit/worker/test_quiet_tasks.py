"""A task that takes longer than a moment is told of, once; one that is over before is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from noetl.records.protocols import LeaseLostError
from noetl.testing import FakeClock
from noetl.worker.quiet import QUIET_SECONDS, QuietTasks


def play(scenario: Callable[[QuietTasks, list[str]], Awaitable[None]]) -> list[str]:
    """What was told, in its order, by a clock that jumps."""
    told: list[str] = []

    async def main() -> None:
        await scenario(QuietTasks(), told)

    FakeClock().run(main())
    return told


def teller(told: list[str], name: str) -> Callable[[], Awaitable[None]]:
    async def tell() -> None:
        told.append(f"{name} at {asyncio.get_running_loop().time():.1f}")

    return tell


def test_only_tasks_that_take_long_are_told_of_each_a_moment_after_it_began() -> None:
    async def scenario(tasks: QuietTasks, told: list[str]) -> None:
        async def task(name: str, begins: float, takes: float) -> None:
            await asyncio.sleep(begins)
            report = tasks.begin(teller(told, name))
            await asyncio.sleep(takes)
            await report.settle()

        await asyncio.gather(
            task("long", 0.0, 1.0),
            task("short", 0.0, QUIET_SECONDS / 2),
            task("later", 0.1, 1.0),
            task("last", 5.0, 1.0),
        )

    assert play(scenario) == ["long at 0.2", "later at 0.3", "last at 5.2"]


def test_a_task_that_ends_while_it_is_told_of_waits_for_that() -> None:
    async def scenario(tasks: QuietTasks, told: list[str]) -> None:
        async def tell() -> None:
            await asyncio.sleep(1.0)
            told.append("told")

        report = tasks.begin(tell)
        await asyncio.sleep(QUIET_SECONDS + 0.1)
        await report.settle()
        told.append("settled")

    assert play(scenario) == ["told", "settled"]


def test_a_task_whose_lease_is_over_is_stopped_and_hears_why() -> None:
    async def scenario(tasks: QuietTasks, told: list[str]) -> None:
        async def tell() -> None:
            raise LeaseLostError("the lease is over")

        report = tasks.begin(tell)
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            with pytest.raises(LeaseLostError):
                report.stop()
            told.append(f"stopped at {asyncio.get_running_loop().time():.1f}")

    assert play(scenario) == ["stopped at 0.2"]


def test_a_task_that_is_cancelled_is_not_told_of() -> None:
    async def scenario(tasks: QuietTasks, told: list[str]) -> None:
        report = tasks.begin(teller(told, "cancelled"))
        report.stop()
        await asyncio.sleep(1.0)

    assert play(scenario) == []
