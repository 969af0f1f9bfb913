"""Connections to PostgreSQL: how they are set up, a pool of them, and what to do with one that died or hangs.

Each statement is a transaction of its own unless a block says otherwise. A server that was restarted has
closed its connections; that is seen before one is used, so it costs nobody a call. One that hangs cannot be
asked to stop a statement, so a connection whose time is over is hung up from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from noetl.store.postgres_errors import address_parts, refusal, shown_address
from noetl.store.protocol import STATEMENT_SECONDS, StoreError

Connection: TypeAlias = psycopg.AsyncConnection[DictRow]
Pool: TypeAlias = AsyncConnectionPool[Connection]

CONNECT_SECONDS: Final = 10
WAIT_SECONDS: Final = 10.0
"""How long a call waits for a connection: a restart of the server is often over by then."""
RECONNECT_SECONDS: Final = 3.0
"""How long the pool tries by itself, at growing intervals; after that the next call makes it try at once."""
CONNECTIONS: Final = 8
LONG_STATEMENT_SECONDS: Final = 3_600.0
"""For the few that may have millions of rows to remove."""
GRACE_SECONDS: Final = 1.0
"""A server that is only slow ends the statement itself; one that has not by then hangs."""
KEEPALIVES: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A peer that has vanished is noticed after a minute, also on a connection that nobody uses."""

# The pool tells of connections it lost. A program that keeps logs gets that; no other shows it.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


def settings_of(url: str) -> dict[str, Any]:
    """What every connection is opened with; what the address says itself goes before."""
    given = address_parts(url)
    wished = {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "noetl",
        "tcp_user_timeout": 30_000,
        **KEEPALIVES,
    }
    return {name: value for name, value in wished.items() if name not in given}


async def connect(url: str, seconds: float = STATEMENT_SECONDS) -> Connection:
    """`seconds`: how long a statement may take; the block that makes one says so again with `limited`."""
    try:
        connection = await psycopg.AsyncConnection.connect(
            url, autocommit=True, row_factory=dict_row, **settings_of(url)
        )
        await limit_statements(connection, url, seconds)
    except psycopg.Error as error:
        raise refusal(error, url) from error
    return connection


async def limit_statements(connection: Connection, url: str, seconds: float) -> None:
    """Has the server end statements that take too long; what the address says itself goes before.

    By a statement, not by an option of the connection: poolers between us and the server refuse those.
    """
    if "statement_timeout" not in str(address_parts(url).get("options") or ""):
        with limited(connection, CONNECT_SECONDS):
            milliseconds = str(max(1, round(seconds * 1000)))
            await connection.execute("SELECT set_config('statement_timeout', %s, false)", (milliseconds,))


@contextlib.contextmanager
def limited(connection: Connection, seconds: float) -> Iterator[None]:
    """Hangs up on a server that has not answered in time: what waits for it then fails as on a lost one."""
    timer = asyncio.get_running_loop().call_later(seconds + GRACE_SECONDS, _hang_up, connection)
    try:
        yield
    finally:
        timer.cancel()


def _hang_up(connection: Connection) -> None:
    if connection.closed:
        return
    # A second descriptor of the same socket: the driver goes on owning, and closing, its own.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


def is_alive(connection: Connection) -> bool:
    """Whether the server has not closed an idle connection, as far as can be seen without asking it."""
    if connection.closed:
        return False
    try:
        # The first look takes in what the server said last, the second sees that it hung up.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return not connection.broken


class Connections:
    """A pool that opens when it is first used, in the event loop of that call."""

    def __init__(self, url: str, size: int = CONNECTIONS, seconds: float = STATEMENT_SECONDS) -> None:
        """`seconds`: how long a statement may take."""
        self._url = url
        self._seconds = seconds
        self._pool: Pool = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=size,
            open=False,
            name="noetl",
            timeout=WAIT_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            configure=lambda connection: limit_statements(connection, url, seconds),
            kwargs={"autocommit": True, "row_factory": dict_row, **settings_of(url)},
        )
        self._opening = asyncio.Lock()
        self._closed = False

    async def pool(self) -> Pool:
        if self._closed:
            raise StoreError("The store is closed. Open it again to go on.")
        if self._pool.closed:
            async with self._opening:
                await self._pool.open()
        return self._pool

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Connection]:
        """A connection that was alive a moment ago, for one statement or a few. StoreError for none."""
        pool = await self.pool()
        connection = await self._living(pool)
        try:
            with limited(connection, self._seconds):
                yield connection
        finally:
            await pool.putconn(connection)

    async def close(self) -> None:
        self._closed = True
        await self._pool.close()

    async def _living(self, pool: Pool) -> Connection:
        try:
            connection = await pool.getconn()
            while not is_alive(connection):
                await connection.close()
                await pool.putconn(connection)
                connection = await pool.getconn()
        except PoolTimeout as late:
            # The pool does not say why: asking the server once more does.
            await (await connect(self._url, self._seconds)).close()
            raise StoreError(
                f"{shown_address(self._url)}: all connections are busy. Try again, or run another server."
            ) from late
        return connection
