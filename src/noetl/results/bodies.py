"""Result bodies in the execution's folder on disk, for what is too large for the database.

A body is written to a temporary file and renamed when it is whole, so a name always has its whole body.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.records.result_ref import ResultRef

PIECE: Final = 1024 * 1024


class ResultGoneError(NoetlError):
    code = "result.gone"


class ResultDamagedError(NoetlError):
    code = "result.damaged"


class ResultBinaryError(NoetlError):
    """A body that is neither text nor JSON was to be read as a value."""

    code = "result.binary"


class ResultStoreError(NoetlError):
    """A store of results cannot be used, or is named in a way that makes no sense."""

    code = "result.store"


class FileBodies:
    """Implements `ResultBodies` over a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(
        self, execution_id: str, body: bytes | AsyncIterator[bytes], *, media_type: str, store: object
    ) -> ResultRef:
        place = self._folder / execution_id / "results"
        place.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        size = 0
        temporary = place / f".{os.getpid()}-{id(body)}.part"
        try:
            with temporary.open("wb") as file:
                async for piece in _pieces(body):
                    digest.update(piece)
                    size += len(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            checksum = digest.hexdigest()
            temporary.replace(place / checksum)
        finally:
            temporary.unlink(missing_ok=True)
        return ResultRef(
            ref=f"noetl://{execution_id}/file/{checksum}",
            store="file",
            key=f"{execution_id}/results/{checksum}",
            checksum=checksum,
            size=size,
            schema_hint={"media_type": media_type},
        )

    async def executions(self) -> list[str]:
        """Those that have bodies here."""
        if not self._folder.is_dir():
            return []
        found = await asyncio.to_thread(lambda: list(self._folder.glob("*/results")))
        return [each.parent.name for each in found if is_execution_id(each.parent.name)]

    async def forget(self, execution_ids: Collection[str]) -> None:
        """Removes the bodies of executions; their other files stay."""
        for execution_id in execution_ids:
            place = self._folder / execution_id
            await asyncio.to_thread(shutil.rmtree, place / "results", ignore_errors=True)
            with contextlib.suppress(OSError):  # something else lies there
                place.rmdir()

    def path(self, ref: ResultRef) -> Path:
        """Where the body of a reference lies; ResultGoneError where it does not."""
        path = (self._folder / ref.key).resolve()
        if not path.is_relative_to(self._folder.resolve()) or not path.is_file():
            raise ResultGoneError(f"the stored result {ref.ref} is gone")
        return path

    async def get(self, ref: ResultRef) -> bytes:
        body = self.path(ref).read_bytes()
        if hashlib.sha256(body).hexdigest() != ref.checksum:
            raise ResultDamagedError(f"the stored result {ref.ref} does not have its checksum")
        return body

    async def stream(self, ref: ResultRef) -> AsyncIterator[bytes]:
        digest = hashlib.sha256()
        with self.path(ref).open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                yield piece
        if digest.hexdigest() != ref.checksum:
            raise ResultDamagedError(f"the stored result {ref.ref} does not have its checksum")


def is_execution_id(name: str) -> bool:
    """What else lies in a folder or a bucket is none of ours."""
    return name.isascii() and name.isdecimal() and len(name) < 20


async def _pieces(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        yield body
        return
    async for piece in body:
        yield piece


def decoded(body: bytes, ref: ResultRef | None = None) -> Any:  # noqa: ANN401 - plain data
    """The value a stored body holds: data where it is JSON, else text; ResultBinaryError where it is neither.

    `ref` is its reference, where it is known: the error then says more.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # no JSON, or none that could be data
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise ResultBinaryError(
            f"{described(len(body), ref)} cannot be read as a value: it is neither text nor JSON. "
            f"{_remedy(ref)}"
        ) from None


def described(size: int, ref: ResultRef | None) -> str:
    """What a stored body is, for people."""
    hint = None if ref is None else ref.schema_hint
    media_type = hint.get("media_type") if isinstance(hint, dict) else None
    return f"the stored result ({size:,} bytes{f' of {media_type}' if media_type else ''})"


def _remedy(ref: ResultRef | None) -> str:
    if ref is not None and "://" in ref.key:
        return f"Tools can open it where it lies: {ref.key}"
    if ref is not None and ref.store != "file":
        return (
            "Keep it in a file with `spec.result.store: file`: its path is then `.stored_path` of the result"
        )
    return "If it is kept in a file, `.stored_path` of the result is its path, for tools that open files"
