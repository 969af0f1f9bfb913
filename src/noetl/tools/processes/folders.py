"""Private temporary folders, and the removal of those whose owners were killed.

A process locks each of its folders for as long as it needs it; the kernel lets go of the lock however the
process ended. So a folder that can be locked is nobody's, also where several machines or containers share
the place.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
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
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


@cache
def remove_abandoned_once() -> None:
    """At the first folder that a process makes: what earlier ones left in the same place goes."""
    remove_abandoned(Path(tempfile.gettempdir()))


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
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # somebody lives there
        return
    finally:
        os.close(descriptor)
