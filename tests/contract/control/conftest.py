"""The control planes that the suite runs on: in the same process, and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeAlias

import pytest

from noetl.client.connection import Connection
from noetl.client.control import HttpControl
from noetl.engine.leases import Leased
from noetl.records.protocols import ControlPlane
from noetl.server.options import ServerOptions
from tests.contract.control.replicas import Replica, replica, served


class World(NamedTuple):
    control: ControlPlane
    """What is tested."""
    replica: Replica
    """What it stands on."""


Scenario: TypeAlias = Callable[[World], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]


@asynccontextmanager
async def over_http(found: Replica) -> AsyncIterator[ControlPlane]:
    token = await found.token("admin")
    async with served(found.app) as server:
        control = HttpControl(Connection(server.url, token=token), Leased)
        try:
            yield control
        finally:
            await control.close()


@pytest.fixture(params=["in process", "over HTTP"])
def play(request: pytest.FixtureRequest) -> Play:
    """Plays a scenario on an empty control plane."""

    async def played(scenario: Scenario) -> None:
        options = ServerOptions(requests_per_second=0)
        async with asyncio.timeout(30), replica(options) as found:
            if request.param == "in process":
                await scenario(World(found.control, found))
                return
            async with over_http(found) as control:
                await scenario(World(control, found))

    return lambda scenario: asyncio.run(played(scenario))
