"""Objects in the execution's own folder: the scheme `file`.

Every path is followed to where it leads before it is used, and nothing outside the folder is read, written
or listed. A file is written beside its place and renamed, so that nobody sees half of it.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import os
import secrets
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from noetl.ids import timestamp
from noetl.tools.call_failures import CallFailedError
from noetl.tools.object_places import PIECE, Found, Pieces, invalid
from noetl.tools.paths import PathRefusedError, under
from noetl.tools.threads import in_folder

_TEMPORARY: Final = ".part-"


class FolderPlace:
    """Implements `Place`; keys are paths from the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    async def head(self, key: str) -> Found:
        return await in_folder(self._folder, lambda: self._found(self._path(key)))

    async def open(self, key: str) -> tuple[Found, Pieces]:
        found = await self.head(key)
        return found, file_pieces(self._folder, self._path(key))

    async def put(self, key: str, body: bytes | Pieces, size: int, content_type: str) -> str | None:
        """Files have no media type; the name's ending has to tell it."""
        pieces = _one_piece(body) if isinstance(body, bytes) else body
        path = self._path(key)
        await write_file(self._folder, path, pieces)
        return (await in_folder(self._folder, lambda: self._found(path))).etag

    async def listed(self, prefix: str, most: int) -> list[Found]:
        return await in_folder(self._folder, lambda: self._listed(prefix, most))

    async def copy(self, key: str, to: str) -> None:
        found, pieces = await self.open(key)
        await self.put(to, pieces, found.size, "")

    async def delete(self, key: str) -> None:
        path = self._path(key)
        with _worded(path.name):
            await in_folder(self._folder, lambda: path.unlink(missing_ok=True))

    def _path(self, key: str) -> Path:
        path = path_in(self._folder, key)
        if path == self._folder:
            raise invalid("the address names a folder, not an object")
        return path

    def _found(self, path: Path) -> Found:
        name = path.relative_to(self._folder).as_posix()
        if not path.is_file():
            raise CallFailedError("object.missing", f"file://{name}: there is no such object")
        stat = path.stat()
        return Found(
            name=name,
            size=stat.st_size,
            etag=f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}",
            modified=timestamp(stat.st_mtime),
        )

    def _listed(self, prefix: str, most: int) -> list[Found]:
        if prefix.startswith("/"):
            inside = path_in(self._folder, prefix).relative_to(self._folder).as_posix()
            prefix = ("" if inside == "." else inside) + (
                "/" if prefix.endswith("/") and inside != "." else ""
            )
        # A name that begins so lies in this folder or below; one that is not there has none.
        top = path_in(self._folder, prefix.rpartition("/")[0])
        names = heapq.nsmallest(most, (name for name in self._names(top) if name.startswith(prefix)))
        return [self._found(self._folder / name) for name in names]

    def _names(self, top: Path) -> Iterator[str]:
        for folder, _, files in os.walk(top):
            for each in files:
                path = Path(folder, each)
                if not each.startswith(_TEMPORARY) and not path.is_symlink() and path.is_file():
                    yield path.relative_to(self._folder).as_posix()


def path_in(folder: Path, written: str) -> Path:
    try:
        return under(folder, written)
    except PathRefusedError as refused:
        raise invalid(str(refused)) from None


async def write_file(folder: Path, path: Path, pieces: Pieces) -> int:
    """Makes a file of a body, in that folder and nowhere else; how many bytes it has."""
    size = 0
    temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")

    def begun() -> BinaryIO:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        return temporary.open("xb")

    with _worded(path.name):
        try:
            with await in_folder(folder, begun) as file:
                async with aclosing(pieces):
                    async for piece in pieces:
                        size += len(piece)
                        await asyncio.to_thread(file.write, piece)
            await in_folder(folder, lambda: temporary.replace(path))
        finally:
            temporary.unlink(missing_ok=True)
    return size


async def file_pieces(folder: Path, path: Path) -> Pieces:
    with _worded(path.name), await in_folder(folder, lambda: path.open("rb")) as file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece


async def _one_piece(body: bytes) -> Pieces:
    yield body


@contextmanager
def _worded(name: str) -> Iterator[None]:
    """What a file refuses, as the failure of the call."""
    try:
        yield
    except OSError as error:
        raise CallFailedError("object.file", f"the file `{name}`: {error.strerror or error}") from None
