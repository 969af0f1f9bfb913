"""The pool of code processes: how many there are, and which of them gets what.

Processes stand in groups; a group serves one key (a playbook's version and its isolation profile) under
one set of limits, in one sandbox if in any, and never lends a process to another. Short tasks are queued
behind one another in a process. When one of them overruns, or when tasks have waited for longer than a
short one takes, what has not begun is taken back and given to other processes, and the group grows, up to
what is in flight. A call that is cancelled while it runs costs its process; nothing that has begun is ever
run again by the pool.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import deque
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl.tools.processes.folders import POOL, OwnFolder, remove_abandoned_once, remove_tree
from noetl.tools.processes.limits import Limits
from noetl.tools.processes.orphans import adopt_orphans, end_orphans, family
from noetl.tools.processes.process import CodeProcess
from noetl.tools.processes.requests import Answer, Log, Program, Request, request_tail
from noetl.tools.processes.sandbox import Sandbox

MAX_DEPTH: Final = 8
"""How many requests may lie in one process's socket."""
MAX_KNOWN_PROGRAMS: Final = 1000
MAX_FOLDERS_KNOWN: Final = 1000
SUCCESSOR_AT: Final = 0.9
"""The part of its tasks after which a process no longer counts, so that the next one starts in time."""
FAILED_STARTS: Final = 2
SWEEP_SECONDS: Final = 5.0


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    width: int = max(2, os.cpu_count() or 2)
    """How many processes a group has while its tasks are short."""
    most: int = 64
    """How many processes there are in all."""
    tasks_per_process: int = 1000
    overrun_seconds: float = 0.05
    idle_seconds: float = 60.0


