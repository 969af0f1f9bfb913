"""Executions that are killed: each process that carries one out is a life, `noetl resume` begins the next.

A life is the real console script in a process of its own. Where it is to die at a certain commit, it is
started through `dying.py`, which runs the same script with a fault in its store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from noetl.records.event import Event
from noetl.store.protocol import ExecutionRow
from noetl.store.sqlite import open_store
from tests.durability.outside import Call, Outside

PLAYBOOKS = Path(__file__).with_name("playbooks")
ROOT = Path(__file__).parents[2]
NOETL = str(Path(sysconfig.get_path("scripts")) / "noetl")
ORPHAN_SECONDS = 2.0
LONGEST_LIFE = 60.0


class Shape(NamedTuple):
    """A playbook to be killed, and how many of its calls may be under way at once."""

    name: str
    width: int
    also_registered: tuple[str, ...] = ()

    @property
    def file(self) -> Path:
        return PLAYBOOKS / f"{self.name}.yaml"


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("chain", 1),
        Shape("parallel", 4),
        Shape("pages", 1),
        Shape("nested", 4),
        Shape("code", 3),
        Shape("branches", 2),
        Shape("parent", 2, ("child",)),
        Shape("large", 4),
    )
}


class Life(NamedTuple):
    """What one process did: its calls, the tasks that were finished in the log at its end, its own words."""

    exit_code: int
    calls: Counter[Call]
    finished: frozenset[Call]
    seconds: float
    stdout: str
    stderr: str


SPECIAL = {
    shape.name: shape
    for shape in (
        Shape("long", 16),  # so many events that its state is kept on the way
        Shape("waiting", 1),  # ends only when it is sent signals
        Shape("failing_parent", 2, ("slow_child",)),  # ends badly, while a child is under way
    )
}


class Execution:
    """One execution in a store of its own, life after life."""

    def __init__(self, shape: Shape, folder: Path, outside: Outside) -> None:
        self.shape = shape
        self.folder = folder
        self.outside = outside
        self.store = f"sqlite:///{folder / 'store.db'}"
        self.events_file = folder / "events.jsonl"
        self.lives: list[Life] = []
        for name in shape.also_registered:
            command = [NOETL, "register", str(PLAYBOOKS / f"{name}.yaml"), "--store", self.store]
            subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_LIFE)

    @property
    def execution_id(self) -> str | None:
        """None until the first commit."""
        database = self.folder / "store.db"
        if not database.exists():
            return None
        with contextlib.closing(sqlite3.connect(database)) as connection:
            if (
                connection.execute("PRAGMA application_id").fetchone()[0] == 0
            ):  # killed while it made the store
                return None
        rows = [row for row in self.rows() if row.parent_execution_id is None]
        assert len(rows) <= 1
        return rows[0].execution_id if rows else None

    @property
    def is_over(self) -> bool:
        found = [row for row in self.rows() if row.parent_execution_id is None]
        return bool(found) and found[0].status in ("completed", "failed", "cancelled")

    def arguments(self) -> list[str]:
        """Of the next life's command: a run, or where there is something to go on with, a resume."""
        known = self.execution_id
        given = ["--store", self.store, "--json", "--events", str(self.events_file)]
        if known is not None:
            return ["resume", known, *given]
        api, journal = f"api={self.outside.url}", f"journal={self.outside.journal}"
        wanted = journal if self.shape.name == "code" else api
        return ["run", str(self.shape.file), "--set", wanted, *given]

    # ── lives ─────────────────────────────────────────────────────────────────────────────────────

    def live(self, *, kill_after: float | None = None) -> Life:
        """The console script, killed after so many seconds if it has not ended by then."""
        return self._watched([NOETL, *self.arguments()], kill_after=kill_after)

    def live_timed(self) -> tuple[Life, float]:
        """The console script to its end, and after how many seconds it had its first commit."""
        began, first = time.monotonic(), 0.0

        def watch(process: subprocess.Popen[bytes]) -> None:
            nonlocal first
            while not self.events_file.exists() or not self.events_file.stat().st_size:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.002)
                    return
            first = time.monotonic() - began

        life = self._watched([NOETL, *self.arguments()], act=watch)
        return life, first

    def live_until_call(self, number: int, act: Callable[[subprocess.Popen[bytes]], object]) -> Life:
        """The console script; when it makes its call of that number, `act` is done to the process."""

        def at_the_call(process: subprocess.Popen[bytes]) -> None:
            self.outside.wait_for_calls(number)
            act(process)

        return self._watched([NOETL, *self.arguments()], act=at_the_call)

    def live_wrapped(self, *wrapper: str) -> Life:
        """The console script, started by another program that gets it as its last arguments."""
        return self._watched([*wrapper, NOETL, *self.arguments()])

    def live_until_commit(self, number: int, moment: str, counted: str = "any") -> Life:
        """The console script, dying `before` or `after` the commit of that number, counted from 1."""
        program = [sys.executable, "-m", "tests.durability.dying", str(number), moment, counted]
        return self._watched([*program, *self.arguments()])

    def _watched(
        self,
        command: Sequence[str],
        *,
        kill_after: float | None = None,
        act: Callable[[subprocess.Popen[bytes]], object] | None = None,
    ) -> Life:
        began = time.monotonic()
        out, err = self.folder / "stdout", self.folder / "stderr"
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(command, stdout=stdout, stderr=stderr, cwd=ROOT)
            try:
                if act is not None:
                    act(process)
                code = process.wait(LONGEST_LIFE if kill_after is None else kill_after)
            except subprocess.TimeoutExpired:
                assert kill_after is not None, f"`{' '.join(command)}` did not end: {err.read_text()}"
            finally:
                process.kill()
                code = process.wait()
        seconds = time.monotonic() - began
        assert_no_process_is_left(self.folder)
        calls = self.outside.calls_of_this_life()
        life = Life(code, calls, self.finished_tasks(), seconds, out.read_text(), err.read_text())
        self.lives.append(life)
        return life

    # ── what the store says ───────────────────────────────────────────────────────────────────────

    def rows(self) -> list[ExecutionRow]:
        async def read() -> list[ExecutionRow]:
            store = open_store(self.store, create=False, owner=False)
            try:
                return await store.executions()
            finally:
                await store.close()

        return asyncio.run(read())

    def logs(self) -> dict[str, list[Event]]:
        """The log of each execution in the store, children included."""

        async def read() -> dict[str, list[Event]]:
            store = open_store(self.store, create=False, owner=False)
            try:
                rows = await store.executions()
                return {row.execution_id: await store.events(row.execution_id) for row in rows}
            finally:
                await store.close()

        return asyncio.run(read())

    def finished_tasks(self) -> frozenset[Call]:
        """The calls whose `task.done` is committed."""
        if self.execution_id is None:
            return frozenset()
        return frozenset(
            Call(str(event.action_id), event.attempt or 0)
            for log in self.logs().values()
            for event in log
            if event.event_type == "task.done"
        )

    def command(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Another verb of the console script, about this execution."""
        command = [NOETL, verb, str(self.execution_id), *words, "--store", self.store]
        return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_LIFE)

    def document(self) -> dict[str, Any]:
        """The execution as the command line shows it, read from the store by another process."""
        shown = self.command("status", "--json")
        assert shown.returncode == 0, shown.stderr
        found: dict[str, Any] = json.loads(shown.stdout)
        return found


def assert_no_process_is_left(folder: Path) -> None:
    """Every executor has the folder of its execution in its environment, and hands it down."""
    deadline = time.monotonic() + ORPHAN_SECONDS
    left = executors_of(folder)
    while left and time.monotonic() < deadline:
        os.sched_yield()
        left = executors_of(folder)
    assert not left, f"processes outlived the one that started them: {left}"


def executors_of(folder: Path) -> list[str]:
    """The command lines of processes that work for an execution of this store."""
    marker, found = os.fsencode(folder), []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if marker in Path("/proc", name, "environ").read_bytes():
                shown = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ")
                found.append(f"{name}: {shown.decode(errors='replace')}")
        except OSError:  # it has ended meanwhile
            continue
    return found
