"""Runs the console script with a fault in its store: the process kills itself at a certain commit.

    python -m tests.durability.dying NUMBER before|after any|progress VERB…

`before`: everything that led to the commit has happened, but it is not in the log. `after`: it is in the log,
and nothing has followed from it yet. `progress` counts only commits that bring the execution further, not
those which say that something began.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from noetl.cli import main
from noetl.store.protocol import Append
from noetl.store.sqlite import SqliteStore

ANNOUNCEMENTS = frozenset({"execution.resumed", "step.started", "loop.iteration.started", "task.started"})

AppendTo = Callable[[SqliteStore, Append], Coroutine[Any, Any, None]]


def dying(append: AppendTo, number: int, moment: str, counted: str) -> AppendTo:
    """The store's `append`, which does not survive its counted call of that number."""
    calls = 0

    async def append_or_die(store: SqliteStore, change: Append) -> None:
        nonlocal calls
        goes_further = any(event.event_type not in ANNOUNCEMENTS for event in change.events)
        calls += counted == "any" or goes_further
        mine = calls if counted == "any" or goes_further else 0
        if moment == "before" and mine == number:
            os.kill(os.getpid(), signal.SIGKILL)
        await append(store, change)
        if moment == "after" and mine == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return append_or_die


if __name__ == "__main__":
    SqliteStore.append = dying(SqliteStore.append, int(sys.argv[1]), *sys.argv[2:4])  # type: ignore[assignment,method-assign]
    sys.argv[0] = "noetl"
    sys.exit(main(sys.argv[4:]))
