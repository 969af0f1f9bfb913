"""The private folder of a pool, and the removal of those whose pools were killed.

A pool locks its folder for as long as it lives; the kernel lets go of the lock however the pool ended. So
a folder that can be locked is nobody's, also where several machines or containers share the place.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "noetl-code-"


class PoolFolder:
    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(place: Path) -> None:
    """Removes the folders of pools that are gone. One that was made this very moment may not be locked
    yet, so those without anything in them are left alone."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another's, or gone meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if any(folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # somebody lives there
            continue
        finally:
            os.close(descriptor)
