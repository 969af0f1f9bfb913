"""The registry's tables in PostgreSQL, schema `noetl`.

Queries have named parameters, rows come as dictionaries, and the pool commits: nothing here does by hand.
What the driver raises becomes a StoreError.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from noetl.store.protocol import StoreError
from noetl.store.queries import queries
from noetl.store.registry_queries import MOMENTS, Found, QueryRegistry, Statement

Pool: TypeAlias = AsyncConnectionPool[psycopg.AsyncConnection[DictRow]]

_QUERIES: Final = queries("postgres/registry")
_MOMENTS: Final = frozenset(MOMENTS)


async def open_postgres_registry(url: str, *, connections: int = 4) -> QueryRegistry:
    """A registry with connections of its own; its tables must be there (`noetl db migrate`)."""
    pool: Pool = AsyncConnectionPool(
        url, min_size=1, max_size=connections, kwargs={"row_factory": dict_row}, open=False
    )
    try:
        await pool.open(wait=True, timeout=10.0)
    except (PoolTimeout, psycopg.Error) as refused:
        await pool.close()
        raise StoreError(f"PostgreSQL cannot be reached ({refused}). Check its address.") from refused
    return QueryRegistry(PostgresRunner(pool, owns_pool=True))


class PostgresRunner:
    """Runs statements on a pool; the rows of its connections may be of any form."""

    def __init__(self, pool: AsyncConnectionPool[Any], *, owns_pool: bool = False) -> None:
        self._pool = pool
        self._owns_pool = owns_pool

    async def run(self, statements: Sequence[Statement]) -> list[Found]:
        try:
            async with (
                self._pool.connection() as connection,
                connection.transaction(),
                connection.cursor(row_factory=dict_row) as cursor,
            ):
                return [await _run(cursor, statement) for statement in statements]
        except (psycopg.OperationalError, PoolTimeout) as lost:
            raise StoreError(f"PostgreSQL cannot be used now ({lost}).") from lost
        except psycopg.Error as refused:
            raise StoreError(f"PostgreSQL refused a statement of the registry ({refused}).") from refused

    async def close(self) -> None:
        if self._owns_pool:
            await self._pool.close()


async def _run(cursor: psycopg.AsyncCursor[DictRow], statement: Statement) -> Found:
    name, values = statement
    given = {key: _moment(value) if key in _MOMENTS else value for key, value in values.items()}
    await cursor.execute(_QUERIES[name], given)
    if cursor.description is None:
        return []
    return [
        {key: value.timestamp() if isinstance(value, datetime) else value for key, value in row.items()}
        for row in await cursor.fetchall()
    ]


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
