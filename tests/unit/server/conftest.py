"""Plays scenarios on a whole server in the test's process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from noetl.server.options import ServerOptions
from tests.contract.control.replicas import Replica, replica

Scenario: TypeAlias = Callable[[Replica], Awaitable[None]]
Play: TypeAlias = Callable[..., None]


@pytest.fixture
def play() -> Play:
    """Plays a scenario on a server that asks nobody for a token, unless its options say otherwise."""

    def played(scenario: Scenario, options: ServerOptions | None = None) -> None:
        async def whole() -> None:
            async with asyncio.timeout(60), replica(options) as found:
                await scenario(found)

        asyncio.run(whole())

    return played
