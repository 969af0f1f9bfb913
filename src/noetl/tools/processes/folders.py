"""Private temporary folders, and the removal of those whose owners were killed.

A process locks each of its folders for as long as it needs it; the kernel lets go of the lock however the
process ended. So a folder that can be locked is nobody's, also where several machines or containers share
the place. What code has put into a folder is removed whatever it is, at any depth; and where that fails,
nothing else does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import Final

POOL: Final = "noetl-code-"
"""Of a pool of code processes."""
RUN: Final = "noetl-run-"
"""Of one program, or of anything else that is soon over."""
PREFIXES: Final = (POOL, RUN)
JUST_MADE_SECONDS: Final = 60.0
REMOVAL_SECONDS: Final = 300.0
"""Somebody who fills a folder as fast as it is emptied does not keep this process busy for ever."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OwnFolder:
    """A folder that nobody else can enter; as a context manager it is removed at the end."""

    def __init__(self, prefix: str = RUN) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        try:
            remove_tree(self.path)
        finally:
            os.close(self._lock)


@cache
def remove_abandoned_once() -> None:
    """At the first folder that a process makes: what earlier ones left in the same place goes. Nobody waits
    for it, because it may be much."""
    place = Path(tempfile.gettempdir())
    threading.Thread(target=remove_abandoned, args=(place,), name="noetl-remove", daemon=True).start()


def remove_abandoned(place: Path) -> None:
    """Removes the folders of processes that are gone. One that was made this very moment may not be locked
    yet, so those without anything in them are left alone for a while."""
    for prefix in PREFIXES:
        for folder in place.glob(f"{prefix}*"):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # another's, or gone meanwhile
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        age = time.time() - os.fstat(descriptor).st_mtime
        if any(folder.iterdir()) or age > JUST_MADE_SECONDS:
            remove_tree(folder)
    except OSError:  # somebody lives there
        return
    finally:
        os.close(descriptor)


def remove_tree(folder: Path) -> None:
    """Removes a folder with all that is in it, as far as that can be done.

    Folders inside are emptied into the outermost one and removed there, so no depth is too much for it,
    neither of calls nor of names nor of open files. Nothing is followed out of the folder.
    """
    until = time.monotonic() + REMOVAL_SECONDS
    try:
        top = _opened(os.fspath(folder), None)
    except OSError:
        return
    try:
        while names := os.listdir(top):
            emptied = [_removed(name, top) for name in names if time.monotonic() < until]
            if not any(emptied):
                break
    except OSError:
        return
    finally:
        os.close(top)
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _removed(name: str, top: int) -> bool:
    """Removes one entry of the outermost folder; whether anything became less."""
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
            os.unlink(name, dir_fd=top)
            return True
        inner = _opened(name, top)
    except OSError:
        return False
    less = False
    try:
        for each in os.listdir(inner):
            less = _moved_up(each, inner, top) or less
    except OSError:
        return less
    finally:
        os.close(inner)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=top)
        less = True
    return less


def _moved_up(name: str, inner: int, top: int) -> bool:
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=inner).st_mode):
            _open_to_owner(name, inner)
            os.rename(name, secrets.token_hex(8), src_dir_fd=inner, dst_dir_fd=top)
        else:
            os.unlink(name, dir_fd=inner)
    except OSError:
        return False
    return True


def _opened(name: str, above: int | None) -> int:
    _open_to_owner(name, above)
    return os.open(name, _FOLDER, dir_fd=above)


def _open_to_owner(name: str, above: int | None) -> None:
    """A folder that code has closed even to its owner can be neither emptied nor moved."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as closing:
        place = os.open(name, os.O_PATH | _FOLDER, dir_fd=above)
        closing.callback(os.close, place)
        if os.fstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{place}", stat.S_IRWXU)
