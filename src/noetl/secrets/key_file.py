"""The file of a key ring: readable by its owner alone, checked each time, never half written.

Whoever can read it can open every credential, so a file that others can read is refused rather than used.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from noetl.private_folders import make_private
from noetl.secrets.encryption import KeyRing, KeyRingError, MasterKey, ring_of, ring_text

MOST_BYTES: Final = 65_536
REMARK: Final = (
    "# Master keys of NoETL, the current one first. Keep a copy in a safe place: without them no credential\n"
    "# can be read again. `noetl credential rotate --add-key` adds one.\n"
)


def read_key_file(path: Path) -> KeyRing:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            _refuse_shared(path, status)
            text = file.read(MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError as missing:
        raise KeyRingError(
            f"there is no master key: {path} does not exist. `noetl credential rotate --add-key` makes it"
        ) from missing
    except OSError as refused:
        raise KeyRingError(f"the key ring {path} cannot be read: {refused.strerror}") from refused
    try:
        return ring_of(text)
    except KeyRingError as wrong:
        raise KeyRingError(f"{path}: {wrong.message}") from wrong


def _refuse_shared(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyRingError(f"the key ring {path} is no file")
    if status.st_mode & 0o077:
        raise KeyRingError(
            f"the key ring {path} can be read or written by others (mode {status.st_mode & 0o777:04o}): "
            f"`chmod 600 {path}`, and think about who may have read it"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise KeyRingError(f"the key ring {path} belongs to another user")


def add_key(path: Path, key: MasterKey) -> KeyRing:
    """Makes a key the current one of a file, which is made where it is missing."""
    with _locked(path):
        keys = [key, *(read_key_file(path).keys if path.exists() else ())]
        ring = KeyRing(keys)
        _write(path, ring)
        return ring


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two commands that change the ring at once must not lose a key of one of them."""
    try:
        make_private(path.parent)
        handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as refused:
        raise KeyRingError(f"the key ring {path} cannot be written: {refused.strerror}") from refused
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(path: Path, ring: KeyRing) -> None:
    """Whole and on the disk before it takes the place of the old one."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(REMARK + ring_text(ring))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as refused:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise KeyRingError(f"the key ring {path} cannot be written: {refused.strerror}") from refused
