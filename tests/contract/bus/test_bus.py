"""What every bus does: a wake-up reaches one waiter of its pool, early ones are kept."""

from __future__ import annotations

import asyncio

import pytest

from noetl.bus.in_process import InProcessBus
from noetl.bus.nats import NatsBus
from noetl.bus.nats_connection import NatsConnection
from noetl.bus.protocol import Bus, wake_key
from noetl.cli.stack.nats_server import NatsServer
from tests.contract.bus.conftest import Play

SOON = 0.1
"""Long enough for nothing to have come."""
LATE = 20.0


def test_a_waiter_is_woken_by_what_is_published_later(play: Play) -> None:
    async def scenario(bus: Bus) -> None:
        waiting = asyncio.create_task(bus.wait("default", LATE))
        await asyncio.sleep(0)
        await bus.publish("default", ["1:0"])
        assert await waiting

    play(scenario)


def test_what_was_published_before_anybody_waited_is_kept(play: Play) -> None:
    async def scenario(bus: Bus) -> None:
        await bus.publish("default", ["1:0"])
        assert await bus.wait("default", LATE)
        assert not await bus.wait("default", SOON)

    play(scenario)


def test_a_wait_ends_with_false_when_its_time_is_over(play: Play) -> None:
    async def scenario(bus: Bus) -> None:
        assert not await bus.wait("default", SOON)
        assert not await bus.wait("default", 0)
        assert bus.is_up

    play(scenario)


def test_pools_do_not_hear_of_each_other(play: Play) -> None:
    async def scenario(bus: Bus) -> None:
        await bus.publish("gpu", ["1:0"])
        assert not await bus.wait("default", SOON)
        assert await bus.wait("gpu", LATE)

    play(scenario)


@pytest.mark.parametrize("pool", ["a b", "a.b", "a_b", "*", ">", "größe", "a_20_b"])
def test_a_pool_may_have_any_name(play: Play, pool: str) -> None:
    async def scenario(bus: Bus) -> None:
        await bus.publish("a-b", ["other:0"])
        await bus.publish(pool, ["1:0"])
        assert await bus.wait(pool, LATE)
        assert not await bus.wait(pool, SOON)

    play(scenario)


def test_a_command_that_is_told_twice_wakes_once_and_again_when_it_was_freed(play: Play) -> None:
    async def scenario(bus: Bus) -> None:
        await bus.publish("default", [wake_key("7", 0), wake_key("7", 0)])
        await bus.publish("default", [wake_key("7", 0)])
        assert await bus.wait("default", LATE)
        assert not await bus.wait("default", SOON)
        await bus.publish("default", [wake_key("7", 1)])
        assert await bus.wait("default", LATE)

    play(scenario)


def test_each_wake_up_goes_to_one_of_several_waiters(play: Play) -> None:
    async def scenario(bus: Bus) -> None:
        waiting = [asyncio.create_task(bus.wait("default", LATE)) for _ in range(3)]
        await asyncio.sleep(0)
        await bus.publish("default", ["1:0", "2:0", "3:0"])
        assert await asyncio.gather(*waiting) == [True, True, True]
        assert not await bus.wait("default", SOON)

    play(scenario)


def test_a_waiter_takes_as_many_wake_ups_as_it_would_claim(play: Play) -> None:
    async def scenario(bus: Bus) -> None:
        await bus.publish("default", [f"{number}:0" for number in range(6)])
        if settle := getattr(bus, "sent", None):
            await settle()
        assert await bus.wait("default", LATE, limit=6)
        assert not await bus.wait("default", SOON)

    play(scenario)


def test_closing_ends_a_wait_and_swallows_what_is_published(play: Play) -> None:
    async def scenario(bus: Bus) -> None:
        waiting = asyncio.create_task(bus.wait("default", LATE))
        await asyncio.sleep(0)
        await bus.close()
        assert not await waiting
        await bus.publish("default", ["1:0"])
        assert not await bus.wait("default", LATE)
        assert not bus.is_up

    play(scenario)


def test_a_wait_that_is_given_up_loses_nothing_for_the_next(play: Play) -> None:
    async def scenario(bus: Bus) -> None:
        waiting = asyncio.create_task(bus.wait("default", LATE))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await bus.publish("default", ["1:0"])
        assert await bus.wait("default", LATE)

    play(scenario)


def test_who_hears_nothing_is_told_to_look_long_before_its_time_is_over(
    shared_nats: NatsServer,
) -> None:
    async def scenario() -> None:
        connection = NatsConnection(shared_nats.url)
        await connection.open()
        try:
            buses: list[Bus] = [
                InProcessBus(0.02),
                NatsBus(connection, deployment="polled", poll_seconds=0.02),
            ]
            for bus in buses:
                async with asyncio.timeout(LATE / 2):
                    assert await bus.wait("default", LATE)
                await bus.close()
        finally:
            await connection.close()

    asyncio.run(scenario())
