"""Opens SQLite databases: where one lies, how a connection is set up, which schema it has, what went wrong.

Everything the driver raises becomes a StoreError here, with a sentence that says what to do. Nothing here
knows what is stored.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from noetl.store.protocol import StoreError
from noetl.store.queries import Migration, migrations

MEMORY: Final = ":memory:"
APPLICATION_ID: Final = 0x4E4F4554
"""Stands in the header of the file and tells our databases from those of other programs."""
CHECKPOINT_PAGES: Final = 4000
"""How long the write-ahead log grows before its pages go to the database: seldom enough not to be felt."""
CACHED_STATEMENTS: Final = 512
SYNCHRONOUS: Final = ("off", "normal", "full", "extra")

_ADVICE: Final = {
    "SQLITE_FULL": "the disk is full. Free some space and try again; what was committed before is safe",
    "SQLITE_BUSY": "another program keeps it locked. Close what has it open (a database browser, a backup) "
    "and try again",
    "SQLITE_LOCKED": "another program keeps it locked. Close what has it open and try again",
    "SQLITE_CORRUPT": "the file is damaged. Restore a copy, or save what can be read with "
    "`sqlite3 FILE .recover`",
    "SQLITE_NOTADB": "the file is not a SQLite database, or is encrypted. Choose another file",
    "SQLITE_READONLY": "it cannot be written. Make the file and its folder writable",
    "SQLITE_CANTOPEN": "it cannot be opened. The file and its folder must exist and be writable",
    "SQLITE_PERM": "it cannot be opened. The file and its folder must be readable and writable",
    "SQLITE_IOERR": "the disk reported an error. Check the disk and its free space; what was committed "
    "before is safe",
    "SQLITE_TOOBIG": "a value is too large for it (about a gigabyte). Keep such results outside the database",
}


def database_path(url: str) -> Path | None:
    """The file that a `sqlite:///…` address names, links followed; None for a database in memory."""
    prefix = "sqlite:///"
    if not url.startswith(prefix) or not url.removeprefix(prefix) or "\0" in url:
        raise StoreError(
            f"{_scheme(url)} is no address of a SQLite database. Write `sqlite:///folder/file.db`, with a "
            "fourth slash for an absolute path, or `sqlite:///:memory:`."
        )
    place = url.removeprefix(prefix)
    if place == MEMORY:
        return None
    try:
        # Two names of one file must lead to one lock.
        return Path(place).resolve()
    except (OSError, RuntimeError) as refused:
        raise StoreError(f"`{url}` leads nowhere ({refused}). Choose another place.") from refused


def _scheme(url: str) -> str:
    """An address as far as it holds no secret: it may be meant for another database, with its password."""
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)", url)
    return "What was given" if scheme is None else f"`{scheme[0]}://…`"


def store_error(error: sqlite3.Error, path: Path | None) -> StoreError:
    """What the driver says, in words a user can act on."""
    name = getattr(error, "sqlite_errorname", "")
    # Extended codes (SQLITE_IOERR_WRITE) mean the same to a user as what they extend.
    plain = "_".join(name.split("_")[:2])
    advice = _ADVICE.get(plain, "it refused a statement. This may be a mistake in NoETL: please report it")
    return StoreError(f"The database {path or 'in memory'}: {advice} ({error}).")


@contextmanager
def driver_errors(path: Path | None) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, path) from error


def connect(path: Path | None, *, busy_seconds: float) -> sqlite3.Connection:
    """A connection that commits only when it is told to, and may be handed to another thread."""
    connection = sqlite3.connect(
        path or MEMORY,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def connect_reader(path: Path, *, busy_seconds: float) -> sqlite3.Connection:
    connection = connect(path, busy_seconds=busy_seconds)
    connection.execute("PRAGMA query_only = ON")
    return connection


def keep_log_ahead(connection: sqlite3.Connection, path: Path) -> None:
    """Write-ahead logging, so that readers and the writer do not wait for each other."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"The database {path} cannot keep a write-ahead log here (its journal mode stays `{mode}`). "
            "Put it on a local disk."
        )
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")


def synchronous_of(connection: sqlite3.Connection) -> str:
    """How commits reach the disk, read back from the connection itself."""
    return SYNCHRONOUS[connection.execute("PRAGMA synchronous").fetchone()[0]]


def check_schema(connection: sqlite3.Connection, path: Path | None) -> int:
    """The version of the schema; 0 for an empty file. StoreError where it is none of ours, or too new."""
    known = max(each.version for each in migrations("sqlite"))
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    if mark != APPLICATION_ID:
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if mark or tables:
            raise StoreError(f"The database {path} belongs to another program. Choose another file.")
        return 0
    version = int(connection.execute("SELECT coalesce(max(version), 0) FROM migration").fetchone()[0])
    if version > known:
        raise StoreError(
            f"The database {path} has schema {version}, and this version of NoETL knows them up to {known}. "
            "Use the version that wrote it, or a later one."
        )
    return version


def migrate(connection: sqlite3.Connection, path: Path | None) -> None:
    """Brings the schema up to this version, each migration in a transaction of its own."""
    version = check_schema(connection, path)
    for migration in migrations("sqlite"):
        if migration.version > version:
            _apply(connection, migration)


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migration"
            " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
        )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for statement in _statements(migration.script):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO migration VALUES (?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
            (migration.version, migration.name),
        )
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: the driver's own way to run a script would commit before it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
