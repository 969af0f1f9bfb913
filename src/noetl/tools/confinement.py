"""Confines a thread to one folder, where the kernel can do that (Linux with Landlock).

A library opens files by their names, long after those were checked, and whoever may write to the folder can
put a link in a name's place meanwhile. Checking better does not help against that; a thread that cannot open
anything outside does, whatever the names have come to mean. Threads that a confined one starts are confined
as it is. A confinement is for good: this is for threads that end with one call, never for the main one.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from noetl.tools.processes.sandbox import SYSTEM, THIS_PYTHON

# Landlock's calls have the same numbers on all architectures.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_ASK_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_GAIN_NO_RIGHTS: Final = 38

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REGULAR = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_KNOWN: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All that a version can forbid."""
_OF_FILES: Final = _WRITE_FILE | _READ_FILE | _TRUNCATE
_READ: Final = _READ_FILE | _READ_DIR
_READ_AND_WRITE: Final = (
    _OF_FILES | _READ_DIR | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REGULAR | _REFER
)

# What libraries read on their way: modules that Python loads late, time zones, random numbers, and, in
# DuckDB's case, the processors and the memory that there are, without which it ends the process.
_INSTALLED: Final = ("site-packages", "dist-packages")
_READABLE: Final = (
    *(*SYSTEM, *THIS_PYTHON, str(Path(msgspec.__file__).parents[1])),
    *("/etc/localtime", "/etc/timezone", "/dev/urandom", "/dev/null"),
    *("/proc/self/cgroup", "/sys/fs/cgroup", "/sys/devices/system/cpu", "/proc/meminfo", "/proc/stat"),
)


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("place", ctypes.c_int32))


@cache
def _kernel() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def version() -> int:
    """That of the kernel's Landlock; 0 where there is none, or it may not be used."""
    if not sys.platform.startswith("linux"):
        return 0
    found: int = _kernel().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    return max(0, found)


def confine_this_thread(*folders: Path) -> bool:
    """From now on the thread opens, makes and removes files only in the folders, and reads the system's.

    False where the kernel does not offer it; OSError where it does and something else went wrong.
    """
    if version() < 1:
        return False
    handled = _KNOWN[max(known for known in _KNOWN if known <= version())]
    wanted = _Ruleset(handled)
    ruleset = _checked(_kernel().syscall(_CREATE_RULESET, ctypes.byref(wanted), ctypes.sizeof(wanted), 0))
    try:
        for path in folders:
            place = os.open(path, os.O_PATH)
            try:
                _allow(ruleset, place, _READ_AND_WRITE & handled)
            finally:
                os.close(place)
        for place, rights in _system_places(tuple(sys.path)):
            _allow(ruleset, place, rights)
        _checked(_kernel().prctl(_GAIN_NO_RIGHTS, 1, 0, 0, 0))
        _checked(_kernel().syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


@cache
def _system_places(modules: Sequence[str]) -> Sequence[tuple[int, int]]:
    """Descriptors of what may be read, for the life of the process; what does not exist is left out.

    The rest of `sys.path` may be listed: Python takes a folder that it may not list for an empty one, from
    then on and in all threads. One of them can be the folder that the process was started in.
    """
    paths: dict[Path, int] = {}
    installed = (each for each in modules if Path(each).name in _INSTALLED)
    readable = {Path(each).resolve() for each in (*_READABLE, *installed)}
    listable = {Path(each).resolve() for each in modules}
    for folders, rights in ((sorted(readable), _READ), (sorted(listable), _READ_DIR)):
        for path in folders:
            if not any(path.is_relative_to(each) for each in paths):
                paths[path] = rights
    found = []
    for path, rights in paths.items():
        with suppress(OSError):
            if rights == _READ or path.is_dir():
                found.append((os.open(path, os.O_PATH), rights))
    return found


# In a forked process `/proc/self` is another.
os.register_at_fork(after_in_child=_system_places.cache_clear)


def _allow(ruleset: int, place: int, rights: int) -> None:
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        rights &= _OF_FILES
    rule = _Beneath(rights, place)
    _checked(_kernel().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))


def _checked(returned: int) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return returned
