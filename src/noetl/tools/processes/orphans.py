"""Finding and ending what a code process leaves behind: children that went their own way.

A process that is killed takes its process group along. What has left the group (a daemon in a session of
its own) becomes a child of the worker, which adopts the orphans of its descendants. There it is told from
the worker's other children by its mark: each process that the worker starts for code has a number of its
own as its hard limit on file locks, which the kernel hands down, no longer enforces, and lets nobody raise
but root. An adopted child with a mark of this worker that no living process has is an orphan, whatever
became of its environment. Children without a mark are somebody else's and never touched: the process that
embeds a worker may start what it likes. Where the worker itself is killed, its guardian (see `guardian`)
does the same for all marks and tags of the worker's family.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
from functools import cache
from itertools import count
from typing import Final

from noetl.tools.processes.guardian import LEAST_FAMILY, LOCKS_LINE, MARKS_PER_FAMILY, guard_family

MAX_ROUNDS: Final = 10
_PR_SET_CHILD_SUBREAPER: Final = 36
_RLIMIT_LOCKS: Final = 10
"""The module `resource` has no name for it."""
_MOST_FAMILIES: Final = 10**9


class Family:
    """The processes that one worker starts: what they are marked and tagged with, and which of them live."""

    def __init__(self) -> None:
        self.tag = os.urandom(8).hex()
        _soft, own_limit = resource.getrlimit(_RLIMIT_LOCKS)
        most = _MOST_FAMILIES
        if own_limit != resource.RLIM_INFINITY:  # a worker among the code of another has a mark itself
            most = min(most, own_limit // MARKS_PER_FAMILY)
        # Below half of what is possible there is room for the families of workers inside this one.
        self.number = most // 2 + secrets.randbelow(max(1, most - most // 2))
        self.living: set[int] = set()
        self._counted = count(1)

    def begin_mark(self) -> int:
        """A mark for a process that is about to be started; it counts as living from now on."""
        mark = (self.number + 1) * MARKS_PER_FAMILY - next(self._counted) % MARKS_PER_FAMILY
        self.living.add(mark)
        return mark

    def is_orphans(self, mark: int) -> bool:
        """Code can lower its mark, to one that nobody has."""
        ours = self.number >= LEAST_FAMILY and mark < (self.number + 1) * MARKS_PER_FAMILY
        return ours and mark not in self.living


@cache
def _family_of(_pid: int) -> Family:
    return Family()


def own_family() -> Family:
    """That of this process; a fork has another."""
    return _family_of(os.getpid())


def family() -> str:
    """What the tags of all processes begin with that this one starts."""
    return own_family().tag


def mark_process(pid: int, mark: int) -> None:
    """Marks a process that was just started, before it runs any code."""
    with contextlib.suppress(OSError, ValueError):  # it is dead already, or this worker has no marks to give
        resource.prlimit(pid, _RLIMIT_LOCKS, (mark, mark))


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
    guard_family(family(), own_family().number)
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def kill_group(pid: int) -> None:
    """Ends a process and all in its group, at once. Its leader must not have been waited for yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_orphans() -> int:
    """Kills and reaps the adopted children that belong to no living process; how many."""
    ended = 0
    for _ in range(MAX_ROUNDS):  # the children of an orphan are adopted in their turn
        orphans = [
            pid
            for pid in _children_of(os.getpid())
            if (mark := _mark_of(pid)) is not None and own_family().is_orphans(mark)
        ]
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


def _mark_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            limits = file.read()
    except OSError:
        return None
    line = limits.partition(LOCKS_LINE.encode())[2].partition(b"\n")[0].split()
    return int(line[1]) if len(line) > 1 and line[1].isdigit() else None
