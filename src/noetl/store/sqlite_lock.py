"""Which process owns a SQLite database: an advisory lock on a file beside it.

The operating system drops the lock when the process ends, however it ends, so a killed owner never has to
be cleaned up after. POSIX locks belong to a process: a forked child does not keep its parent's lock, but
closing any handle of the file would lose it, and asking again would succeed; hence the table of what this
process holds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import Final

from noetl.private_folders import FILE_MODE
from noetl.store.protocol import StoreError

_held: Final[dict[tuple[Path, int], int]] = {}
"""The handle of each lock this process holds, by its file and the process (a fork inherits the table)."""
_guard: Final = threading.Lock()


class Owner:
    """The process that owns a database; the number is None where it left none."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid

    def __str__(self) -> str:
        return "another process" if self.pid is None else f"process {self.pid}"


class OwnerLock:
    """The lock of the owner, taken when this object is made and held until `release`."""

    def __init__(self, database: Path) -> None:
        self._file = _lock_file(database)
        with _guard:
            if self._key() in _held:
                raise _owned(database, Owner(os.getpid()))
            handle = _open(self._file, database)
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as refused:
                owner = Owner(_written_pid(handle))
                os.close(handle)
                if refused.errno in (errno.EACCES, errno.EAGAIN):
                    raise _owned(database, owner) from refused
                raise StoreError(
                    f"The lock {self._file} cannot be taken ({refused.strerror}). Put the database on a file "
                    "system that supports locks."
                ) from refused
            _held[self._key()] = handle
            # The number only makes the message to others clearer: a full disk must not keep the owner out.
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode("ascii"), 0)

    def release(self) -> None:
        """Lets the next process own the database. The file stays: removing it would let two of them in."""
        with _guard:
            handle = _held.pop(self._key(), None)
            if handle is not None:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, 0)
                os.close(handle)

    def _key(self) -> tuple[Path, int]:
        return self._file, os.getpid()


def owner_of(database: Path) -> Owner | None:
    """Who owns the database now; None where nobody does."""
    file = _lock_file(database)
    with _guard:
        if (file, os.getpid()) in _held:
            return Owner(os.getpid())
        try:
            handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as refused:
            raise StoreError(f"The lock {file} cannot be read ({refused.strerror}).") from refused
        try:
            fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return Owner(_written_pid(handle))
        else:
            return None
        finally:
            os.close(handle)


def _lock_file(database: Path) -> Path:
    return database.with_name(database.name + ".lock")


def _open(file: Path, database: Path) -> int:
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as refused:
        raise StoreError(
            f"{database} cannot be opened for writing: the lock beside it cannot be made "
            f"({refused.strerror}). Make the folder writable, or choose another place for the database."
        ) from refused


def _written_pid(handle: int) -> int | None:
    written = os.pread(handle, 32, 0)
    return int(written) if written.isdigit() else None


def _owned(database: Path, owner: Owner) -> StoreError:
    who = "this process already" if owner.pid == os.getpid() else str(owner)
    return StoreError(
        f"{database} is in use: {who} owns it. Wait until it has ended, stop it, or choose another database."
    )
