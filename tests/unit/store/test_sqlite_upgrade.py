"""A database that an earlier version made is brought up to this one, with its rows."""

from __future__ import annotations

import asyncio
from pathlib import Path

from noetl.store import sqlite_connection
from noetl.store.queries import migrations
from noetl.store.sqlite import open_store


def test_a_queue_without_leases_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite_connection.connect(path, busy_seconds=1.0)
    first = next(iter(migrations("sqlite")))
    sqlite_connection._apply(connection, first)
    connection.execute(
        "INSERT INTO execution (execution_id, last_seq, status, name, path, version, dialect, requested_at,"
        " playbook_digest) VALUES ('1', 0, 'running', 'p', 'p', 1, 'canonical', '2025-01-01T00:00:00Z', '')"
    )
    connection.execute("INSERT INTO command VALUES ('1', '1.1', 'start', '1.1', 'default', '2025', 0)")
    connection.close()

    async def claimed() -> None:
        store = open_store(f"sqlite:///{path}")
        try:
            (row,) = await store.claim(pool="default", worker_id="w", limit=1, lease_seconds=30)
        finally:
            await store.close()
        assert (row.command_id, row.epoch, row.worker_id) == ("1.1", 1, "w")

    asyncio.run(claimed())
