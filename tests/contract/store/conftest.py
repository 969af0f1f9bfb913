"""The stores that the suite runs on. A store that is to be one must pass all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from noetl.store.memory import MemoryStore
from noetl.store.protocol import Store
from noetl.store.sqlite import open_store

Scenario: TypeAlias = Callable[[Store], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]


@pytest.fixture(params=["sqlite file", "sqlite memory", "memory"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Plays a scenario on an empty store and closes it."""
    urls = {"sqlite file": f"sqlite:///{tmp_path}/noetl.db", "sqlite memory": "sqlite:///:memory:"}

    async def played(scenario: Scenario) -> None:
        store: Store = MemoryStore() if request.param == "memory" else open_store(urls[request.param])
        try:
            await scenario(store)
        finally:
            await store.close()

    return lambda scenario: asyncio.run(played(scenario))
