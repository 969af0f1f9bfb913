"""Paths that a playbook names: they lie under the execution's folder, whatever they are written like.

Whoever may write to the folder can put a link in a path's place between a check and its use. So a file that
is read here is opened through its folders one by one, and what was opened is what is read. Names that are
handed to a library (`under`) are safe from this only in a thread that is confined to the folder.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

_STEP: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe would wait for its other end.
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_OUTSIDE: Final = "the path leads out of the execution's folder"


class PathRefusedError(Exception):
    """A path that leads out of its folder, or to what is no file."""


def under(folder: Path, written: str) -> Path:
    """The path with every link followed; it is judged where it really leads."""
    if "\x00" in written:
        raise PathRefusedError("the path is not a path")
    root = folder.resolve()
    path = (root / written).resolve()
    if not path.is_relative_to(root):
        raise PathRefusedError(_OUTSIDE)
    with suppress(OSError):  # a path that does not exist is none that is refused
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise PathRefusedError("the path is that of a pipe, a socket or a device")
    return path


def open_under(folder: Path, written: str) -> BinaryIO:
    """The file, opened for reading; no link is followed that comes in a path's place meanwhile.

    FileNotFoundError where there is no such file.
    """
    root = folder.resolve()
    steps = under(folder, written).relative_to(root).parts
    if not steps:
        raise FileNotFoundError(written)
    try:
        place = os.open(root, _STEP)
        for step in steps[:-1]:
            place = _into(place, step, _STEP)
        opened = _into(place, steps[-1], _FILE)
    except FileNotFoundError:
        raise
    except OSError:  # a link or a file where a folder was, or the other way round
        raise PathRefusedError(_OUTSIDE) from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise FileNotFoundError(written)
    os.set_blocking(opened, True)
    return open(opened, "rb")


def read_under(folder: Path, written: str, limit: int) -> bytes:
    """What the file holds; PathRefusedError where it is larger than `limit`."""
    with open_under(folder, written) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise PathRefusedError(f"the file has more than {limit} bytes")
    return content


def _into(place: int, step: str, flags: int) -> int:
    try:
        return os.open(step, flags, dir_fd=place)
    finally:
        os.close(place)
