"""The guardian of a worker: ends what the worker's code processes left behind, if the worker was killed.

A killed worker cannot clean up after itself, and what has left the process groups of its code processes
survives those. So a shell waits at a pipe whose other end only the worker holds; at the end of file, which
comes however the worker ended, it kills every process that has the family's tag in its environment or a
mark of the family among its limits (see `orphans`). It is nobody's child: it detaches itself, and the
worker need not wait for it.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Final

SHELL: Final = "/bin/sh"
TAG_VARIABLE: Final = "NOETL_PROCESS_TAG"
FAMILY: Final = re.compile("[0-9a-f]{16}")
LOCKS_LINE: Final = "Max file locks"
"""In `/proc/…/limits`: before the two limits that hold a mark."""
MARK_DIGITS: Final = 9
MARKS_PER_FAMILY: Final = 10**MARK_DIGITS
LEAST_FAMILY: Final = 1000
"""A mark of a family with a smaller number could be anybody's limit."""

# A process may start others while it is looked for, so it is looked again until nothing is found.
_SCRIPT: Final = """
exec 3<&0
{
    read -r _ <&3
    for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        found=$(grep -lsF -e "$1" /proc/[0-9]*/environ; [ -z "$2" ] || grep -ls -e "$2" /proc/[0-9]*/limits)
        [ -n "$found" ] || break
        for each in $found; do
            each=${each#/proc/}
            kill -s KILL "${each%/*}"
        done
    done
} >/dev/null 2>&1 &
"""


def guard_family(family: str, number: int = 0) -> None:
    """Starts a guardian over all processes whose tag begins with the family's name, or whose mark with its
    number."""
    if not FAMILY.fullmatch(family):  # a shorter one could be found in anybody's environment
        raise ValueError("a family's name is sixteen hexadecimal digits")
    marks = ""
    if number >= LEAST_FAMILY:
        marks = f"^{LOCKS_LINE} *[0-9]*  *{number}[0-9]\\{{{MARK_DIGITS}\\}} "
    waited_at, kept = os.pipe()  # `kept` stays open until this process ends, and nobody inherits it
    try:
        starting = os.posix_spawn(
            SHELL,
            ["noetl-guardian", "-c", _SCRIPT, "noetl-guardian", f"{TAG_VARIABLE}={family}-", marks],
            {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, waited_at, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
        )
    except (OSError, NotImplementedError):  # a system without a shell: then there are process groups alone
        os.close(kept)
        return
    finally:
        os.close(waited_at)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(starting, 0)
