"""The `sandbox` isolation of code tools: what it cannot reach, how it ends, and where it is refused."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import python, script, shell
from noetl.tools.processes import sandbox
from noetl.tools.processes.sandbox import IsolationUnavailableError, Sandbox, SandboxOptionError, sandbox_for
from tests.unit.tools.code_context import CodeContext, python_call
from tests.unit.tools.local_context import LocalContext, call

SANDBOXED = {"isolation": "sandbox"}


def works_here() -> bool:
    try:
        asyncio.run(sandbox_for(SANDBOXED, Path("/tmp")))
    except IsolationUnavailableError:
        return False
    return True


needs_bubblewrap = pytest.mark.skipif(not works_here(), reason="bubblewrap is missing, or not allowed here")


@asynccontextmanager
async def context_in(folder: Path) -> AsyncIterator[CodeContext]:
    context = CodeContext(folder)
    try:
        yield context
    finally:
        await context.aclose()


def run_python(folder: Path, *codes: str, args: dict[str, Any] | None = None, **spec: Any) -> list[Outcome]:
    async def scenario() -> list[Outcome]:
        async with context_in(folder) as context:
            return [
                await python.run(python_call(code, args, spec=SANDBOXED | spec), context.for_tools())
                for code in codes
            ]

    return asyncio.run(scenario())


def run_shell(folder: Path, commands: str, **spec: Any) -> Outcome:
    async def scenario() -> Outcome:
        async with LocalContext(folder, credentials={"db": {"password": "hunter22"}}) as context:
            fields = {"cmds": commands, "auth": "db", "stdin": "typed"}
            return await shell.run(call("shell", fields, spec=SANDBOXED | spec), context)

    return asyncio.run(scenario())


@needs_bubblewrap
def test_code_runs_and_writes_in_its_folder_alone(tmp_path: Path) -> None:
    folder, outside = tmp_path / "execution", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    code = """
import os, tempfile
open('inside', 'w').write('a')
open('/tmp/own', 'w').write('a')
tempfile.TemporaryFile().write(b'a')
result = []
for place in (other, '/usr', '/etc', os.path.dirname(os.__file__), '/', '/proc/sys/kernel'):
    try:
        open(place + '/written', 'w')
        result.append(place)
    except OSError:
        pass
"""
    (outcome,) = run_python(folder, code, args={"other": str(outside)})
    assert (outcome.error, outcome.result) == (None, [])
    assert (folder / "inside").read_text() == "a"
    assert list(outside.iterdir()) == []
    assert not Path("/tmp/own").exists()


@needs_bubblewrap
def test_code_can_set_nothing_in_the_kernel_even_for_root(tmp_path: Path) -> None:
    code = """
import os
result = []
places = [os.path.join('/proc', each) for each in os.listdir('/proc') if not each.isdigit()]
while places:
    place = places.pop()
    if os.path.islink(place):
        continue
    try:
        if os.path.isdir(place):
            places += [os.path.join(place, each) for each in os.listdir(place)]
        else:
            os.close(os.open(place, os.O_WRONLY | os.O_NONBLOCK))
            result.append(place)
    except OSError:
        pass
"""
    (outcome,) = run_python(tmp_path, code)
    assert (outcome.error, outcome.result) == (None, [])


@needs_bubblewrap
def test_memory_that_is_a_file_system_is_little(tmp_path: Path) -> None:
    code = """
result = []
for place in ('/dev/shm/filled', '/dev/filled'):
    try:
        with open(place, 'wb') as file:
            for _ in range(100): file.write(bytes(1 << 20))
        result.append(place)
    except OSError:
        pass
open('/dev/null', 'w').write('x')
"""
    (outcome,) = run_python(tmp_path, code)
    assert (outcome.error, outcome.result) == (None, [])


@needs_bubblewrap
def test_code_sees_neither_other_processes_nor_other_files(tmp_path: Path) -> None:
    folder, outside = tmp_path / "execution", tmp_path / "secret"
    folder.mkdir()
    outside.write_text("hunter22")
    code = """
