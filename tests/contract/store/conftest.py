"""The stores that the suite runs on. A store that is to be one must pass all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest

from noetl.store import sqlite_writer
from noetl.store.memory import MemoryStore
from noetl.store.open import open_any
from noetl.store.postgres_schema import migrate
from noetl.store.protocol import Store
from noetl.store.sqlite import SqliteStore
from tests.postgres_server import postgres_server

Scenario: TypeAlias = Callable[[Store], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]

TABLES = ("execution", "event", "command", "timer", "snapshot", "transient", "result", "catalog", "start_key")


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


async def begin_thread(store: SqliteStore) -> None:
    """As on a disk so slow that the writer leaves the event loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_writer, "SLOW_SECONDS", -1.0)
        while store._writer._thread is None:
            await store._writer.look(lambda on: None)


@pytest.fixture(params=["sqlite file", "sqlite on a slow disk", "sqlite memory", "memory", "postgres"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Plays a scenario on an empty store and closes it."""
    file = f"sqlite:///{tmp_path}/noetl.db"
    urls = {"sqlite file": file, "sqlite on a slow disk": file, "sqlite memory": "sqlite:///:memory:"}
    if request.param == "postgres":
        urls["postgres"] = request.getfixturevalue("empty_postgres")

    async def played(scenario: Scenario) -> None:
        store: Store = MemoryStore() if request.param == "memory" else open_any(urls[request.param])
        try:
            async with asyncio.timeout(60):
                if request.param == "sqlite on a slow disk":
                    assert isinstance(store, SqliteStore)
                    await begin_thread(store)
                await scenario(store)
        finally:
            await store.close()

    return lambda scenario: asyncio.run(played(scenario))
