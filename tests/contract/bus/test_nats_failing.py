"""NATS that is away, killed, wiped or frozen: nothing fails, nothing waits for it, and it is said once."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from noetl.bus import nats as nats_bus
from noetl.bus.nats import NatsBus
from noetl.bus.nats_connection import NatsConnection
from noetl.cli.stack.nats_server import NatsServer, free_port

LATE = 30.0

Scenario = Callable[[NatsBus, NatsConnection], Awaitable[None]]


def play(url: str, scenario: Scenario) -> None:
    async def played() -> None:
        connection = NatsConnection(url)
        bus = NatsBus(connection)
        async with asyncio.timeout(60):
            try:
                await connection.open()
                await scenario(bus, connection)
            finally:
                await bus.close()
                await connection.close()

    asyncio.run(played())


def kill(server: NatsServer) -> None:
    record = server.process.running()
    assert record is not None
    assert server.process.ask(record, signal.SIGKILL, 10.0)


def said(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records)


def test_without_a_server_publishing_returns_at_once_and_waiters_poll(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_bus, "POLL_SECONDS", 0.02)

    async def scenario(bus: NatsBus, connection: NatsConnection) -> None:
        began = time.monotonic()
        await bus.publish("default", [f"{number}:0" for number in range(100_000)])
        assert time.monotonic() - began < 0.5
        assert bus.dropped == 100_000
        assert not bus.is_up
        assert await bus.wait("default", LATE)
        assert await bus.wait("default", LATE)
        assert time.monotonic() - began < 5

    with caplog.at_level(logging.WARNING, "noetl.bus"):
        play(f"nats://127.0.0.1:{free_port()}", scenario)
    assert said(caplog, "NATS is down: workers poll") == 1


def test_a_killed_server_wakes_its_waiters_and_is_used_again_when_it_is_back_with_nothing(
    own_nats: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bus: NatsBus, connection: NatsConnection) -> None:
        await bus.publish("default", ["1:0"])
        assert await bus.wait("default", LATE)
        waiting = asyncio.create_task(bus.wait("default", LATE))
        await asyncio.sleep(0)
        await asyncio.to_thread(kill, own_nats)
        assert await waiting  # at once, to ask what it may have missed; not when its time is over
        assert not bus.is_up
        await bus.publish("default", ["2:0"])
        assert bus.dropped == 1
        shutil.rmtree(own_nats.data)
        await asyncio.to_thread(own_nats.start)
        await connection.wait_until_up()
        assert bus.is_up
        await bus.publish("default", ["1:0", "3:0"])  # nothing is known any more of the first `1:0`
        await bus.sent()
        assert await bus.wait("default", LATE, limit=2)
        assert not await bus.wait("default", 0.1)

    with caplog.at_level(logging.WARNING, "noetl.bus"):
        play(own_nats.url, scenario)
    assert said(caplog, "NATS is down: workers poll") == 1
    assert said(caplog, "is back") == 1


def test_a_stream_that_somebody_deletes_is_made_again(own_nats: NatsServer) -> None:
    async def scenario(bus: NatsBus, connection: NatsConnection) -> None:
        await bus.publish("default", ["1:0"])
        assert await bus.wait("default", LATE)
        waiting = asyncio.create_task(bus.wait("default", LATE))
        await asyncio.sleep(0)
        await connection.jetstream().delete_stream("noetl_work")
        assert await waiting
        await bus.publish("default", ["2:0"])
        await bus.sent()
        assert bus.dropped == 0
        assert await bus.wait("default", LATE)

    play(own_nats.url, scenario)


def test_a_frozen_server_holds_up_nobody(own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_bus, "SEND_SECONDS", 0.2)
    record = own_nats.process.running()
    assert record is not None

    async def scenario(bus: NatsBus, connection: NatsConnection) -> None:
        await bus.publish("default", ["1:0"])
        assert await bus.wait("default", LATE)
        os.kill(record.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            await bus.publish("default", [f"{number}:1" for number in range(50_000)])
            assert time.monotonic() - began < 1
            assert bus.dropped >= 30_000
            assert await bus.wait("default", 0.2) in (True, False)
            assert time.monotonic() - began < 5
        finally:
            os.kill(record.pid, signal.SIGCONT)

    play(own_nats.url, scenario)


def test_a_server_without_jetstream_counts_as_down_until_it_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nats_bus, "POLL_SECONDS", 0.02)
    server = NatsServer(tmp_path, free_port(), "secret")
    server.start()
    kill(server)
    settings = tmp_path / "nats.conf"
    with_jetstream = settings.read_text()
    settings.write_text("".join(line for line in with_jetstream.splitlines(True) if "jetstream" not in line))
    command = server.process.record()
    assert command is not None

    async def scenario(bus: NatsBus, connection: NatsConnection) -> None:
        assert connection.is_up
        assert await bus.wait("default", LATE)
        assert not bus.is_up
        await bus.publish("default", ["1:0"])
        await bus.sent()
        assert bus.dropped == 1

    server.process.start(command.command)
    server.process.wait_until(server.is_ready, 10)
    try:
        with caplog.at_level(logging.WARNING, "noetl.bus"):
            play(server.url, scenario)
    finally:
        server.stop()
    assert said(caplog, "NATS is down: workers poll") == 1


def test_a_heap_of_wake_ups_that_mean_nothing_any_more_is_cleared_in_few_waits(own_nats: NatsServer) -> None:
    async def scenario(bus: NatsBus, connection: NatsConnection) -> None:
        await bus.publish("default", [f"{number}:0" for number in range(2_000)])
        await bus.sent()
        waits = 0
        while await bus.wait("default", 0.3):
            waits += 1
        assert waits <= 20

    play(own_nats.url, scenario)


def test_closing_while_wake_ups_arrive_ends_the_wait_in_peace(
    own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = Msg.ack

    async def ack(message: Msg) -> None:
        await at_once(message)
        await asyncio.sleep(0)  # others have their turn between two messages

    monkeypatch.setattr(Msg, "ack", ack)

    async def scenario(other: NatsBus, connection: NatsConnection) -> None:
        ended = []
        for moment in range(40):
            sender, bus = (NatsBus(connection, deployment=f"d{moment}") for _ in range(2))
            await sender.publish("default", [f"{number}:0" for number in range(50)])
            await sender.sent()
            waiting = asyncio.create_task(bus.wait("default", LATE, 50))
            while not bus._pools or bus._pools["default"]._requests == 0:
                await asyncio.sleep(0.001)
            for _ in range(moment):
                await asyncio.sleep(0)
            await bus.close()
            ended.append(await waiting)
            await sender.close()
        assert False in ended  # some were closed before all had come

    play(own_nats.url, scenario)
