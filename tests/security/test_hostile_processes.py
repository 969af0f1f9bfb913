"""Code that turns against the machinery it runs in: its process, its parent, its sandbox, what it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import python, shell
from noetl.tools.processes.folders import OwnFolder, remove_abandoned
from noetl.tools.processes.limits import DEFAULT_LIMITS, Limits
from noetl.tools.processes.pool import CodePool, PoolSettings
from noetl.tools.processes.requests import Answer, Program
from noetl.tools.processes.sandbox import IsolationUnavailableError, sandbox_for
from tests.security.process_watch import ProcessWatch
from tests.unit.tools.code_context import CodeContext, python_call
from tests.unit.tools.local_context import LocalContext, call

SANDBOXED = {"isolation": "sandbox"}


def sandbox_works() -> bool:
    try:
        asyncio.run(sandbox_for(SANDBOXED, Path("/tmp")))
    except IsolationUnavailableError:
        return False
    return True


ISOLATIONS = ["process", "sandbox"] if sandbox_works() else ["process"]
needs_sandbox = pytest.mark.skipif(not sandbox_works(), reason="bubblewrap is missing, or not allowed here")


def kind_of(outcome: Outcome) -> str:
    return "ok" if outcome.error is None else outcome.error.kind


async def run_python(folder: Path, code: str, **spec: Any) -> Outcome:
    context = CodeContext(folder)
    try:
        return await python.run(python_call(code, spec=spec), context.for_tools())
    finally:
        await context.aclose()


async def run_shell(folder: Path, commands: str, env: dict[str, str] | None = None, **spec: Any) -> Outcome:
    async with LocalContext(folder) as context:
        return await shell.run(call("shell", {"cmds": commands, "env": env or {}}, spec=spec), context)


# ── the environment of a task ─────────────────────────────────────────────────────────────────────────────


@needs_sandbox
def test_the_environment_of_a_task_means_nothing_outside_its_sandbox(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    # The loader writes such a file for each program that it starts with these: here, for none outside.
    env = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(outside / "escaped"), "NAME": "a 'b'\n$c"}
    outcome = asyncio.run(run_shell(tmp_path, 'echo "$NAME"', env, **SANDBOXED))
    assert outcome.error is None
    assert outcome.result.endswith("a 'b'\n$c")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_environment_of_a_task_stands_in_no_command_line(tmp_path: Path, isolation: str) -> None:
    secret = secrets.token_hex(8)
    with ProcessWatch() as watch:
        outcome = asyncio.run(
            run_shell(tmp_path, 'sleep 0.1; echo "$NAME"', {"NAME": secret}, isolation=isolation)
        )
    assert outcome.result == secret
    assert not [each for each in watch.seen if secret.encode() in each.command]


def test_variables_that_a_shell_has_itself_reach_the_commands_as_they_are_written(tmp_path: Path) -> None:
    env = {
        "IFS": "x",
        "PATH": "/bin:/usr/bin",
        "PS4": "$(exit 3)",
        "UID": "17",
        "ENV": "/none",
        "_A9": "it's",
    }
    outcome = asyncio.run(run_shell(tmp_path, 'env | grep -E "^(PS4|UID|ENV|_A9)=" | sort', env))
    assert outcome.result == "ENV=/none\nPS4=$(exit 3)\nUID=17\n_A9=it's"


# ── what a process tells its parent ───────────────────────────────────────────────────────────────────────

FORGE = """
import os, sys, time
frame = sys._getframe()
while frame.f_code.co_name != "serve": frame = frame.f_back
mine = frame.f_locals["number"]
def forge(kind, number, body=b"", size=None):
    size = len(body) if size is None else size
    os.write(int(sys.argv[2]), kind + number.to_bytes(8, "big") + size.to_bytes(8, "big") + body)
