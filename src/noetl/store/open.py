"""Opens the store that an address names, whichever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.protocol import STATEMENT_SECONDS, StoreError
from noetl.store.sqlite import SqliteStore, open_store

if TYPE_CHECKING:
    from noetl.store.postgres import PostgresStore

POSTGRES_ADDRESSES: Final = ("postgresql://", "postgres://")


def is_postgres(url: str) -> bool:
    return url.startswith(POSTGRES_ADDRESSES)


def open_any(
    url: str, *, create: bool = True, owner: bool = True, statement_seconds: float = STATEMENT_SECONDS
) -> SqliteStore | PostgresStore:
    """The store at `sqlite:///…` or `postgresql://…`; StoreError where it cannot be used.

    `create` and `owner` matter to SQLite alone: PostgreSQL has its schema from `noetl db init`, and every
    process may write; `statement_seconds` matters to PostgreSQL alone.
    """
    if not is_postgres(url):
        return open_store(url, create=create, owner=owner)
    try:
        # An optional dependency, and one that takes time to import.
        from noetl.store.postgres import open_postgres  # noqa: PLC0415
    except ImportError as missing:
        raise StoreError(
            "A store on PostgreSQL needs the driver: install it with `pip install 'noetl[postgres]'`."
        ) from missing
    return open_postgres(url, statement_seconds=statement_seconds)
