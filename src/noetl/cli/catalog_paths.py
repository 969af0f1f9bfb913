"""Registered playbooks by the name people write: `path`, or `path@version`."""

from __future__ import annotations

from typing import Protocol

from noetl.cli.stores import AnyPlace
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


async def find_registered(place: AnyPlace, written: str) -> CatalogEntry | None:
    """The entry of `path[@version]`; None where nothing is registered under the path."""
    store = place.read()
    try:
        return await _entry(store, *split_version(written))
    finally:
        await store.close()


async def registered(store: CatalogReader, written: str) -> CatalogEntry:
    """The entry of `path[@version]`; UsageError where there is none."""
    path, version = split_version(written)
    found = await _entry(store, path, version)
    if found is not None:
        return found
    raise UsageError(f"no playbook `{path}` is registered in this store; `noetl catalog list` shows them")


async def _entry(store: CatalogReader, path: str, version: int | None) -> CatalogEntry | None:
    """UsageError where other versions are registered."""
    found = await store.catalog_entry(path, version)
    if found is not None or version is None:
        return found
    newest = await store.catalog_entry(path)
    if newest is None:
        return None
    raise UsageError(f"`{path}` has no version {version}; the newest is {newest.version}")
