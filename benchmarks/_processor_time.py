"""Processor time of a deployment by kind of process, from /proc: what a run cost, whatever ran beside it.

Children count for the process that started them: the executors of a worker, the backends of PostgreSQL.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from noetl.cli.stack.cluster import Cluster

TICKS = os.sysconf("SC_CLK_TCK")
SUBMITTER = "submitter"
"""This process: it asks for executions and waits for their ends."""


class _Process(NamedTuple):
    parent: int
    ticks: int
    """Of its own and of its children that have ended."""


def used(cluster: Cluster) -> dict[str, float]:
    """Seconds so far, by kind of process."""
    processes = _processes()
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    found: defaultdict[str, float] = defaultdict(float)
    for part in cluster.parts():
        record = part.running()
        if record is not None:
            kind = part.name.partition("-")[0]
            found[kind] += _with_children(record.pid, processes, children) / TICKS
    times = os.times()
    found[SUBMITTER] = times.user + times.system
    return dict(found)


def since(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {kind: seconds - before.get(kind, 0.0) for kind, seconds in after.items()}


def _with_children(pid: int, processes: dict[int, _Process], children: dict[int, list[int]]) -> int:
    known = processes.get(pid)
    if known is None:
        return 0
    return known.ticks + sum(_with_children(each, processes, children) for each in children.get(pid, ()))


def _processes() -> dict[int, _Process]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                written = (folder / "stat").read_text()
            except OSError:
                continue  # it has ended meanwhile
            # The name may hold spaces and brackets; what follows its last bracket does not.
            fields = written.rpartition(")")[2].split()
            found[int(folder.name)] = _Process(int(fields[1]), sum(map(int, fields[11:15])))
    return found
