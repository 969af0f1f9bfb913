"""Databases and files to move rows between: for the tests of `transfer`."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import transfer
from tests.unit.tools.local_context import LocalContext, call

psycopg = pytest.importorskip("psycopg")
duckdb = pytest.importorskip("duckdb")

DATABASES = ("postgres", "sqlite", "duckdb")
NOWHERE = {"kind": "file", "url": "out.csv"}


class Places:
    """A folder with databases in it, a schema of a server, and transfers between them."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.outer = folder
        self.folder = folder / "execution"
        self.folder.mkdir()
        self.secrets: list[object] = []

    def run(self, source: dict[str, Any], target: dict[str, Any], **config: Any) -> Outcome:
        async def scenario() -> Outcome:
            async with LocalContext(self.outer) as context:
                task = call("transfer", {"source": source, "target": target, **config})
                outcome = await transfer.run(task, context)
                self.secrets += context.secrets
                return outcome

        return asyncio.run(scenario())

    def moved(self, source: dict[str, Any], target: dict[str, Any], **config: Any) -> tuple[int, int]:
        outcome = self.run(source, target, **config)
        assert outcome.status == "ok", outcome.error
        assert outcome.groups == {"transfer": outcome.result}
        return outcome.result["rows"], outcome.result["batches"]

    def error(self, source: dict[str, Any], target: dict[str, Any], **config: Any) -> tuple[str, bool, Any]:
        outcome = self.run(source, target, **config)
        assert outcome.error is not None
        return outcome.error.kind, outcome.error.retryable, outcome.error.details.get("side")

    def message(self, source: dict[str, Any], target: dict[str, Any], **config: Any) -> str:
        outcome = self.run(source, target, **config)
        assert outcome.error is not None
        return outcome.error.message

    def sql(self, kind: str, text: str) -> list[tuple[Any, ...]]:
        if kind == "postgres":
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                cursor = connection.execute(text)
                return [] if cursor.description is None else list(cursor.fetchall())
        if kind == "duckdb":
            with duckdb.connect(str(self.folder / "d.duckdb")) as connection:
                return list(connection.execute(text).fetchall())
        connection = sqlite3.connect(self.folder / "s.db", isolation_level=None)
        try:
            return list(connection.execute(text))
        finally:
            connection.close()

    def at(self, kind: str, **fields: Any) -> dict[str, Any]:
        """A side: a database of this kind, or a file of this format."""
        if kind == "postgres":
            return {"kind": kind, "dsn": self.dsn, **fields}
        if kind in ("sqlite", "duckdb"):
            return {"kind": kind, "database": "s.db" if kind == "sqlite" else "d.duckdb", **fields}
        return {"kind": "file", "url": f"some/rows.{kind}", **fields}

    def fill(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        connection = sqlite3.connect(self.folder / "s.db")
        with connection:
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
        connection.close()

    def file(self, name: str, text: str | None = None) -> str:
        path = self.folder / name
        if text is not None:
            path.write_bytes(text.encode())
        return path.read_bytes().decode()


@contextmanager
def places_for(dsn: str, folder: Path) -> Iterator[Places]:
    """Empty places, which have nothing left over at the end."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS moving CASCADE; CREATE SCHEMA moving")
    found = Places(f"{dsn}&options=-csearch_path%3Dmoving", folder)
    yield found
    left = [path.name for path in found.folder.rglob(".*") if path.name != ".duckdb"]
    assert left == []
    for thread in threading.enumerate():
        if thread.name == "noetl-sql":
            thread.join(5)
            assert not thread.is_alive()
