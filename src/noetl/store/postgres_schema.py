"""The schema of the PostgreSQL store: which version is there, bringing it up to date, and how it fares.

Migrations are numbered files, applied in order, all that are missing in one transaction, by one process at a
time. Each is recorded with a checksum of its text: one that was changed after it had been applied is found,
and nothing is guessed. A schema that is newer than this version of NoETL is left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg.rows import DictRow, dict_row

from noetl.store.postgres_connections import settings_of
from noetl.store.postgres_errors import refusal, shown_address, store_error
from noetl.store.protocol import StoreError
from noetl.store.queries import Migration, migrations, queries

Connection: TypeAlias = psycopg.Connection[DictRow]

MIGRATION_LOCK: Final = 0x4E4F4554
"""Held until the end of the transaction that migrates."""

ASKED_ABOUT: Final = 3
"""The last migration that made something which `examine` looks at."""

_QUERIES: Final = queries("postgres", "schema")


class Applied(NamedTuple):
    version: int
    name: str
    checksum: str


class Health(NamedTuple):
    """How a database fares."""

    server: str
    version: int
    pending: tuple[str, ...]
    free_commands: int
    leased_commands: int
    held_commands: int
    oldest_free_seconds: float | None
    expired_leases: int
    abandoned_leases: int
    """Those of them that nobody has taken away for a minute."""
    open_executions: int
    overdue_timers: int
    """Due for more than a minute."""
    command_bytes: int
    command_rows: int
    command_dead_rows: int
    command_vacuumed_at: str | None
    partitions: int
    partitions_until: str | None
    lacks_partition: bool
    """Today's events go into the last partition, which retention cannot drop."""


def require_schema(url: str) -> None:
    """StoreError unless the database can be reached and has the schema of this version."""
    with _connected(url) as connection:
        missing = _missing(_applied(connection), url)
    if missing and missing[0].version == 1:
        raise _not_there(url)
    if missing:
        raise StoreError(
            f"The schema of {shown_address(url)} is older than this version of NoETL: {_names(missing)} not "
            "applied. Run `noetl db migrate --store URL`."
        )


def migrate(url: str, *, create: bool = True) -> list[str]:
    """Applies what is missing, and gives its names; an empty database is refused unless it is to `create`."""
    with _connected(url) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": MIGRATION_LOCK})
        applied = _applied(connection)
        if not applied and not create:
            raise _not_there(url)
        connection.execute(_statement("prepare"))
        missing = _missing(applied, url)
        for migration in missing:
            connection.execute(migration.script)
            connection.execute(
                _statement("record"),
                {"version": migration.version, "name": migration.name, "checksum": _checksum(migration)},
            )
        # In the same transaction: there is no moment at which events would have no partition of their own.
        if missing:
            connection.execute("SELECT noetl.ensure_partitions()")
    return [_name(each) for each in missing]


def examine(url: str) -> Health:
    """Looks at the schema, the queue and the partitions; StoreError where there is no schema at all."""
    with _connected(url) as connection:
        applied = _applied(connection)
        pending = _missing(applied, url)
        if pending and pending[0].version <= ASKED_ABOUT:
            raise _not_there(url)
        found: dict[str, Any] = {}
        for question in ("server", "queue", "table", "partitions"):
            found |= connection.execute(_statement(question)).fetchone() or {}
    return Health(
        version=max((each.version for each in applied), default=0),
        pending=tuple(_name(each) for each in pending),
        **found,
    )


def _not_there(url: str) -> StoreError:
    return StoreError(f"{shown_address(url)} has no schema of NoETL. Run `noetl db init --store URL` once.")


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    try:
        connection: Connection = psycopg.Connection.connect(
            url, autocommit=True, row_factory=dict_row, **settings_of(url)
        )
    except psycopg.Error as error:
        raise refusal(error, url) from error
    try:
        with connection:
            yield connection
    except psycopg.Error as error:
        raise store_error(error, url) from error


def _applied(connection: Connection) -> list[Applied]:
    there = connection.execute("SELECT to_regclass('noetl.migration') IS NOT NULL AS there").fetchone()
    if there is None or not there["there"]:
        return []
    return [Applied(**row) for row in connection.execute(_statement("applied"))]


def _missing(applied: list[Applied], url: str) -> list[Migration]:
    """What is to be applied; StoreError where what was applied is not what this version knows."""
    known = {each.version: each for each in migrations("postgres")}
    for each in applied:
        if each.version not in known:
            raise StoreError(
                f"The schema of {shown_address(url)} has migration {each.version} ({each.name}), which this "
                f"version of NoETL does not know: it knows them up to {max(known)}. Use the version that "
                "wrote it, or a later one."
            )
        if each.checksum != _checksum(known[each.version]):
            raise StoreError(
                f"Migration {each.version} ({each.name}) of {shown_address(url)} was applied with another "
                "text than this version of NoETL has. Use the version that applied it, or begin with an "
                "empty database."
            )
    done = {each.version for each in applied}
    return [migration for version, migration in sorted(known.items()) if version not in done]


def _checksum(migration: Migration) -> str:
    return hashlib.sha256(migration.script.encode()).hexdigest()


def _name(migration: Migration) -> str:
    return f"{migration.version:03d} {migration.name}"


def _names(missing: list[Migration]) -> str:
    return f"{', '.join(map(_name, missing))} {'is' if len(missing) == 1 else 'are'}"


def _statement(name: str) -> str:
    return _QUERIES[name]
