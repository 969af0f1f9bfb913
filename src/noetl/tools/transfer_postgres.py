"""PostgreSQL as a side of a transfer, on a connection of the pool for each.

The source is read through a cursor of the server, in a transaction that only reads; the target is written
with `COPY`, in one transaction. A connection whose call ends badly is closed, which rolls back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final

import msgspec
import psycopg
from psycopg import AsyncConnection, AsyncRawServerCursor
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict

from noetl.errors import NoetlError
from noetl.records.protocols import ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.postgres import PostgresConfig
from noetl.tools.postgres_calls import bound, translated_postgres
from noetl.tools.postgres_pool import pool_for
from noetl.tools.sql_calls import invalid
from noetl.tools.sql_rows import column_names
from noetl.tools.sql_statements import Positions, postgres_params, statements
from noetl.tools.sql_tables import TableWrite, table_write
from noetl.tools.transfer import TransferSource, TransferTarget
from noetl.tools.transfer_sides import Row, checked_target, key_of, source_text
from noetl.tools.transfer_values import JsonText, array_text, json_text, text_of

ERRORS: Final = (psycopg.Error,)

_ROWS: Final = "noetl_transfer_rows"
_STAGED: Final = f"pg_temp.{_ROWS}"
_PLACE: Final = '"noetl transfer place"'
_COLUMN_TYPES: Final = """
    SELECT a.attname, t.typname, t.typcategory
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
_AS_THEY_ARE: Final = frozenset((str, int, bool, float, type(None)))
_NESTED: Final = (dict, list, tuple, set, frozenset)
_BINARY: Final = (bytes, bytearray, memoryview)


def translated(error: Exception) -> CallFailedError:
    assert isinstance(error, psycopg.Error)
    return translated_postgres(error)


class _JsonLoader(Loader):
    """Gives JSON as the text it is, digits and all."""

    def load(self, data: Buffer) -> JsonText:
        return JsonText(bytes(data).decode())


class _Source:
    only_text = False

    def __init__(self, cursor: AsyncRawServerCursor[Any]) -> None:
        self._cursor = cursor
        self.names = column_names(column.name for column in cursor.description or ())

    async def fetch(self, size: int) -> list[Row]:
        return await self._cursor.fetchmany(size)


@asynccontextmanager
async def source(
    side: TransferSource, wanted: list[str] | None, context: ToolContext
) -> AsyncIterator[_Source]:
    text, values = _statement(side)
    config = PostgresConfig(dsn=side.dsn, database=side.database, auth=side.auth)
    _keep_secret(config, context)
    pool = await pool_for(config, context)
    async with pool.connection() as connection:
        await connection.execute("BEGIN READ ONLY")
        cursor = AsyncRawServerCursor(connection, "noetl_transfer")
        for kind in ("json", "jsonb"):
            cursor.adapters.register_loader(kind, _JsonLoader)
        try:
            await cursor.execute(text.encode(), values)
            yield _Source(cursor)
        finally:
            # What was read counts, so a connection that breaks now is no failure.
            with suppress(psycopg.Error):
                await cursor.close()
                await connection.execute("ROLLBACK")


def _statement(side: TransferSource) -> tuple[str, list[Any] | None]:
    text = source_text(side)
    found = statements(text, "postgres")
    if len(found) != 1:
        raise invalid("`query` must be one statement")
    if side.params is None:
        return text, None
    given = Positions(side.params) if isinstance(side.params, list) else side.params
    text, values = postgres_params(found[0], given)
    if isinstance(given, Positions):
        given.check_all_taken()
    return text, [bound(value) for value in values]


