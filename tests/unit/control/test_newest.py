"""The newest version of a playbook: one question for all who ask together, none older than the asking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from noetl.control.newest import CatalogReader
from noetl.store.protocol import CatalogEntry, Store


class Catalog:
    """One playbook. It answers with what was there when it was asked, once the gate is open."""

    def __init__(self) -> None:
        self.newest = 1
        self.questions = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        self.questions += 1
        found = self.newest if version is None else version
        await self.gate.wait()
        return CatalogEntry(
            path=path,
            version=found,
            name=path,
            dialect="v2",
            digest=f"d{found}",
            registered_at="",
            source=b"",
        )


def play(scenario: Callable[[Catalog, CatalogReader], Awaitable[None]]) -> None:
    async def whole() -> None:
        catalog = Catalog()
        async with asyncio.timeout(10):
            await scenario(catalog, CatalogReader(cast(Store, catalog)))

    asyncio.run(whole())


async def asked(reader: CatalogReader, number: int) -> list[asyncio.Task[CatalogEntry | None]]:
    tasks = [asyncio.create_task(reader.entry("p")) for _ in range(number)]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def versions(tasks: list[asyncio.Task[CatalogEntry | None]]) -> list[int]:
    return [entry.version for entry in await asyncio.gather(*tasks) if entry is not None]


def test_those_who_ask_while_a_question_is_under_way_share_the_next_one() -> None:
    async def scenario(catalog: Catalog, reader: CatalogReader) -> None:
        catalog.gate.clear()
        first = await asked(reader, 1)
        others = await asked(reader, 30)
        catalog.gate.set()
        assert await versions([*first, *others]) == [1] * 31
        assert catalog.questions == 2

    play(scenario)


def test_nobody_gets_a_version_that_was_replaced_before_they_asked() -> None:
    async def scenario(catalog: Catalog, reader: CatalogReader) -> None:
        catalog.gate.clear()
        before = await asked(reader, 1)
        catalog.newest = 2
        after = await asked(reader, 3)
        catalog.gate.set()
        assert await versions(before) == [1]
        assert await versions(after) == [2, 2, 2]
        catalog.newest = 3
        assert await versions(await asked(reader, 1)) == [3]

    play(scenario)


def test_whoever_gives_up_takes_nothing_from_the_others() -> None:
    async def scenario(catalog: Catalog, reader: CatalogReader) -> None:
        catalog.gate.clear()
        first = await asked(reader, 2)
        others = await asked(reader, 2)
        first[0].cancel()
        others[0].cancel()
        catalog.gate.set()
        assert await versions([first[1], others[1]]) == [1, 1]

    play(scenario)


def test_a_named_version_is_asked_for_once() -> None:
    async def scenario(catalog: Catalog, reader: CatalogReader) -> None:
        found = [await reader.entry("p", 7) for _ in range(3)]
        assert [entry.version for entry in found if entry is not None] == [7, 7, 7]
        assert catalog.questions == 1

    play(scenario)
