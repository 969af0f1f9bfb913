"""What every store of result bodies does: gives back what it got, whole and checked."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from noetl.results.bodies import ResultDamagedError, ResultGoneError
from noetl.results.chosen import ChosenBodies
from noetl.results.object_urls import BucketBodies, UrlBodies, place_at
from tests.contract.results.conftest import Play, Tried

LARGE = 9 * 1024 * 1024 + 17
"""More than is kept in memory on the way."""


async def in_pieces(body: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("body", [b"", b"x", b"\x00\xff" * 70_000])
def test_a_body_comes_back_as_it_was(play: Play, body: bytes) -> None:
    async def scenario(tried: Tried) -> None:
        ref = await tried.bodies.put("42", body, media_type="application/json", store=tried.store)
        assert (ref.size, ref.checksum) == (len(body), hashlib.sha256(body).hexdigest())
        assert ref.schema_hint == {"media_type": "application/json"}
        assert ref.ref.startswith("noetl://42/")
        assert await tried.bodies.get(ref) == body

    play(scenario)


def test_a_large_body_is_put_and_got_in_pieces(play: Play) -> None:
    body = bytes(range(256)) * (LARGE // 256) + b"end"

    async def scenario(tried: Tried) -> None:
        ref = await tried.bodies.put("42", in_pieces(body), media_type="text/plain", store=tried.store)
        assert ref.size == len(body)
        pieces = [piece async for piece in tried.bodies.stream(ref)]
        assert len(pieces) > 1
        assert b"".join(pieces) == body

    play(scenario)


def test_a_body_that_is_stored_twice_is_one(play: Play) -> None:
    async def scenario(tried: Tried) -> None:
        first = await tried.bodies.put("42", b"same", media_type="text/plain", store=tried.store)
        again = await tried.bodies.put(
            "42", in_pieces(b"same", 2), media_type="text/plain", store=tried.store
        )
        other = await tried.bodies.put("43", b"same", media_type="text/plain", store=tried.store)
        assert first == again
        assert other.key != first.key
        assert await tried.bodies.get(other) == b"same"

    play(scenario)


def test_a_body_that_is_gone_is_told_by_its_reference(play: Play) -> None:
    async def scenario(tried: Tried) -> None:
        ref = await tried.bodies.put("44", b"lost", media_type="text/plain", store=tried.store)
        await tried.lose(ref)
        with pytest.raises(ResultGoneError, match=ref.ref):
            await tried.bodies.get(ref)

    play(scenario)


def test_a_body_that_was_changed_is_refused(play: Play) -> None:
    async def scenario(tried: Tried) -> None:
        ref = await tried.bodies.put("45", b"whole", media_type="text/plain", store=tried.store)
        await tried.damage(ref)
        with pytest.raises(ResultDamagedError):
            await tried.bodies.get(ref)
        with pytest.raises(ResultDamagedError):
            async for _ in tried.bodies.stream(ref):
                pass

    play(scenario)


def test_the_bodies_of_an_execution_are_found_and_removed_together(play: Play) -> None:
    async def scenario(tried: Tried) -> None:
        place = place_of_bodies(tried)
        mine = [
            await tried.bodies.put("101", body, media_type="a/b", store=tried.store) for body in (b"1", b"2")
        ]
        other = await tried.bodies.put("1011", b"1", media_type="a/b", store=tried.store)
        assert {"101", "1011"} <= set(await place.executions())
        await place.forget(["101"])
        assert "101" not in await place.executions()
        for ref in mine:
            with pytest.raises(ResultGoneError):
                await tried.bodies.get(ref)
        assert await tried.bodies.get(other) == b"1"
        await place.forget(["101"])

    play(scenario)


def place_of_bodies(tried: Tried) -> Any:
    """Where the bodies lie, for who clears it."""
    if isinstance(tried.store, str) and tried.store.startswith("file://"):
        return place_at(tried.store)
    if isinstance(tried.bodies, ChosenBodies):
        return tried.bodies._stores["nats_object"]
    return tried.bodies


def test_a_bucket_is_cleared_of_one_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pytest.importorskip("obstore.store").MemoryStore()
    monkeypatch.setattr("noetl.results.object_urls._bucket", lambda _: memory)

    async def scenario() -> None:
        place, bodies = place_at("s3://shop/results"), UrlBodies()
        assert isinstance(place, BucketBodies)
        assert await place.executions() == []
        for name in ("101", "1011", "of-another-program"):
            await bodies.put(name, name.encode(), media_type="a/b", store="s3://shop/results")
        assert sorted(await place.executions()) == ["101", "1011"]
        await place.forget(["101"])
        assert await place.executions() == ["1011"]

    asyncio.run(scenario())
