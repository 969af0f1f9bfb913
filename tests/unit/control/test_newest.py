"""The newest version of a playbook: one question for all who ask together, none older than the asking."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any, cast

from noetl.control.newest import CatalogReader
from noetl.store.protocol import CatalogEntry, Store, StoreError


class Catalog:
    """One playbook. It answers with what was there when it was asked, once the gate is open."""

    def __init__(self) -> None:
        self.newest = 1
        self.questions = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_away = False

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        self.questions += 1
        found = self.newest if version is None else version
        await self.gate.wait()
        if self.is_away:
            raise StoreError("the store is away")
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


def test_a_question_that_nobody_waits_for_any_more_may_fail_or_be_stopped_in_silence() -> None:
    told: list[Any] = []

    async def scenario(catalog: Catalog, reader: CatalogReader) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about))
        for is_away in (True, False):
            catalog.is_away = is_away
            catalog.gate.clear()
            before = asyncio.all_tasks()
            waiting = [*await asked(reader, 1), *await asked(reader, 1)]
            questions = asyncio.all_tasks() - before - {*waiting}
            assert len(questions) == 2
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)
            if is_away:
                catalog.gate.set()
            else:
                for question in questions:
                    question.cancel()
            await asyncio.wait(questions)
            waiting.clear()
            questions.clear()
            gc.collect()

    play(scenario)
    assert told == []