"""
FRAMES = {
    "an empty answer": "forge(b'R', mine)",
    "an empty failure": "forge(b'E', mine)",
    "an answer to nobody": "forge(b'R', 10**9, b'1', 1 << 60)\nos.write(int(sys.argv[2]), bytes(1 << 20))",
    "an endless answer": "forge(b'R', mine, b'1', 1 << 60)",
    "an endless line": "forge(b'O', mine, b'x', 1 << 60)",
    "a frame of no kind": "forge(b'Z', mine, b'1')",
    "another greeting": "forge(b'H', 0)",
    "an answer for the next": "forge(b'R', mine + 1, b'1\"forged\"')",
    "answers for all": "for k in range(8): forge(b'R', mine + k, b'1\"forged\"')",
    "no text": "forge(b'R', mine, b'1\"\\xff\"')\nos._exit(0)",
    "nothing whole": "os.write(int(sys.argv[2]), b'R' * 20)",
}
FILTER = """
import ctypes, socket, struct, sys, time
cut = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 2))  # every packet to two bytes
requests = socket.socket(fileno=int(sys.argv[1]))
requests.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HL", 1, ctypes.addressof(cut)))
requests.setsockopt(socket.SOL_SOCKET, 42, 5)  # and where one is looked at, not from its beginning
open("begun", "w").close()
time.sleep(20)
"""


async def answers(folder: Path, *codes: str, limits: Limits = DEFAULT_LIMITS) -> list[Answer]:
    """Of one process, in which all but the first wait behind it."""
    pool = CodePool(PoolSettings(width=1, most=1))
    programs = [Program(code, "playbook.yaml") for code in codes]
    try:
        async with asyncio.timeout(15):
            await pool.call("key", limits, Program("pass", "a"), folder, {}, lambda *_: None)
            return await asyncio.gather(
                *(pool.call("key", limits, each, folder, {}, lambda *_: None) for each in programs)
            )
    finally:
        await pool.aclose()


@pytest.mark.parametrize("name", FRAMES)
def test_a_forged_answer_costs_its_process_and_changes_no_other_call(tmp_path: Path, name: str) -> None:
    code = f"{FORGE}\n{FRAMES[name]}\ntime.sleep(0.01)\nresult = 'done'"
    first, *others = asyncio.run(answers(tmp_path, code, *(f"result = {number}" for number in range(5))))
    assert first.result in (None, "forged")  # whatever it says of itself
    assert [each.result for each in others] == list(range(5))


def test_a_process_that_cuts_its_requests_short_is_ended_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    async def scenario() -> list[Answer]:
        pool = CodePool(PoolSettings(width=1, most=1))

        def begin(code: str) -> asyncio.Task[Answer]:
            program = Program(code, "playbook.yaml")
            return asyncio.ensure_future(
                pool.call("key", DEFAULT_LIMITS, program, tmp_path, {}, lambda *_: None)
            )

        try:
            async with asyncio.timeout(10):
                await begin("pass")
                first = begin(FILTER)
                await until((tmp_path / "begun").exists)
                behind = [begin("result = 1") for _ in range(3)]
                ended = [await each for each in (first, *behind)]
                return [*ended, await begin("result = 2")]
        finally:
            await pool.aclose()

    first, *_behind, last = asyncio.run(scenario())
    assert first.failure is not None
    assert "meddled" in first.failure.message
    assert last.result == 2


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_code_does_to_its_descriptors_it_does_to_itself(tmp_path: Path, isolation: str) -> None:
    code = """
import os
for name in os.listdir('/proc/self/fd'):
    try: os.set_blocking(int(name), True)
    except OSError: pass
