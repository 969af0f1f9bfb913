"""Registered playbooks by the name people write: `path`, or `path@version`."""

from __future__ import annotations

from typing import Protocol

from noetl.cli.stores import Place
from noetl.errors import UsageError
from noetl.store.protocol import CatalogEntry


class CatalogReader(Protocol):
    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None: ...


def split_version(written: str) -> tuple[str, int | None]:
    """The path and the version of `path[@version]`."""
    path, at, version = written.rpartition("@")
    if not at:
        return written, None
    if not (version.isascii() and version.isdigit() and path):
        raise UsageError(f"`{written}` names no version: write PATH@NUMBER")
    return path, int(version)


async def find_registered(place: Place, written: str) -> CatalogEntry | None:
    store = place.read()
    try:
        return await store.catalog_entry(*split_version(written))
    finally:
        await store.close()


async def registered(store: CatalogReader, written: str) -> CatalogEntry:
    """The entry of `path[@version]`; UsageError where there is none."""
    path, version = split_version(written)
    found = await store.catalog_entry(path, version)
    if found is not None:
        return found
    newest = None if version is None else await store.catalog_entry(path)
    if newest is not None:
        raise UsageError(f"`{path}` has no version {version}; the newest is {newest.version}")
    raise UsageError(f"no playbook `{path}` is registered in this store; `noetl catalog list` shows them")
