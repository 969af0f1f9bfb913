"""A body on its way to a store that must know the whole of it first: its checksum, its size, its bytes.

Small ones stay in memory; a large one lies in a temporary file, so that memory stays bounded.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from typing import IO, Final

PIECE: Final = 1024 * 1024
IN_MEMORY: Final = 4 * PIECE


class Spooled:
    """Use it as a context manager: the temporary file goes with it."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - closed below
        self.size = 0
        self._digest = hashlib.sha256()

    def __enter__(self) -> Spooled:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()

    async def take(self, body: bytes | AsyncIterator[bytes]) -> None:
        """Takes a whole body in, and stands at its beginning again."""
        if isinstance(body, bytes):
            await self.add(body)
        else:
            async for piece in body:
                await self.add(piece)
        self.file.seek(0)

    async def add(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.size += len(piece)
        if self.size <= IN_MEMORY:
            self.file.write(piece)
        else:
            await asyncio.to_thread(self.file.write, piece)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body from its beginning."""
        self.file.seek(0)
        while piece := self.file.read(PIECE):
            yield piece