import os
result = [len([each for each in os.listdir('/proc') if each.isdigit()]) < 5, os.getpid() < 10]
result += [os.path.exists(place) for place in (secret, '/etc/shadow', '/var', '/srv')]
"""
    (outcome,) = run_python(folder, code, args={"secret": str(outside)})
    assert (outcome.error, outcome.result) == (None, [True, True, False, False, False, False])


@needs_bubblewrap
@pytest.mark.parametrize("network", [False, True])
def test_there_is_no_network_unless_it_is_asked_for(tmp_path: Path, network: bool) -> None:
    code = """
import socket
try:
    socket.create_connection(("127.0.0.1", port), 5).close()
    result = True
except OSError:
    result = False
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        args = {"port": server.getsockname()[1]}
        (outcome,) = run_python(tmp_path, code, args=args, sandbox={"network": network})
    assert (outcome.error, outcome.result) == (None, network)


@needs_bubblewrap
def test_a_sandboxed_process_stays_warm_for_its_execution_and_serves_no_other(tmp_path: Path) -> None:
    code = "import os, sys\nsys.seen = getattr(sys, 'seen', 0) + 1\nresult = [sys.seen, os.getcwd()]"
    folders = [tmp_path / "a", tmp_path / "b"]

    async def scenario() -> list[Any]:
        async with context_in(folders[0]) as context:
            found = []
            for folder in (*folders, *folders):
                context._folder = folder
                outcome = await python.run(python_call(code, spec=SANDBOXED), context.for_tools())
                found.append(outcome.result)
            return found

    a, b = (str(folder) for folder in folders)
    assert asyncio.run(scenario()) == [[1, a], [1, b], [2, a], [2, b]]


@needs_bubblewrap
def test_limits_and_deaths_of_sandboxed_code_are_told_as_ever(tmp_path: Path) -> None:
    codes = [
        "result = bytes(1 << 30)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        "while True: pass",
        "print('said')\nresult = 'x' * 100000",
    ]
    resources = {"memory": "512Mi", "cpu_seconds": 1}
    memory, killed, endless, large = run_python(tmp_path, *codes, resources=resources)
    assert memory.error is not None
    assert memory.groups["py"]["exception_type"] == "MemoryError"
    assert killed.error is not None
    assert (killed.error.kind, "SIGSEGV" in killed.error.message) == ("process.died", True)
    assert endless.error is not None
    assert endless.error.kind == "process.limit"
    assert large.result == "x" * 100000


@needs_bubblewrap
def test_cancelled_code_ends_with_all_that_it_started(tmp_path: Path) -> None:
    name = f"sandboxed-{time.time_ns()}"

    async def scenario() -> None:
        async with context_in(tmp_path) as context:
            call = python_call(DAEMONS, {"name": name}, spec=SANDBOXED)
            running = asyncio.ensure_future(python.run(call, context.for_tools()))
            await until((tmp_path / "begun").exists)
            assert len(named(name)) >= 3
            running.cancel()
            await until(lambda: not named(name))

    asyncio.run(scenario())


@needs_bubblewrap
def test_no_process_in_a_sandbox_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    name = f"sandboxed-{time.time_ns()}"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), DAEMONS, name[:9], name[9:]])
    asyncio.run(until((tmp_path / "begun").exists))
    assert len(named(name)) >= 3
    worker.kill()
    worker.wait()
    asyncio.run(until(lambda: not named(name), 2.0))


DAEMONS = """
import subprocess, time
for _ in range(3):  # in sessions of their own, and without anything in their environment to be found by
    subprocess.Popen(["sh", "-c", "sleep 1000; :", name], start_new_session=True, env={})
open("begun", "w").close()
time.sleep(1000)
"""

WORKER = """
import asyncio, sys
from pathlib import Path
from noetl.tools import python
from tests.unit.tools.code_context import CodeContext, python_call

async def main():
    folder, code, *name = sys.argv[1:]
    call = python_call(code, {"name": "".join(name)}, spec={"isolation": "sandbox"})
    await python.run(call, CodeContext(Path(folder)).for_tools())

asyncio.run(main())
"""


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


