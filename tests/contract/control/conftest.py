"""The control planes that the suite runs on: in the same process, over HTTP, and two servers on one database.

The two servers take turns: no call goes to the one that answered the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import psycopg
import pytest

from noetl.client.connection import Connection, Query
from noetl.client.control import HttpControl
from noetl.engine.leases import Leased
from noetl.records.protocols import ControlPlane
from noetl.server.options import ServerOptions
from noetl.store.postgres import open_postgres
from noetl.store.postgres_schema import migrate
from tests.contract.control.replicas import Replica, replica, served
from tests.postgres_server import postgres_server

TABLES = ("execution", "event", "command", "timer", "snapshot", "transient", "result", "catalog")


class World(NamedTuple):
    control: ControlPlane
    """What is tested."""
    replica: Replica
    """What it stands on, or one of those."""


Scenario: TypeAlias = Callable[[World], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]


class Alternating(Connection):
    """Asks several servers in turn."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(",".join(urls))

    def _request(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        query: Query | None,
        seconds: float | None,
    ) -> Any:
        self._at = (self._at + 1) % len(self._urls)
        return super()._request(method, path, content, headers, query, seconds)


@asynccontextmanager
async def in_process() -> AsyncIterator[World]:
    async with replica() as found:
        yield World(found.control, found)


@asynccontextmanager
async def over_http() -> AsyncIterator[World]:
    async with replica(ServerOptions(requests_per_second=0)) as found, served(found.app) as at:
        control = HttpControl(Connection(at.url, token=await found.token("admin")), Leased)
        try:
            yield World(control, found)
        finally:
            await control.close()


@asynccontextmanager
async def over_http_to_two(database: str) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        found, urls = [], []
        for node in (1, 2):
            made = await stack.enter_async_context(replica(store=open_postgres(database), node=node))
            found.append(made)
            urls.append((await stack.enter_async_context(served(made.app))).url)
        control = HttpControl(Alternating(urls), Leased)
        stack.push_async_callback(control.close)
        yield World(control, found[0])


@pytest.fixture(scope="session")
def migrated_postgres() -> Iterator[str]:
    with postgres_server(durable=False) as server:
        migrate(server.get_uri())
        yield server.get_uri()


@pytest.fixture
def empty_postgres(migrated_postgres: str) -> str:
    with psycopg.connect(migrated_postgres, autocommit=True) as connection:
        connection.execute("; ".join(f"DELETE FROM noetl.{table}" for table in TABLES))
    return migrated_postgres


@pytest.fixture(params=["in process", "over HTTP", "two servers on PostgreSQL"])
def play(request: pytest.FixtureRequest) -> Play:
    """Plays a scenario on an empty control plane."""
    database = request.getfixturevalue("empty_postgres") if "PostgreSQL" in request.param else ""

    async def played(scenario: Scenario) -> None:
        worlds = {"in process": in_process, "over HTTP": over_http}
        make = worlds.get(request.param, lambda: over_http_to_two(database))
        async with asyncio.timeout(60), make() as world:
            await scenario(world)

    return lambda scenario: asyncio.run(played(scenario))
