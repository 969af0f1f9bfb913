"""Finding and ending what a code process leaves behind: children that went their own way.

A process that is killed takes its process group along. What has left the group (a daemon in a session of
its own) is found by the tag that every code process has in its environment and hands down, and, because
the worker adopts the orphans of its descendants, among the worker's own children. Where the worker itself
is killed, its guardian (see `guardian`) does the same for all tags of the worker's family. Code that wipes
its environment escapes this; the `sandbox` isolation is for such code.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from functools import cache
from typing import Final

from noetl.tools.processes.guardian import TAG_VARIABLE, guard_family

MAX_ROUNDS: Final = 10
_PR_SET_CHILD_SUBREAPER: Final = 36


@cache
def _family_of(_pid: int) -> str:
    return os.urandom(8).hex()


def family() -> str:
    """What the tags of all processes begin with that this one starts; a fork has another."""
    return _family_of(os.getpid())


def adopt_orphans() -> bool:
    """Makes this process responsible for what its descendants leave behind, where the system can do that:
    as its parent while this process lives, and through a guardian when it was killed. Every worker that
    runs code comes by here, so this is also where its own secrets are put out of their reach."""
    return _adopt_orphans(os.getpid())


@cache
def _adopt_orphans(_pid: int) -> bool:
    import ctypes  # noqa: PLC0415 - some milliseconds, which only a worker that runs code pays

    from noetl.tools.processes.privacy import hide_from_children  # noqa: PLC0415 - it needs the same library

    hide_from_children()
    # Before orphans are adopted, or the guardian would become this process's child, to be waited for.
    guard_family(family())
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def kill_group(pid: int) -> None:
    """Ends a process and all in its group, at once. Its leader must not have been waited for yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_orphans(belongs: Callable[[str], bool]) -> int:
    """Kills and reaps the adopted children whose tag `belongs` to a process that is gone; how many."""
    ended = 0
    for _ in range(MAX_ROUNDS):  # the children of an orphan are adopted in their turn
        orphans = [pid for pid in _children_of(os.getpid()) if (tag := _tag_of(pid)) and belongs(tag)]
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        ended += len(orphans)
        if not orphans:
            break
    return ended


def _children_of(parent: int) -> list[int]:
    found = []
    for name in _entries():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    stat = file.read()
            except OSError:  # it has ended meanwhile
                continue
            if int(stat.rpartition(b")")[2].split()[1]) == parent:
                found.append(int(name))
    return found


def _entries() -> list[str]:
    try:
        return os.listdir("/proc")
    except OSError:  # a system without /proc has process groups alone
        return []


def _tag_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return None
    prefix = f"{TAG_VARIABLE}=".encode()
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("ascii", "replace")
    return None
