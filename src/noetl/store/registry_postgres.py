"""The registry's tables in PostgreSQL, schema `noetl`.

Queries have named parameters, rows come as dictionaries, and a transaction is a block: nothing commits by
hand. What the driver raises becomes a StoreError.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import psycopg

from noetl.store.postgres_connections import Connection, Connections
from noetl.store.postgres_errors import store_error
from noetl.store.protocol import STATEMENT_SECONDS
from noetl.store.queries import queries
from noetl.store.registry_queries import MOMENTS, Found, QueryRegistry, Statement

CONNECTIONS: Final = 4

_QUERIES: Final = queries("postgres", "registry")
_MOMENTS: Final = frozenset(MOMENTS)


async def open_postgres_registry(
    url: str, *, connections: int = CONNECTIONS, statement_seconds: float = STATEMENT_SECONDS
) -> QueryRegistry:
    """A registry with connections of its own; its tables must be there (`noetl db init`)."""
    return QueryRegistry(PostgresRunner(url, Connections(url, connections, statement_seconds)))


class PostgresRunner:
    def __init__(self, url: str, connections: Connections) -> None:
        self._url = url
        self._connections = connections

    async def run(self, statements: Sequence[Statement]) -> list[Found]:
        try:
            async with self._connections.one() as connection:
                if len(statements) == 1:  # a transaction of its own already
                    return [await _run(connection, statements[0])]
                async with connection.transaction():
                    return [await _run(connection, statement) for statement in statements]
        except psycopg.Error as error:
            raise store_error(error, self._url) from error

    async def close(self) -> None:
        await self._connections.close()


async def _run(connection: Connection, statement: Statement) -> Found:
    name, values = statement
    given = {key: _moment(value) if key in _MOMENTS else value for key, value in values.items()}
    async with await connection.execute(_QUERIES[name], given) as cursor:
        found = [] if cursor.description is None else await cursor.fetchall()
    return [
        {key: value.timestamp() if isinstance(value, datetime) else value for key, value in row.items()}
        for row in found
    ]


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
