"""Result bodies as tools write them: searched for secrets piece by piece, and noted.

Only what is written passes through here changed; what is read is given as it was stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from noetl.records.protocols import ResultBodies
from noetl.records.result_ref import ResultRef
from noetl.secrets.redaction import Redactor


class RedactedResults:
    """Implements `ResultBodies` over another."""

    def __init__(self, inner: ResultBodies, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def put(
        self, execution_id: str, body: bytes | AsyncIterator[bytes], *, media_type: str, store: object
    ) -> ResultRef:
        pieces = self._redactor.stream(_one(body) if isinstance(body, bytes) else body)
        return await self._inner.put(execution_id, pieces, media_type=media_type, store=store)

    async def get(self, ref: ResultRef) -> bytes:
        return await self._inner.get(ref)

    def stream(self, ref: ResultRef) -> AsyncIterator[bytes]:
        return self._inner.stream(ref)


class NotedResults:
    """Implements `ResultBodies` over another, and notes the references that were given out."""

    def __init__(self, inner: ResultBodies, made: set[str]) -> None:
        self._inner = inner
        self._made = made

    async def put(
        self, execution_id: str, body: bytes | AsyncIterator[bytes], *, media_type: str, store: object
    ) -> ResultRef:
        stored = await self._inner.put(execution_id, body, media_type=media_type, store=store)
        self._made.add(stored.ref)
        return stored

    async def get(self, ref: ResultRef) -> bytes:
        return await self._inner.get(ref)

    def stream(self, ref: ResultRef) -> AsyncIterator[bytes]:
        return self._inner.stream(ref)


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body
