"""One world outside and one PostgreSQL for the tasks of all campaigns of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres_server import postgres_server
from tests.security.outside import Outside, outside_server


@pytest.fixture(scope="session")
def world() -> Iterator[Outside]:
    with outside_server() as server:
        yield server


@pytest.fixture(scope="session")
def dsn() -> Iterator[str]:
    with postgres_server(durable=False) as server:
        yield server.get_uri()