def named(name: str) -> list[str]:
    """The processes on this machine that have a word in their command line."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name.encode() in each.read_bytes():
                found.append(each.parent.name)
        except OSError:  # it has ended meanwhile
            continue
    return found


@needs_bubblewrap
def test_commands_and_what_they_are_given_work_in_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("a")
    commands = f"""
        cat "$NOETL_AUTH"; read line; echo "$line"; echo x > "$TMPDIR/y"; echo kept > kept
        cat {tmp_path}/outside || echo hidden
        echo $$ | grep -q '^[0-9]$' && echo alone
    """
    outcome = run_shell(tmp_path, commands)
    assert (outcome.status, outcome.result) == ("ok", '{"password":"hunter22"}typed\nhidden\nalone')
    assert (tmp_path / "execution" / "kept").read_text() == "kept\n"


@needs_bubblewrap
def test_a_command_cannot_run_in_a_folder_that_the_sandbox_does_not_show(tmp_path: Path) -> None:
    async def scenario() -> Outcome:
        async with LocalContext(tmp_path) as context:
            return await shell.run(call("shell", {"cmds": "pwd", "cwd": "/usr"}, spec=SANDBOXED), context)

    outcome = asyncio.run(scenario())
    assert outcome.error is not None
    assert outcome.error.kind == "shell.start"


@needs_bubblewrap
def test_a_script_that_was_copied_first_runs_in_a_sandbox(tmp_path: Path) -> None:
    async def scenario() -> Outcome:
        async with LocalContext(tmp_path) as context:
            source = context.folder / "a.py"
            source.write_text("import os\nprint(os.getpid() < 10, os.listdir('.'))")
            checksum = hashlib.sha256(source.read_bytes()).hexdigest()
            fields = {"source": "a.py", "checksum": checksum}
            return await script.run(call("script", fields, spec=SANDBOXED), context)

    outcome = asyncio.run(scenario())
    assert (outcome.error, outcome.result) == (None, "True ['a.py']")


def test_a_machine_without_bubblewrap_refuses_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "PATH", str(tmp_path))
    sandbox._bubblewrap.cache_clear()
    sandbox._try_out.cache_clear()
    try:
        (outcome,) = run_python(tmp_path, "open('ran', 'w')")
        assert outcome.error is not None
        assert (outcome.error.kind, outcome.error.retryable) == ("isolation.unavailable", False)
        assert "bwrap" in outcome.error.message
        assert run_shell(tmp_path, "touch ran").error == outcome.error
        assert not list(tmp_path.glob("**/ran"))
    finally:
        sandbox._bubblewrap.cache_clear()
        sandbox._try_out.cache_clear()


def test_a_machine_that_allows_no_namespaces_refuses_the_task_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    refusing.chmod(refusing.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sandbox, "PATH", str(tmp_path))
    sandbox._bubblewrap.cache_clear()
    sandbox._try_out.cache_clear()
    try:
        (outcome,) = run_python(tmp_path, "result = 1")
        assert outcome.error is not None
        assert outcome.error.kind == "isolation.unavailable"
        assert "No permissions to create new namespace" in outcome.error.message
    finally:
        sandbox._bubblewrap.cache_clear()
        sandbox._try_out.cache_clear()


@pytest.mark.parametrize("options", [[], {"network": "yes"}, {"net": True}, "network"])
def test_options_that_a_sandbox_does_not_have_are_refused(tmp_path: Path, options: object) -> None:
    with pytest.raises(SandboxOptionError):
        asyncio.run(sandbox_for(SANDBOXED | {"sandbox": options}, tmp_path))


def test_nothing_of_a_sandbox_is_writable_but_its_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda: "bwrap")
    argv = Sandbox(Path("/data/1")).wrapped(["run"], Path("/var/own"), [Path("/var/script")])
    writable = [argv[place + 2] for place, word in enumerate(argv) if word == "--bind"]
    assert writable == ["/tmp", "/data/1", "/var/own"]
    assert "--unshare-net" in argv
    assert argv[-4:] == ["--remount-ro", "/", "--", "run"]
    assert "--unshare-net" not in Sandbox(Path("/data/1"), True).wrapped(["run"], Path("/var/own"))