result = 1
"""

    async def scenario() -> list[bool]:
        context = CodeContext(tmp_path)
        try:
            outcome = await python.run(python_call(code, spec={"isolation": isolation}), context.for_tools())
            assert outcome.result == 1
            (pool,) = context.shared_things.values()
            (process,) = pool.processes
            return [os.get_blocking(each) for each in (process._answers, *process._outputs)]
        finally:
            await context.aclose()

    assert asyncio.run(scenario()) == [False, False, False]


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_ignores_the_end_of_its_cpu_time_is_killed_and_it_is_said_why(tmp_path: Path) -> None:
    ignoring = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    spec: dict[str, Any] = {"resources": {"cpu_seconds": 0.4}}

    async def scenario() -> list[Outcome]:
        running = [run_python(tmp_path, ignoring, isolation=each, **spec) for each in ISOLATIONS]
        running += [
            run_shell(tmp_path, "trap '' XCPU; while :; do :; done", isolation=each, **spec)
            for each in ISOLATIONS
        ]
        return await asyncio.gather(*running)

    outcomes = asyncio.run(scenario())
    assert [kind_of(each) for each in outcomes] == ["process.limit"] * len(outcomes)
    assert all("of CPU time" in each.error.message for each in outcomes if each.error)


def test_short_tasks_under_a_cpu_limit_share_a_process(tmp_path: Path) -> None:
    limits = Limits(cpu_seconds=2)
    pids = asyncio.run(answers(tmp_path, *["import os\nresult = os.getpid()"] * 5, limits=limits))
    assert len({each.result for each in pids}) == 1


# ── what is left behind ───────────────────────────────────────────────────────────────────────────────────

LEFT = {
    "python": "import subprocess\n"
    "subprocess.Popen(['sleep', 'MARK'], env={}, start_new_session=True)\nresult = 1",
    "python through another": "import subprocess\n"
    "subprocess.Popen(['sh', '-c', 'sleep MARK & exec true'], env={}, start_new_session=True).wait()",
    "python by the library of C": "import ctypes\nlibrary = ctypes.CDLL(None)\nif library.fork() == 0:\n"
    "  library.setsid()\n  if library.fork() == 0: library.execle(b'/bin/sleep', b'sleep', b'MARK', None,"
    " (ctypes.c_char_p * 1)(None))\n  library._exit(0)\nlibrary.wait(None)",
    "python that dies": "import os, subprocess\n"
    "subprocess.Popen(['sleep', 'MARK'], env={}, start_new_session=True)\nos._exit(1)",
    "shell": "env -i setsid sleep MARK < /dev/null > /dev/null 2>&1 &\n"
    "env -i sh -c 'setsid sleep MARK > /dev/null 2>&1 &'\nuntil pgrep -f 'sleep MARK'; do :; done",
}


def named(mark: str) -> list[int]:
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if each.read_bytes().startswith(b"sleep\0" + mark.encode()):
                found.append(int(each.parent.name))
    return found


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.fixture
def mark() -> Iterator[str]:
    mark = f"33{secrets.randbelow(10**6):06}"
    yield mark
    for pid in named(mark):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("name", LEFT)
def test_a_daemon_without_an_environment_ends_with_its_task(tmp_path: Path, name: str, mark: str) -> None:
    text = LEFT[name].replace("MARK", mark)

    async def scenario() -> None:
        context = CodeContext(tmp_path)  # its pool stays open: the daemon ends before that
        try:
            if name == "shell":
                await run_shell(tmp_path, text)
            else:
                await python.run(python_call(text), context.for_tools())
            await until(lambda: not named(mark))
        finally:
            await context.aclose()

    asyncio.run(scenario())


def test_what_the_embedding_process_has_started_is_nobody_s_orphan(tmp_path: Path, mark: str) -> None:
    async def scenario() -> None:
        await run_shell(tmp_path, "true")  # from now on this process adopts orphans
        with subprocess.Popen(["sleep", mark]) as child:
            subprocess.run(["sh", "-c", f"setsid sleep {mark} &"], check=True)
            await until(lambda: len(named(mark)) == 2)
            (daemon,) = set(named(mark)) - {child.pid}
            try:
                await run_shell(tmp_path, "sleep 1000 & true")
                await run_python(tmp_path, LEFT["python"].replace("MARK", "1000"))
                assert set(named(mark)) == {child.pid, daemon}
            finally:
                for pid in (child.pid, daemon):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(daemon, 0)  # it was adopted, though

    asyncio.run(scenario())


WORKER = """
import asyncio, sys
from pathlib import Path
from noetl.tools import python
from tests.unit.tools.code_context import CodeContext, python_call

code = "import subprocess, time\\nsubprocess.Popen(['sleep', mark], env={}, start_new_session=True)\\n"
call = python_call(code + "time.sleep(1000)", {"mark": "".join(sys.argv[2:])})
asyncio.run(python.run(call, CodeContext(Path(sys.argv[1])).for_tools()))
"""


def test_a_daemon_without_an_environment_does_not_outlive_a_killed_worker(tmp_path: Path, mark: str) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), mark[:4], mark[4:]])
    try:
        asyncio.run(until(lambda: bool(named(mark))))
    finally:
        worker.kill()
        worker.wait()
    asyncio.run(until(lambda: not named(mark)))


def make_deep(folder: Path, levels: int = 1500) -> None:
    """Deeper than a path can be written, and than a function can call itself."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=place)
        above, place = place, os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(above)
    os.close(place)


def test_a_folder_goes_however_deep_it_is_and_nothing_outside_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("a")
    own = OwnFolder()
    make_deep(own.path)
    for number in range(3):
        inner = own.path / f"closed{number}"
        inner.mkdir()
        (inner / "inner").mkdir()
        (inner / "link").symlink_to(kept)
        (inner / "file").write_text("a")
        (inner / "inner").chmod(0)
        inner.chmod(0)
    own.remove()
    assert not own.path.exists()
    assert (kept / "file").read_text() == "a"


def test_a_folder_that_cannot_be_removed_fails_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    own = OwnFolder()
    (own.path / "file").write_text("a")
    monkeypatch.setattr(os, "unlink", refuse)
    own.remove()
    assert own.path.exists()
    monkeypatch.undo()
    remove_abandoned(own.path.parent)  # nobody holds it any more
    assert not own.path.exists()


def test_an_abandoned_folder_of_any_depth_is_removed(tmp_path: Path) -> None:
    abandoned = tmp_path / "noetl-run-x"
    abandoned.mkdir()
    make_deep(abandoned)
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []
