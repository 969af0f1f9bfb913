"""The pool of code processes: who runs what, what a cancelled call costs, and that nothing outlives it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.tools.processes.folders import remove_abandoned
from noetl.tools.processes.guardian import guard_family
from noetl.tools.processes.limits import DEFAULT_LIMITS, LimitError, Limits, limits_from
from noetl.tools.processes.pool import CodePool, PoolSettings
from noetl.tools.processes.requests import Answer, Program

GONE_SECONDS = 2.0


class Calls:
    """A pool, and calls of it whose logs are kept."""

    def __init__(self, pool: CodePool, folder: Path) -> None:
        self.pool, self.folder = pool, folder
        self.logged: list[str] = []

    async def answer(
        self, code: str, *, key: str = "key", limits: Limits = DEFAULT_LIMITS, **args: Any
    ) -> Answer:
        program = Program(code, "playbook.yaml")
        return await self.pool.call(
            key, limits, program, self.folder, args, lambda _, text: self.logged.append(text)
        )

    async def result(self, code: str, **more: Any) -> Any:
        answer = await self.answer(code, **more)
        assert answer.failure is None, answer.failure
        return answer.result

    def begin(self, code: str, **more: Any) -> asyncio.Task[Answer]:
        return asyncio.ensure_future(self.answer(code, **more))

    async def file(self, name: str) -> str:
        """What a file of the folder says, once it is there."""
        path = self.folder / name
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.001)
        return path.read_text()


def with_pool(
    folder: Path, test: Callable[[Calls], Awaitable[None]], settings: PoolSettings | None = None
) -> None:
    async def run() -> None:
        pool = CodePool(settings)
        try:
            await asyncio.wait_for(test(Calls(pool, folder)), 30)
        finally:
            await pool.aclose()
        assert pool.processes == []

    asyncio.run(run())


def is_gone(pid: int, seconds: float = GONE_SECONDS) -> bool:
    """Whether a process has ended, or ends within the time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)


PID = "import os\nresult = os.getpid()"


def test_a_process_is_kept_for_the_next_call(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        assert await calls.result(PID) == await calls.result(PID)
        assert len(calls.pool.processes) == 1

    with_pool(tmp_path, test)


def test_a_process_that_was_started_before_serves_the_first_call_of_its_key_alone(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        calls.pool.warm("one", DEFAULT_LIMITS)
        [warm] = calls.pool.processes
        assert await calls.result(PID, key="other") != warm.pid
        assert await calls.result(PID, key="one") == warm.pid
        assert len(calls.pool.processes) == 2

    with_pool(tmp_path, test)


def test_a_process_never_serves_another_key_nor_other_limits(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        one = await calls.result(PID, key="one")
        other = await calls.result(PID, key="other")
        limited = await calls.result(PID, key="one", limits=Limits(open_files=64))
        assert len({one, other, limited}) == 3

    with_pool(tmp_path, test)


def test_a_process_is_replaced_after_its_share_of_tasks(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        pids = [await calls.result(PID) for _ in range(25)]
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [10, 10, 5]

    with_pool(tmp_path, test, PoolSettings(tasks_per_process=10))


def test_many_short_calls_share_few_processes_and_keep_their_answers(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        results = await asyncio.gather(*(calls.result("result = n * 2", n=n) for n in range(3000)))
        assert results == [n * 2 for n in range(3000)]
        assert len(calls.pool.processes) <= 6

    with_pool(tmp_path, test, PoolSettings(width=2, overrun_seconds=5))


def test_calls_behind_one_that_overruns_go_to_another_process(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        await calls.result("result = 1")
        endless = calls.begin("while True: pass")
        results = await asyncio.gather(*(calls.result("result = n", n=n) for n in range(6)))
        assert results == list(range(6))
        assert not endless.done()
        endless.cancel()

    with_pool(tmp_path, test, PoolSettings(width=1))


def test_the_pool_grows_to_what_is_in_flight_and_no_further_than_it_may(tmp_path: Path) -> None:
    meet = (
        "import os, time\nopen(f'at_{n}', 'w').write('x')\nwhile len(os.listdir('.')) < 5: time.sleep(0.001)"
    )

    async def test(calls: Calls) -> None:
        await asyncio.gather(*(calls.result(meet, n=n) for n in range(5)))
        assert len(calls.pool.processes) == 5

    with_pool(tmp_path, test, PoolSettings(width=1, most=5))


def test_an_idle_process_of_another_key_makes_room(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        one = await calls.result(PID, key="one")
        assert await calls.result(PID, key="other") != one

    with_pool(tmp_path, test, PoolSettings(width=1, most=1))


def test_a_call_that_has_begun_is_never_run_twice(tmp_path: Path) -> None:
    """Calls that mark their start, in processes that die under them again and again."""
    code = "import os\nopen('starts', 'a').write(f'{n}\\n')\nif n % 7 == 3: os._exit(1)\nresult = n"

    async def test(calls: Calls) -> None:
        answers = await asyncio.gather(*(calls.answer(code, n=n) for n in range(100)))
        for n, answer in enumerate(answers):
            if n % 7 == 3:
                assert answer.failure is not None
                assert answer.failure.kind == "process.died"
            else:
                assert answer.result == n
        starts = (tmp_path / "starts").read_text().split()
        assert sorted(map(int, starts)) == list(range(100))

    with_pool(tmp_path, test)


def test_endless_code_is_gone_soon_after_it_is_cancelled(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        code = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        code += "open('pid', 'w').write(str(os.getpid()))\nwhile True: pass"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(calls.answer(code), 0.3)
        began = time.monotonic()
        assert is_gone(int(await calls.file("pid")))
        assert time.monotonic() - began < 0.1
        assert await calls.result("result = 1") == 1

    with_pool(tmp_path, test)


def test_a_cancelled_call_costs_no_other_call(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        await calls.result("result = 1")
        code = "import time\nopen('starts', 'a').write(f'{n}\\n')\ntime.sleep(0.002)\nresult = n"
        running = [calls.begin(code, n=n) for n in range(60)]
        await calls.file("starts")
        for task in running[::3]:
            task.cancel()
        answers = await asyncio.gather(*running, return_exceptions=True)
        for n, answer in enumerate(answers):
            if n % 3 == 0:
                assert isinstance(answer, asyncio.CancelledError) or answer == Answer(n)
            else:
                assert answer == Answer(n)
        starts = (tmp_path / "starts").read_text().split()
        assert len(starts) == len(set(starts))

    with_pool(tmp_path, test, PoolSettings(width=2))


def test_a_call_that_waits_is_cancelled_without_starting(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        await calls.result("result = 1")
        ahead = calls.begin("import time\nopen('ahead', 'w').write('x')\ntime.sleep(0.1)\nresult = 'ahead'")
        behind = calls.begin("open('behind', 'w').write('x')")
        await calls.file("ahead")
        behind.cancel()
        assert await ahead == Answer("ahead")
        assert await calls.result("import os\nresult = os.path.exists('behind')") is False
        assert len(calls.pool.processes) == 1

    with_pool(tmp_path, test, PoolSettings(width=1, overrun_seconds=5))


def test_threads_that_a_task_leaves_behind_end_with_its_process(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        code = "import threading as t, time\nt.Thread(target=time.sleep, args=(60,)).start()\n" + PID
        left = await calls.result(code)
        assert await calls.result(PID) != left
        assert is_gone(left)

    with_pool(tmp_path, test)


def test_a_fork_that_comes_back_from_the_code_answers_nothing(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        code = "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nresult = bool(pid)"
        assert await calls.result(code) is True
        assert await calls.result("result = 1") == 1

    with_pool(tmp_path, test)


CHILD = """
import os, subprocess
children = [subprocess.Popen(['sleep', '100']).pid]
if daemon:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open('daemon', 'w').write(str(os.getpid()))
            os.execvp('sleep', ['sleep', '100'])
        os._exit(0)
    os.wait()
    while not os.path.exists('daemon') or not os.path.getsize('daemon'): pass
open('children', 'w').write(' '.join(map(str, children)))
while endless: pass
result = 1
"""


@pytest.mark.parametrize("endless", [True, False])
def test_children_of_the_code_end_with_it_even_daemons(tmp_path: Path, endless: bool) -> None:
    async def test(calls: Calls) -> None:
        running = calls.begin(CHILD, daemon=True, endless=endless)
        daemon, child = int(await calls.file("daemon")), int(await calls.file("children"))
        if endless:
            assert not is_gone(daemon, 0)
            running.cancel()
            assert await asyncio.to_thread(is_gone, child)
        else:
            await running
            await calls.pool.aclose()
            assert is_gone(child)
        assert await asyncio.to_thread(is_gone, daemon)

    with_pool(tmp_path, test)


def test_closing_the_pool_answers_those_who_wait_and_removes_its_folder(tmp_path: Path) -> None:
    async def run() -> None:
        pool = CodePool(PoolSettings(width=1, most=1))
        calls = Calls(pool, tmp_path)
        home = Path(await calls.result("import os\nresult = os.environ['TMPDIR']"))
        running, waiting = calls.begin("while True: pass"), calls.begin("result = 1")
        await asyncio.sleep(0)
        await pool.aclose()
        answers = await asyncio.gather(running, waiting)
        assert [answer.failure is not None for answer in answers] == [True, True]
        assert not home.parent.exists()
        with pytest.raises(RuntimeError):
            await calls.answer("result = 1")

    asyncio.run(run())


def test_folders_of_pools_that_were_killed_are_removed_and_no_others(tmp_path: Path) -> None:
    living, *others = (
        tmp_path / name for name in ("noetl-code-a", "noetl-code-b", "noetl-run-c", "other", "noetl-pg-d")
    )
    for folder in (living, *others):
        (folder / "inside").mkdir(parents=True)
    empty, just_made = tmp_path / "noetl-run-e", tmp_path / "noetl-run-f"
    for folder in (empty, just_made):
        folder.mkdir()
    os.utime(empty, (1.0, 1.0))
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    remove_abandoned(tmp_path)
    os.close(lock)
    left = {"noetl-code-a", "other", "noetl-pg-d", "noetl-run-f"}
    assert {each.name for each in tmp_path.iterdir()} == left


def test_a_process_that_cannot_start_is_an_answer_not_an_endless_try(tmp_path: Path) -> None:
    async def test(calls: Calls) -> None:
        answer = await calls.answer("result = 1", limits=Limits(memory=1 << 20))
        assert answer.failure is not None
        assert answer.failure.kind == "process.start"

    with_pool(tmp_path, test)


PARENT = """
import asyncio, sys
from pathlib import Path
from noetl.tools.processes.limits import DEFAULT_LIMITS
from noetl.tools.processes.pool import CodePool
from noetl.tools.processes.requests import Program

async def main():
    pool = CodePool()
    program = Program(sys.argv[2], "playbook.yaml")
    args = {"daemon": False, "endless": True}
    call = pool.call("key", DEFAULT_LIMITS, program, Path(sys.argv[1]), args, print)
    await call

asyncio.run(main())
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSEGV])
def test_no_process_outlives_a_parent_that_is_killed(tmp_path: Path, sent: signal.Signals) -> None:
    code = "import signal as s\nfor n in {*range(1, 32)} - {9, 17, 19}: s.signal(n, s.SIG_IGN)\n"
    code += "open('pid', 'w').write(str(__import__('os').getpid()))" + CHILD
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), code])

    async def pids() -> list[int]:
        calls = Calls.__new__(Calls)
        calls.folder = tmp_path
        return [int(await calls.file("pid")), int(await calls.file("children"))]

    child, grandchild = asyncio.run(asyncio.wait_for(pids(), 10))
    assert not is_gone(child, 0)
    parent.send_signal(sent)
    parent.wait()
    assert is_gone(child)
    assert is_gone(grandchild)


def test_a_process_that_left_its_session_does_not_outlive_a_killed_parent_either(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import os, subprocess, time
        sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
            open("pid", "w").write(f"{os.getpid()}")
        else:
            os.wait()
            open("children", "w").write(f"{sleeper.pid}")
        time.sleep(1000)
    """)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), code])

    async def pids() -> list[int]:
        calls = Calls.__new__(Calls)
        calls.folder = tmp_path
        return [int(await calls.file("pid")), int(await calls.file("children"))]

    sleeper, daemon = asyncio.run(asyncio.wait_for(pids(), 10))
    family = {*tagged_like(daemon), sleeper, daemon}
    assert len(family) >= 4  # the code process, the daemon and two that sleep
    parent.kill()
    parent.wait()
    assert all(is_gone(pid) for pid in family)


def test_a_guardian_is_nobody_s_child_and_ends_with_its_worker(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from noetl.tools.processes.orphans import adopt_orphans, family

adopt_orphans()
adopt_orphans()
try:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
except ChildProcessError:
    print(family(), flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    family = parent.stdout.readline().strip()
    guardians = [
        int(each.parent.name)
        for each in Path("/proc").glob("[0-9]*/cmdline")
        if b"noetl-guardian" in (words := each.read_bytes()) and family.encode() in words
    ]
    assert len(guardians) == 1
    parent.communicate()
    assert is_gone(guardians[0])


@pytest.mark.parametrize("family", ["", "x", "ab", "0123456789abcdeF", "0123456789abcdef0"])
def test_a_guardian_watches_over_nothing_but_a_family(family: str) -> None:
    with pytest.raises(ValueError, match="sixteen"):
        guard_family(family)


def tagged_like(pid: int) -> list[int]:
    """The processes of the same family."""
    found = []
    mark = next(each for each in environment_of(pid) if each.startswith(b"NOETL_PROCESS_TAG="))
    for each in Path("/proc").glob("[0-9]*"):
        if any(entry.startswith(mark[:34]) for entry in environment_of(int(each.name))):
            found.append(int(each.name))
    return found


def environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return []


@pytest.mark.parametrize(
    ("resources", "limits"),
    [
        (None, Limits()),
        ({}, Limits()),
        ({"memory": "512Mi", "cpu": 2}, Limits(memory=512 << 20)),
        ({"memory": 1000, "output_bytes": "2 kB"}, Limits(memory=1000, output_bytes=2000)),
        ({"cpu_seconds": 1.5, "open_files": 20, "file_bytes": "1g"},
         Limits(cpu_seconds=1.5, open_files=20, file_bytes=10**9)),
    ],
)  # fmt: skip
def test_limits_are_read_from_resources(resources: object, limits: Limits) -> None:
    assert limits_from(resources) == limits


@pytest.mark.parametrize("resources", [{"memory": "lots"}, {"memory": -1}, {"open_files": "many"}, []])
def test_a_limit_that_is_none_is_an_error(resources: object) -> None:
    with pytest.raises(LimitError):
        limits_from(resources)
