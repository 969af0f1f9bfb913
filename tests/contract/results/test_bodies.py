"""What every store of result bodies does: gives back what it got, whole and checked."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest

from noetl.results.bodies import ResultDamagedError, ResultGoneError
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
