"""Finds playbooks in the catalog: starts that come together ask the store together.

Any process may register a newer version at any moment, so the newest one is never remembered: whoever asks
gets an answer of a question that was put after it asked. A named version never changes, and is remembered.
"""

from __future__ import annotations

import asyncio
from typing import Final

from noetl.store.protocol import CatalogEntry, Store

MOST_REMEMBERED: Final = 500


class CatalogReader:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking: dict[str, asyncio.Task[CatalogEntry | None]] = {}
        """By path: the question that is under way."""
        self._next: dict[str, asyncio.Task[CatalogEntry | None]] = {}
        """By path: the question that follows it, for all who came meanwhile."""
        self._versions: dict[tuple[str, int], CatalogEntry] = {}

    async def entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        return await (self._newest(path) if version is None else self._version(path, version))

    async def _version(self, path: str, version: int) -> CatalogEntry | None:
        known = self._versions.get((path, version))
        if known is None:
            known = await self._store.catalog_entry(path, version)
            if known is not None:
                while len(self._versions) >= MOST_REMEMBERED:
                    del self._versions[next(iter(self._versions))]
                self._versions[path, version] = known
        return known

    async def _newest(self, path: str) -> CatalogEntry | None:
        earlier = self._asking.get(path)
        if earlier is None:
            asked = self._asking[path] = asyncio.create_task(self._ask(path))
            asked.add_done_callback(_heard)
        else:
            following = self._next.get(path)
            if following is None:
                following = self._next[path] = asyncio.create_task(self._ask_after(earlier, path))
                following.add_done_callback(_heard)
            asked = following
        # Whoever gives up waiting must not take the answer away from the others.
        return await asyncio.shield(asked)

    async def _ask_after(self, earlier: asyncio.Task[CatalogEntry | None], path: str) -> CatalogEntry | None:
        await asyncio.wait({earlier})
        self._asking[path] = self._next.pop(path)
        return await self._ask(path)

    async def _ask(self, path: str) -> CatalogEntry | None:
        try:
            return await self._store.catalog_entry(path)
        finally:
            if self._asking.get(path) is asyncio.current_task():
                del self._asking[path]


def _heard(asked: asyncio.Task[CatalogEntry | None]) -> None:
    """An error is raised where it is waited for; where nobody does any more it is nobody's."""
    if not asked.cancelled():
        asked.exception()
