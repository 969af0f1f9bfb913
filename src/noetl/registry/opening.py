"""Opens the registry of a store by the store's address."""

from __future__ import annotations

from noetl.store.open import is_postgres
from noetl.store.protocol import STATEMENT_SECONDS, StoreError
from noetl.store.registry_protocol import RegistryStore
from noetl.store.registry_sqlite import open_sqlite_registry


async def open_registry(
    url: str, *, create: bool = True, statement_seconds: float = STATEMENT_SECONDS
) -> RegistryStore:
    """SQLite is made and brought up to date where it is missing; PostgreSQL must have its tables."""
    if not is_postgres(url):
        return open_sqlite_registry(url, create=create)
    try:
        # Only who has a PostgreSQL store needs its driver.
        from noetl.store.registry_postgres import open_postgres_registry  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise StoreError(
            "A store on PostgreSQL needs the driver: install it with `pip install 'noetl[postgres]'`."
        ) from missing
    return await open_postgres_registry(url, statement_seconds=statement_seconds)
