"""A PostgreSQL database for each test that asks for one, all on one server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from noetl.store.postgres_schema import migrate
from tests.postgres_server import postgres_server

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Any]:
    with postgres_server(durable=False) as server:
        migrate(server.get_uri())
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE migrated")
        migrate(server.get_uri("migrated"))
        yield server


def _made(server: Any, template: str) -> str:
    name = f"store_{next(_NUMBERS)}"
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    url: str = server.get_uri(name)
    return url


@pytest.fixture
def bare_database(shared_server: Any) -> str:
    """Without a schema."""
    return _made(shared_server, "template0")


@pytest.fixture
def database(shared_server: Any) -> str:
    """With the schema, and nothing in it."""
    return _made(shared_server, "migrated")