class _Target:
    def __init__(self, connection: AsyncConnection, side: TransferTarget, write: TableWrite) -> None:
        self._connection = connection
        self._side = side
        self._write = write
        self._copy = b""
        self._upsert: bytes | None = None
        self._convert: list[Callable[[Any], Any]] = []

    async def begin(self, columns: tuple[str, ...]) -> frozenset[str]:
        await self._connection.execute("BEGIN")
        table = self._write.table
        types = await self._types()
        if self._side.mode == "replace":
            await self._connection.execute(f"DELETE FROM {table}".encode())
        names = ", ".join(self._write.quoted(name) for name in columns)
        into = table
        if columns and self._side.mode == "upsert":
            self._upsert = self._from_staged(columns)
            into = _STAGED
            staged = f"CREATE TEMP TABLE {_STAGED} ON COMMIT DROP AS SELECT {names} FROM {table} WITH NO DATA"
            await self._connection.execute(staged.encode())
            await self._connection.execute(f"ALTER TABLE {_STAGED} ADD COLUMN {_PLACE} bigserial".encode())
        self._copy = f"COPY {into} ({names}) FROM STDIN".encode()
        self._convert = [_converter(*types.get(name, ("", ""))) for name in columns]
        return frozenset(name for name, (kind, _) in types.items() if kind == "bytea")

    async def _types(self) -> dict[str, tuple[str, str]]:
        cursor = await self._connection.execute(_COLUMN_TYPES.encode(), [self._write.table])
        return {name: (kind, _letter(category)) for name, kind, category in await cursor.fetchall()}

    def _from_staged(self, columns: tuple[str, ...]) -> bytes:
        """Of several rows with one key the last is written; a key that is null is like no other."""
        names = ", ".join(self._write.quoted(name) for name in columns)
        key = [self._write.quoted(name) for name in key_of(self._side)]
        null = " OR ".join(f"{name} IS NULL" for name in key)
        alike = f"{', '.join(key)}, CASE WHEN {null} THEN {_PLACE} END"
        last = f"SELECT DISTINCT ON ({alike}) * FROM {_STAGED} ORDER BY {alike}, {_PLACE} DESC"
        return self._write.insert(columns, f"SELECT {names} FROM ({last}) AS last ORDER BY {_PLACE}").encode()

    async def write(self, rows: list[Row]) -> None:
        convert = self._convert
        async with self._connection.cursor().copy(self._copy) as copy:
            for row in rows:
                await copy.write_row([
                    value if type(value) in _AS_THEY_ARE and made is _usual else made(value)
                    for made, value in zip(convert, row, strict=True)
                ])  # fmt: skip
        if self._upsert is not None:
            await self._connection.execute(self._upsert)
            await self._connection.execute(f"TRUNCATE {_STAGED}".encode())

    async def commit(self) -> None:
        await self._connection.execute("COMMIT")


@asynccontextmanager
async def target(side: TransferTarget, context: ToolContext) -> AsyncIterator[_Target]:
    config = PostgresConfig(
        table=checked_target(side),
        mode="upsert" if side.mode == "upsert" else "insert",
        key=side.key,
        dsn=side.dsn,
        database=side.database,
        auth=side.auth,
    )
    write = table_write(config, [])
    _keep_secret(config, context)
    pool = await pool_for(config, context)
    async with pool.connection() as connection:
        yield _Target(connection, side, write)


def _keep_secret(config: PostgresConfig, context: ToolContext) -> None:
    """A password that stands in the playbook itself is kept out of what is written, as far as it can be."""
    fields = config.auth if isinstance(config.auth, dict) else {}
    found = [fields.get("password"), fields.get("db_password")]
    for whole in (config.dsn, config.auth, fields.get("dsn"), fields.get("url")):
        if isinstance(whole, str):
            with suppress(psycopg.ProgrammingError):
                found.append(conninfo_to_dict(whole).get("password"))
    for password in found:
        if isinstance(password, str):
            # One that is too short to be told from other text stays.
            with suppress(NoetlError):
                context.add_secret(password)


def _letter(category: object) -> str:
    return category.decode() if isinstance(category, bytes) else str(category)


def _usual(value: Any) -> Any:  # noqa: ANN401 - any value of a database or a file
    """A value for a column that has no rule of its own; what it becomes is up to the column's type."""
    if isinstance(value, _NESTED):
        return json_text(value)
    if isinstance(value, timedelta | bytes | bytearray | memoryview):
        return text_of(value)
    return value


def _for_binary(value: Any) -> Any:  # noqa: ANN401 - any value of a database or a file
    if isinstance(value, _BINARY) or value is None:
        return value
    return (text_of(value) or "").encode()


def _for_array(value: Any) -> Any:  # noqa: ANN401 - any value of a database or a file
    if isinstance(value, str) and value.startswith("["):
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(value)
    return array_text(value) if isinstance(value, list | tuple) else _usual(value)


def _for_interval(value: Any) -> Any:  # noqa: ANN401 - any value of a database or a file
    return value if isinstance(value, timedelta) else _usual(value)


def _converter(kind: str, category: str) -> Callable[[Any], Any]:
    if kind == "bytea":
        return _for_binary
    return _for_array if category == "A" else _for_interval if category == "T" else _usual