class CodePool:
    """Made inside a running event loop, used from it, and closed by `aclose`."""

    def __init__(self, settings: PoolSettings | None = None) -> None:
        self.settings = settings or PoolSettings()
        self.tag = f"{family()}-{secrets.token_hex(4)}"
        self._folder = OwnFolder(POOL)
        self._groups: dict[tuple[str, Limits, Sandbox | None], _Group] = {}
        self._folders_made: set[Path] = set()
        self._numbers = count(1)
        self._process_numbers = count(1)
        self._processes: dict[str, CodeProcess] = {}
        self._ending: set[asyncio.Future[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._orphans_wanted = False
        self._adopts = False
        self.closed = False

    async def call(
        self,
        key: str,
        limits: Limits,
        program: Program,
        folder: Path,
        variables: dict[str, Any],
        log: Log,
        sandbox: Sandbox | None = None,
    ) -> Answer:
        """Runs a program on variables, in a folder; cancelling this ends the code."""
        if self.closed:
            raise RuntimeError("the pool is closed")
        group = self._group(key, limits, sandbox)
        if folder not in self._folders_made:
            self._make_folder(folder)
        tail = request_tail(str(folder), variables, limits)
        request = Request(next(self._numbers), program, group.program_number(program), limits, tail, log)
        group.submit(request)
        try:
            return await request.future
        except asyncio.CancelledError:
            group.abandon(request)
            raise

    def warm(self, key: str, limits: Limits) -> None:
        """Starts a process for calls that are about to come."""
        self._group(key, limits, None).start_one()

    def _group(self, key: str, limits: Limits, sandbox: Sandbox | None) -> _Group:
        group = self._groups.get((key, limits, sandbox))
        if group is None:
            group = self._groups[key, limits, sandbox] = _Group(self, limits, sandbox)
        return group

    async def aclose(self) -> None:
        """Kills everything; calls that wait are answered with a failure."""
        if self.closed:
            return
        self.closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for group in self._groups.values():
            group.close()
        for process in list(self._processes.values()):
            process.kill("the pool was closed", in_peace=True)
        ends = [process.gone for process in self._processes.values()]
        if ends:
            await asyncio.wait(ends)
        if self._ending:
            await asyncio.wait(self._ending)
        await asyncio.to_thread(self._clean_up)

    @property
    def processes(self) -> list[CodeProcess]:
        return list(self._processes.values())

    # ── what groups use ───────────────────────────────────────────────────────────────────────────

    def start_process(self, group: _Group) -> CodeProcess | None:
        """A process for the group; None where there is no room for one."""
        if self.closed or not self._make_room():
            return None
        tag = f"{self.tag}-{next(self._process_numbers)}"
        folder = self._folder.path / tag
        folder.mkdir(mode=0o700)
        try:
            process = CodeProcess(tag, group.limits, folder, group.changed, group.ended, group.sandbox)
        except OSError:
            folder.rmdir()
            raise
        self._processes[tag] = process
        if not self._adopts:
            self._adopts = True
            adopt_orphans()  # while the first process starts
            remove_abandoned_once()
        if self._sweep is None:
            self._sweep = self._loop.call_later(SWEEP_SECONDS, self._sweep_up)
        return process

    def forget(self, process: CodeProcess) -> None:
        """A process is gone: its folder goes too, and, if there was trouble, at once what it left behind."""
        del self._processes[process.tag]
        self._orphans_wanted = True
        if not self.closed:
            self._in_thread(remove_tree, process.folder)
            if not process.in_peace:
                self._end_orphans()

    def _make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if len(self._folders_made) >= MAX_FOLDERS_KNOWN:
            self._folders_made.clear()
        self._folders_made.add(folder)

    # ── upkeep ────────────────────────────────────────────────────────────────────────────────────

    def _make_room(self) -> bool:
        if len(self._processes) < self.settings.most:
            return True
        idle = [each for each in self._processes.values() if each.ready and not each.outstanding]
        if idle:
            min(idle, key=lambda each: each.idle_since).kill("its place was needed", in_peace=True)
        return False

    def _sweep_up(self) -> None:
        """Ends processes that have had nothing to do, and what others left behind."""
        self._sweep = None
        now = time.monotonic()
        for key, group in list(self._groups.items()):
            group.end_idle(now)
            if not group.processes and not group.queue:
                del self._groups[key]
        if self._orphans_wanted:
            self._end_orphans()
        if self._processes:
            self._sweep = self._loop.call_later(SWEEP_SECONDS, self._sweep_up)

    def _end_orphans(self) -> None:
        self._orphans_wanted = False
        self._in_thread(end_orphans)

    def _in_thread(self, function: Any, *arguments: object) -> None:  # noqa: ANN401 - any function
        future = self._loop.run_in_executor(None, function, *arguments)
        self._ending.add(future)
        future.add_done_callback(self._ending.discard)

    def _clean_up(self) -> None:
        end_orphans()
        self._folder.remove()


class _Group:
    """The processes of one key, and what waits for them."""

    def __init__(self, pool: CodePool, limits: Limits, sandbox: Sandbox | None) -> None:
        self.pool, self.limits, self.settings = pool, limits, pool.settings
        self.sandbox = sandbox
        self.processes: list[CodeProcess] = []
        self.queue: deque[Request] = deque()
        self._programs: dict[Program, int] = {}
        self._program_numbers = count(1)
        self._loop = asyncio.get_running_loop()
        self._tick: asyncio.TimerHandle | None = None
        self._last_ready = 0.0
        self._failed_starts = 0

    def program_number(self, program: Program) -> int:
        number = self._programs.get(program)
        if number is None:
            if len(self._programs) >= MAX_KNOWN_PROGRAMS:  # code that differs from call to call
                self._programs.clear()
            number = self._programs[program] = next(self._program_numbers)
        return number

    def start_one(self) -> None:
        self._start(1)

    def submit(self, request: Request) -> None:
        self.queue.append(request)
        self.dispatch()

    def dispatch(self) -> None:
        """Gives waiting requests to processes that have room, and sees that there are enough of these."""
        queue = self.queue
        while queue:
            process = self._least_busy()
            try:
                if process is None or not process.send(queue[0]):
                    break
            except OSError as error:  # no descriptor left for a large request
                queue[0].fail("process.start", f"the request cannot be sent: {error}", retryable=True)
            queue.popleft()
        if queue:
            self._grow_to_width()
        if self._tick is None and (queue or any(len(each.outstanding) > 1 for each in self.processes)):
            self._arm_tick()

    def _least_busy(self) -> CodeProcess | None:
        best, fewest = None, MAX_DEPTH + 1
        for process in self.processes:
            waiting = len(process.outstanding)
            if waiting < fewest and self._takes_more(process, waiting):
                best, fewest = process, waiting
        return best

    def _takes_more(self, process: CodeProcess, waiting: int) -> bool:
        if not process.ready or not process.reusable or process.sent >= self.settings.tasks_per_process:
            return False
        if waiting == 0:
            return True
        if process.overrunning or waiting >= MAX_DEPTH:
            return False
        return waiting * process.task_seconds < self.settings.overrun_seconds / 2

    def _grow_to_width(self) -> None:
        tired = self.settings.tasks_per_process * SUCCESSOR_AT
        serving = sum(1 for each in self.processes if each.reusable and each.sent < tired)
        in_flight = len(self.queue) + sum(len(each.outstanding) for each in self.processes)
        self._start(min(self.settings.width, in_flight) - serving)

    def _start(self, how_many: int) -> None:
        for _ in range(how_many):
            try:
                process = self.pool.start_process(self)
            except OSError as error:
                if not self.processes:
                    self._fail_queue(f"no process can be started: {error}")
                return
            if process is None:
                return
            self.processes.append(process)

    # ── overruns ──────────────────────────────────────────────────────────────────────────────────

    def _arm_tick(self) -> None:
        delay = self.settings.overrun_seconds / 2
        self._tick = self._loop.call_later(delay, self._on_tick, time.monotonic() + delay)

    def _on_tick(self, due: float) -> None:
        self._tick = None
        now = time.monotonic()
        if now - due > self.settings.overrun_seconds / 2:  # this loop was busy: the answers may be there
            self._arm_tick()
            return
        for process in list(self.processes):
            if process.ready and process.read_answers():
                self._renew(process)
        for process in self.processes:
            self._take_back_late(process, now)
        self.dispatch()
        late = sum(1 for request in self.queue if self._is_late(request, now))
        if late and all(each.ready for each in self.processes):
            self._start(late)

    def _take_back_late(self, process: CodeProcess, now: float) -> None:
        if not process.outstanding or not process.ready:
            return
        process.overrunning = now - process.head_since > self.settings.overrun_seconds
        if process.overrunning:
            process.task_seconds = max(process.task_seconds, self.settings.overrun_seconds)
        last = next(reversed(process.outstanding.values()))
        if len(process.outstanding) > 1 and (process.overrunning or self._is_late(last, now)):
            self.queue.extendleft(reversed(process.take_back()))

    def _is_late(self, request: Request, now: float) -> bool:
        return now - max(request.submitted, self._last_ready) > self.settings.overrun_seconds

    # ── what processes tell ───────────────────────────────────────────────────────────────────────

    def changed(self, process: CodeProcess) -> None:
        if process.sent == 0 and not process.outstanding:  # it has just become ready
            self._last_ready = time.monotonic()
            self._failed_starts = 0
        self._renew(process)
        if self.queue:
            self.dispatch()

    def _renew(self, process: CodeProcess) -> None:
        """Lets a process go that has done its share, or that its last task left in doubt."""
        if not process.reusable:
            self.queue.extendleft(reversed(process.take_back()))
            process.kill("its last task left it unfit for another")
        elif process.sent >= self.settings.tasks_per_process and not process.outstanding:
            process.kill("it has done its share", in_peace=True)

    def ended(self, process: CodeProcess) -> None:
        self.processes.remove(process)
        self.queue.extendleft(reversed(process.untaken()))
        for request in process.outstanding.values():  # one at most: the one that it was running
            _report_death(request, process)
        if not process.ready and not process.in_peace:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                said = process.starting_output.decode("utf-8", "replace").strip().rpartition("\n")[2]
                self._fail_queue(f"no process can be started: {process.exit_message()[0]}: {said}")
        self.pool.forget(process)
        if self.pool.closed:
            self.close()
        else:
            self.dispatch()

    def abandon(self, request: Request) -> None:
        """The caller no longer wants it: it must not start, or must end."""
        if request in self.queue:
            self.queue.remove(request)
            return
        process = next((each for each in self.processes if request.number in each.outstanding), None)
        if process is None:
            return
        taken = process.take_back()
        process.read_answers()
        self.queue.extendleft(each for each in reversed(taken) if each is not request)
        if request.number in process.outstanding:
            del process.outstanding[request.number]
            process.kill("its task was cancelled or ran out of time")
        else:
            self._renew(process)
        self.dispatch()

    def end_idle(self, now: float) -> None:
        """Ends what has been idle for long; the last process of a group is kept longer, unless it is in a
        sandbox: that is made for one execution's folder."""
        idle = [each for each in self.processes if each.ready and not each.outstanding]
        for number, process in enumerate(idle):
            patience = self.settings.idle_seconds * (5 if number == 0 and self.sandbox is None else 1)
            if now - process.idle_since > patience:
                process.kill("it was idle", in_peace=True)

    def close(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        self._fail_queue("the pool was closed")

    def _fail_queue(self, said: str) -> None:
        self._failed_starts = 0
        while self.queue:
            self.queue.popleft().fail("process.start", said, retryable=True)


def _report_death(request: Request, process: CodeProcess) -> None:
    said, from_outside = process.exit_message()
    if process.ran_out_of_cpu:
        request.fail("process.limit", f"the code used more than {process.limits.cpu_seconds:g} s of CPU time")
    else:
        request.fail("process.died", said, retryable=from_outside)
