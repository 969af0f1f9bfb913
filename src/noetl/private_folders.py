"""Folders and files that only their user can read, from the moment they are made.

What NoETL keeps on a machine holds what people work with, so it is not left to the umask. What is there
already keeps its mode: whoever made it had their reasons.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def make_private(folder: Path) -> None:
    """Makes a folder and those above it that are missing; `Path.mkdir` would open the latter to everybody."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_private(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def begin_private(file: Path) -> None:
    """An empty file where there is none. Where that fails, whoever opens the file next says why."""
    with contextlib.suppress(OSError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
