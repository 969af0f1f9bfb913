"""Keeps what a worker was started with from the code it starts, which runs as the same user.

Linux shows the environment that a process was started with to every process of its user, and there may be
secrets in it. So before the first code runs the variables are moved to where only this process finds them,
and what was shown is wiped; and the process is marked as one whose memory other processes of the user may
not look into. Root can look into everything but what was wiped: workers should not run as root.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

from noetl.tools.processes.guardian import TAG_VARIABLE

_PR_SET_DUMPABLE: Final = 4
_ENVIRONMENT_BEGINS, _ENVIRONMENT_ENDS = 47, 48
"""Places in `/proc/self/stat`, counted after the name of the program."""
_KEPT: Final[list[ctypes.Array[ctypes.c_char]]] = []
"""The variables' own memory, for as long as the process lives."""


def hide_from_children() -> None:
    """Does nothing where the system has no such things."""
    library = ctypes.CDLL(None)
    try:
        _move_variables(library)
    except (OSError, ValueError, IndexError):  # no /proc, or one that says something else
        return
    prctl = getattr(library, "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _move_variables(library: ctypes.CDLL) -> None:
    numbers = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    begin, end = int(numbers[_ENVIRONMENT_BEGINS]), int(numbers[_ENVIRONMENT_ENDS])
    if not 0 < begin < end:
        return
    variables = ctypes.POINTER(ctypes.c_void_p).in_dll(library, "environ")
    index = 0
    # One pointer after the other: whoever reads a variable meanwhile finds it before or after its move.
    while (pointer := variables[index]) is not None:
        if begin <= pointer < end:
            _KEPT.append(ctypes.create_string_buffer(ctypes.string_at(pointer)))
            variables[index] = ctypes.addressof(_KEPT[-1])
        index += 1
    _wipe(begin, end)


def _wipe(begin: int, end: int) -> None:
    """All but the tag by which whoever started this process finds it."""
    tag = f"{TAG_VARIABLE}=".encode()
    for entry in ctypes.string_at(begin, end - begin).split(b"\0"):
        if not entry.startswith(tag):
            ctypes.memset(begin, 0, len(entry))
        begin += len(entry) + 1
