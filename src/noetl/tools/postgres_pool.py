"""Connections to PostgreSQL that are kept for later calls, one pool for each way to connect.

A call gets its own connection for as long as it lasts. One that was used before is reset when it is taken
again, which also finds out whether it is still alive. Errors of connecting reach the call that wanted the
connection, at once and with their reason.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.conninfo import make_conninfo

from noetl.records.protocols import ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.postgres import PostgresConfig
from noetl.tools.sql_calls import CONNECTION, invalid

MAX_CONNECTIONS: Final = 16
CONNECT_SECONDS: Final = 10

_FIELDS: Final = {
    "host": ("host", "hostname", "db_host"),
    "port": ("port", "db_port"),
    "user": ("user", "username", "db_user"),
    "password": ("password", "db_password"),
    "dbname": ("dbname", "database", "db_name"),
    "sslmode": ("sslmode",),
    "sslrootcert": ("sslrootcert",),
    "options": ("options",),
    "connect_timeout": ("connect_timeout",),
    "application_name": ("application_name",),
}
"""libpq's words for a connection, and those under which credentials hold them."""
_STRINGS: Final = "standard_conforming_strings"
_WHOLE: Final = ("dsn", "url", "connection_string", "value")
"""Where a credential holds the connection as one text."""


class PostgresPool:
    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._idle: list[AsyncConnection] = []
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A connection in autocommit; it is kept for others unless the call ended badly."""
        async with self._places:
            connection = await self._taken()
            try:
                yield connection
            except BaseException:  # whatever happened, what state the connection is in is not known
                await connection.close()
                raise
            if connection.closed or connection.broken:
                return
            self._idle.append(connection)

    async def _taken(self) -> AsyncConnection:
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.execute("DISCARD ALL")
            except psycopg.OperationalError:
                await connection.close()
            else:
                return await _ready(connection)
        connection = await AsyncConnection.connect(
            self._conninfo, autocommit=True, prepare_threshold=None, cursor_factory=AsyncRawCursor
        )
        return await _ready(connection)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()


async def _ready(connection: AsyncConnection) -> AsyncConnection:
    try:
        if connection.info.parameter_status(_STRINGS) != "on":
            await connection.execute(f"SET {_STRINGS} = on")
        check_quoting(connection)
    except BaseException:  # nobody else will close it
        await connection.close()
        raise
    return connection


def check_quoting(connection: AsyncConnection) -> None:
    """Literals are quoted for a server that takes a backslash in a string for itself."""
    if connection.info.parameter_status(_STRINGS) != "on":
        raise CallFailedError(CONNECTION, f"`{_STRINGS}` is not on, so values in SQL text would not be safe")
    if connection.info.parameter_status("client_encoding") != "UTF8":
        raise CallFailedError(CONNECTION, "the connection's `client_encoding` is not UTF8")


async def pool_for(config: PostgresConfig, context: ToolContext) -> PostgresPool:
    conninfo = await _conninfo(config, context)
    key = hashlib.sha256(conninfo.encode()).hexdigest()

    async def make() -> PostgresPool:
        return PostgresPool(conninfo)

    return await context.shared(f"postgres:{key}", make)


async def _conninfo(config: PostgresConfig, context: ToolContext) -> str:
    auth: Any = config.auth
    if isinstance(auth, str) and not _is_dsn(auth):
        auth = await context.credential(auth)
    if isinstance(auth, str):
        auth = {"dsn": auth}
    fields: Mapping[str, Any] = auth or {}
    whole = config.dsn or next((fields[name] for name in _WHOLE if fields.get(name)), "")
    found = {word: _first(fields, names) for word, names in _FIELDS.items()}
    given = {word: str(value) for word, value in found.items() if value is not None}
    if config.database is not None:
        given["dbname"] = config.database
    if not whole and "host" not in given:
        raise invalid("there is no connection: `auth` needs at least a `host`, or give a `dsn`")
    given.setdefault("connect_timeout", str(CONNECT_SECONDS))
    try:
        return make_conninfo(str(whole), client_encoding="UTF8", **given)
    except psycopg.ProgrammingError:
        # The message of libpq would show the text, and the password in it.
        raise invalid("the connection's `dsn` is not one that PostgreSQL understands") from None


def _is_dsn(text: str) -> bool:
    return "://" in text or "=" in text


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:  # noqa: ANN401 - a field is any value
    return next((fields[name] for name in names if fields.get(name) is not None), None)
