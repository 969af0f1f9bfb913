"""Result bodies in the execution's folder on disk, for what is too large for the database.

A body is written to a temporary file and renamed when it is whole, so a name always has its whole body.
Code of the execution can write in that folder too. So no link in it is followed, neither to write nor to
read, and nothing in it is believed that does not have the size and the checksum of what was stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.private_folders import FILE_MODE, FOLDER_MODE, make_private
from noetl.records.result_ref import ResultRef

PIECE: Final = 1024 * 1024
RESULTS: Final = "results"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITTEN: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe that lies in the place of a body would be waited at.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
        make_private(self._folder / execution_id)
        digest = hashlib.sha256()
        size = 0
        temporary = f".{secrets.token_hex(8)}.part"
        with _results_made(self._folder, execution_id) as place:
            try:
                with open(temporary, "xb", opener=lambda name, _: _created(name, place)) as file:
                    async for piece in _pieces(body):
                        digest.update(piece)
                        size += len(piece)
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                checksum = digest.hexdigest()
                _name(temporary, checksum, place)
            finally:
                with contextlib.suppress(OSError):  # it has its name, or code took it away
                    os.unlink(temporary, dir_fd=place)
        return ResultRef(
            ref=f"noetl://{execution_id}/file/{checksum}",
            store="file",
            key=f"{execution_id}/{RESULTS}/{checksum}",
            checksum=checksum,
            size=size,
            schema_hint={"media_type": media_type},
        )

    async def executions(self) -> list[str]:
        """Those that have bodies here."""
        if not self._folder.is_dir():
            return []
        found = await asyncio.to_thread(lambda: list(self._folder.glob(f"*/{RESULTS}")))
        return [each.parent.name for each in found if is_execution_id(each.parent.name)]

    async def forget(self, execution_ids: Collection[str]) -> None:
        """Removes the bodies of executions; their other files stay."""
        for execution_id in execution_ids:
            await asyncio.to_thread(_forget, self._folder, execution_id)

    async def get(self, ref: ResultRef) -> bytes:
        with self._opened(ref) as file:
            body = file.read(ref.size)
        if hashlib.sha256(body).hexdigest() != ref.checksum:
            raise _damaged(ref)
        return body

    async def stream(self, ref: ResultRef) -> AsyncIterator[bytes]:
        digest = hashlib.sha256()
        left = ref.size
        with self._opened(ref) as file:
            while left > 0 and (piece := file.read(min(PIECE, left))):
                digest.update(piece)
                left -= len(piece)
                yield piece
        if digest.hexdigest() != ref.checksum:
            raise _damaged(ref)

    def _opened(self, ref: ResultRef) -> IO[bytes]:
        """The file of a reference; ResultGoneError where there is none."""
        *folders, name = ref.key.split("/")
        try:
            with _entered(self._folder, folders) as place:
                descriptor = os.open(_plain(name), _READ, dir_fd=place)
        except (OSError, ValueError):
            raise ResultGoneError(f"the stored result {ref.ref} is gone") from None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size != ref.size:
            os.close(descriptor)
            raise _damaged(ref)
        return os.fdopen(descriptor, "rb")


def _damaged(ref: ResultRef) -> ResultDamagedError:
    return ResultDamagedError(f"the stored result {ref.ref} does not have its checksum")


@contextlib.contextmanager
def _entered(folder: Path, names: Sequence[str]) -> Iterator[int]:
    """The descriptor of a folder below another, each on the way there opened in the one before it."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            above, place = place, os.open(_plain(name), _FOLDER, dir_fd=place)
            os.close(above)
        yield place
    finally:
        os.close(place)


def _plain(name: str) -> str:
    if name in ("", ".", ".."):
        raise ValueError("no name in a folder")
    return name


@contextlib.contextmanager
def _results_made(folder: Path, execution_id: str) -> Iterator[int]:
    """The folder for the bodies of an execution, whose name code may have taken for something else."""
    with contextlib.ExitStack() as closing:
        try:
            above = closing.enter_context(_entered(folder, [execution_id]))
            with contextlib.suppress(FileExistsError):
                os.mkdir(RESULTS, FOLDER_MODE, dir_fd=above)
            place = closing.enter_context(_entered(folder, [execution_id, RESULTS]))
        except OSError as error:
            raise _not_stored(error) from None
        yield place


def _created(name: str, place: int) -> int:
    try:
        return os.open(name, _WRITTEN, FILE_MODE, dir_fd=place)
    except OSError as error:
        raise _not_stored(error) from None


def _name(temporary: str, checksum: str, place: int) -> None:
    try:
        os.replace(temporary, checksum, src_dir_fd=place, dst_dir_fd=place)
    except OSError as error:
        raise _not_stored(error) from None


def _not_stored(error: OSError) -> ResultStoreError:
    said = error.strerror or type(error).__name__
    return ResultStoreError(f"no result can be kept in `{RESULTS}` of the execution's folder: {said}")


def _forget(folder: Path, execution_id: str) -> None:
    """Folders in there are not of bodies: they stay, with the rest of what code has left."""
    with contextlib.suppress(OSError), _entered(folder, [execution_id, RESULTS]) as place:
        for name in os.listdir(place):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=place)
    with contextlib.suppress(OSError), _entered(folder, [execution_id]) as above:
        os.rmdir(RESULTS, dir_fd=above)
    with contextlib.suppress(OSError):  # something else lies there
        (folder / execution_id).rmdir()


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
