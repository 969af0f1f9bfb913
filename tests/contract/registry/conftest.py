"""The databases and buckets that the suites of the registry run on, and a clock that is set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import psycopg
import pytest

from noetl.bus.kv import NatsKeyValue
from noetl.bus.nats_connection import NatsConnection
from noetl.cli.stack.nats_server import NatsServer, free_port
from noetl.registry.sessions import KeyValueSessions, SessionRecords, TableSessions
from noetl.store.postgres_schema import migrate
from noetl.store.registry_postgres import open_postgres_registry
from noetl.store.registry_protocol import RegistryStore
from noetl.store.registry_sqlite import open_sqlite_registry
from tests.postgres_server import postgres_server

START = 1_800_000_000.0
TABLES = ("credential", "auth_cache", "token", "session", "runtime")

Scenario: TypeAlias = Callable[[RegistryStore], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]


class SetClock:
    def __init__(self, at: float = START) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at - START


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(scope="session")
def migrated_postgres() -> Iterator[str]:
    with postgres_server(durable=False) as server:
        migrate(server.get_uri())
        yield server.get_uri()


@pytest.fixture
def postgres_dsn(migrated_postgres: str) -> str:
    """A database whose registry is empty."""
    with psycopg.connect(migrated_postgres, autocommit=True) as connection:
        connection.execute("; ".join(f"DELETE FROM noetl.{table}" for table in TABLES))
    return migrated_postgres


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"), free_port(), "secret")
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def opened(request: pytest.FixtureRequest, kind: str) -> AsyncIterator[RegistryStore]:
    store: RegistryStore
    if kind == "postgres":
        store = await open_postgres_registry(request.getfixturevalue("postgres_dsn"))
    else:
        folder = request.getfixturevalue("tmp_path")
        store = open_sqlite_registry(
            "sqlite:///:memory:" if kind == "sqlite memory" else f"sqlite:///{folder}/noetl.db"
        )
    try:
        yield store
    finally:
        await store.close()


def asked_for_early(request: pytest.FixtureRequest, kind: str) -> None:
    """Fixtures that start servers must not be asked for while an event loop runs."""
    needed = {"postgres": "postgres_dsn", "nats": "nats_server"}.get(kind, "tmp_path")
    request.getfixturevalue(needed)


@pytest.fixture(params=["sqlite file", "sqlite memory", "postgres"])
def play(request: pytest.FixtureRequest) -> Play:
    """Plays a scenario on an empty registry and closes it."""
    asked_for_early(request, request.param)

    async def played(scenario: Scenario) -> None:
        async with asyncio.timeout(60), opened(request, request.param) as store:
            await scenario(store)

    return lambda scenario: asyncio.run(played(scenario))


SessionsScenario: TypeAlias = Callable[[SessionRecords], Awaitable[None]]
PlaySessions: TypeAlias = Callable[[SessionsScenario], None]


@asynccontextmanager
async def bucket(server: NatsServer, name: str) -> AsyncIterator[NatsKeyValue]:
    connection = NatsConnection(server.url)
    assert await connection.open()
    try:
        yield NatsKeyValue(connection, name)
    finally:
        await connection.close()


@pytest.fixture(params=["sqlite file", "postgres", "nats"])
def play_sessions(request: pytest.FixtureRequest, clock: SetClock) -> PlaySessions:
    """Plays a scenario where sessions can lie."""
    asked_for_early(request, request.param)

    async def played(scenario: SessionsScenario) -> None:
        async with asyncio.timeout(60):
            if request.param == "nats":
                server = request.getfixturevalue("nats_server")
                async with bucket(server, f"sessions_{abs(hash(request.node.name))}") as kept:
                    await scenario(KeyValueSessions(kept))
                return
            async with opened(request, request.param) as store:
                await scenario(TableSessions(store, clock))

    return lambda scenario: asyncio.run(played(scenario))
