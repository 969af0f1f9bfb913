"""The registry in the file of the executions: beside their owner, and brought up to date when it must be."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from noetl.registry.opening import open_registry
from noetl.store import sqlite_connection
from noetl.store.protocol import StoreError
from noetl.store.queries import migrations
from noetl.store.registry_protocol import TokenRow
from noetl.store.registry_sqlite import open_sqlite_registry
from noetl.store.sqlite import open_store
from noetl.store.sqlite_lock import OwnerLock

TOKEN = TokenRow(token_id="1", name="ci", role="viewer", digest="d", created_at=1.0)


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/noetl.db"


def test_it_is_written_while_somebody_else_owns_the_executions(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        registry, other = open_sqlite_registry(url(tmp_path)), open_sqlite_registry(url(tmp_path))
        try:
            assert await registry.add_token(TOKEN)
            assert await other.tokens() == [TOKEN]
        finally:
            for each in (registry, other, store):
                await each.close()

    asyncio.run(scenario())


def earlier_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database as a version of NoETL without a registry left it."""
    first = [each for each in migrations("sqlite") if each.version == 1]
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_connection, "migrations", lambda dialect: first)
        with closing(sqlite_connection.connect(path, busy_seconds=1)) as connection:
            sqlite_connection.migrate(connection, path)


def test_an_earlier_schema_is_brought_up_to_date_unless_its_owner_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "noetl.db"
    earlier_schema(path, monkeypatch)
    lock = OwnerLock(path)
    with pytest.raises(StoreError, match="in use"):
        open_sqlite_registry(url(tmp_path))
    lock.release()

    async def scenario() -> None:
        registry = open_sqlite_registry(url(tmp_path))
        assert await registry.tokens() == []
        await registry.close()
        with pytest.raises(StoreError, match="closed"):
            await registry.tokens()

    asyncio.run(scenario())


def test_a_missing_database_is_made_only_where_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no database"):
        open_sqlite_registry(url(tmp_path), create=False)
    assert list(tmp_path.iterdir()) == []

    async def scenario() -> None:
        registry = await open_registry(f"sqlite:///{tmp_path}/deep/noetl.db")
        assert await registry.runtimes() == []
        await registry.close()

    asyncio.run(scenario())


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "noetl.db")) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    with pytest.raises(StoreError, match="another program"):
        open_sqlite_registry(url(tmp_path))


def test_what_cannot_be_stored_is_refused_and_the_next_change_works(tmp_path: Path) -> None:
    async def scenario() -> None:
        registry = open_sqlite_registry(url(tmp_path))
        try:
            with pytest.raises(StoreError, match="cannot be stored"):
                await registry.sessions_of_user(2**70, 0.0)
            with pytest.raises(StoreError, match="cannot be stored"):
                await registry.token_by_digest("\ud800")
            assert await registry.add_token(TOKEN)
        finally:
            await registry.close()

    asyncio.run(scenario())
