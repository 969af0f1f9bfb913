"""What leaves a worker is searched for secrets, whatever pieces it comes in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from noetl.secrets.redaction import Redactor, SecretTooShortError

SECRET = "s3cr3t-Tokenvalue99"


def redacted(body: bytes, size: int) -> bytes:
    redactor = Redactor()
    redactor.register(SECRET)
    redactor.register("tok-en")

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    async def whole() -> bytes:
        return b"".join([piece async for piece in redactor.stream(pieces())])

    return asyncio.run(whole())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 19, 20, 1000])
def test_a_secret_is_found_across_the_borders_of_pieces(size: int) -> None:
    body = f"\0a {SECRET}{SECRET} b tok-e tok-en {SECRET[:-1]}".encode() + b"\xff"
    assert redacted(body, size) == f"\0a ****** b tok-e *** {SECRET[:-1]}".encode() + b"\xff"


def test_an_empty_body_stays_empty() -> None:
    assert redacted(b"", 5) == b""


def test_a_secret_that_is_too_short_does_not_keep_the_others_from_being_known() -> None:
    redactor = Redactor()
    with pytest.raises(SecretTooShortError, match=r"keychain\.pin"):
        redactor.register_keychain({"pin": 1234, "token": SECRET})
    assert redactor.text(f"a {SECRET}") == "a ***"
