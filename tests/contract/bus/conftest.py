"""The buses that the suite runs on: in one process, and over a real NATS server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from noetl.bus.in_process import InProcessBus
from noetl.bus.nats import NatsBus
from noetl.bus.nats_connection import NatsConnection
from noetl.bus.protocol import Bus
from noetl.cli.stack.nats_server import NatsServer, free_port

Scenario: TypeAlias = Callable[[Bus], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]


@pytest.fixture(scope="session")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"), free_port(), "secret")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server that the test may kill."""
    server = NatsServer(tmp_path / "nats", free_port(), "secret")
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["in process", "nats"])
def play(request: pytest.FixtureRequest) -> Play:
    """Plays a scenario on a bus that nobody else uses."""

    async def played(scenario: Scenario) -> None:
        async with asyncio.timeout(60):
            if request.param == "in process":
                await scenario(InProcessBus())
                return
            server: NatsServer = request.getfixturevalue("shared_nats")
            connection = NatsConnection(server.url)
            assert await connection.open()
            bus = NatsBus(connection, deployment=request.node.name)
            try:
                await scenario(bus)
            finally:
                await bus.close()
                await connection.close()

    return lambda scenario: asyncio.run(played(scenario))
