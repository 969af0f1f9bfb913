"""Executions are woken at their moment: once, at the last one named, and whatever becomes of another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from noetl.control.alarms import A_MOMENT, Alarms
from noetl.errors import NoetlError
from noetl.testing import START, FakeClock

Woken = list[tuple[str, float]]


def play(
    scenario: Callable[[Alarms, Woken], Awaitable[None]],
    problem: Callable[[str], BaseException | None] = lambda _: None,
) -> list[dict[str, Any]]:
    """What the event loop was told of."""
    clock, told = FakeClock(), list[dict[str, Any]]()

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about))
        woken: Woken = []

        async def wake(execution_id: str) -> None:
            woken.append((execution_id, round(clock.elapsed, 6)))
            if (error := problem(execution_id)) is not None:
                raise error

        await scenario(Alarms(clock, wake), woken)

    clock.run(whole())
    return told


def test_an_execution_is_woken_once_at_its_moment_and_one_that_is_past_at_once() -> None:
    async def scenario(alarms: Alarms, woken: Woken) -> None:
        alarms.set_at("late", START - 60)
        alarms.set_at("soon", START + 5)
        await asyncio.sleep(100)
        assert woken == [("late", 0), ("soon", 5)]

    assert play(scenario) == []


def test_the_last_moment_named_counts_and_none_means_never() -> None:
    async def scenario(alarms: Alarms, woken: Woken) -> None:
        alarms.set_at("a", START + 5)
        alarms.set_at("a", START + 9)
        alarms.set_at("b", START + 5)
        alarms.set_at("b", None)
        await asyncio.sleep(100)
        assert woken == [("a", 9)]

    play(scenario)


def test_an_alarm_that_rang_too_early_is_put_off_by_a_moment() -> None:
    async def scenario(alarms: Alarms, woken: Woken) -> None:
        alarms.set_at("a", START, again=True)
        alarms.set_at("b", START + 3, again=True)
        await asyncio.sleep(100)
        assert woken == [("a", A_MOMENT), ("b", 3)]

    play(scenario)


def test_nobody_is_woken_after_the_alarms_are_stopped() -> None:
    async def scenario(alarms: Alarms, woken: Woken) -> None:
        alarms.set_at("a", START + 5)
        alarms.stop()
        await asyncio.sleep(100)
        assert woken == []

    play(scenario)


def test_settling_waits_for_what_is_running_beside() -> None:
    async def scenario(alarms: Alarms, woken: Woken) -> None:
        async def work() -> None:
            await asyncio.sleep(7)
            woken.append(("work", asyncio.get_running_loop().time()))

        alarms.run(work())
        await alarms.settle()
        assert woken == [("work", 7)]
        await alarms.settle()

    play(scenario)


def test_an_execution_that_cannot_be_written_is_left_for_the_next_who_looks() -> None:
    async def scenario(alarms: Alarms, woken: Woken) -> None:
        alarms.set_at("a", START)
        await asyncio.sleep(1)

    assert play(scenario, lambda _: NoetlError("the disk is full")) == []


def test_any_other_problem_of_an_alarm_is_told() -> None:
    problem = ValueError("a bug")

    async def scenario(alarms: Alarms, woken: Woken) -> None:
        alarms.set_at("a", START)
        await asyncio.sleep(1)

    (about,) = play(scenario, lambda _: problem)
    assert about == {"message": "an alarm could not be handled", "exception": problem}


def test_work_beside_that_cannot_be_written_is_told_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(alarms: Alarms, woken: Woken) -> None:
        async def work() -> None:
            raise NoetlError("the disk is full")

        alarms.run(work())
        await alarms.settle()
        await asyncio.sleep(0)

    assert play(scenario) == []
    (told,) = caplog.records
    assert (told.levelname, told.exc_info) == ("WARNING", None)
    assert "the disk is full; it is left to the next who looks" in told.getMessage()
