"""The `shell` kind with the real shell: results, exit codes, and that nothing is left running."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import shell
from tests.unit.tools.local_context import LocalContext, call

MIB = 1 << 20


def run(folder: Path, config: dict[str, Any] | str | list[str], **spec: Any) -> tuple[Outcome, LocalContext]:
    fields = config if isinstance(config, dict) else {"cmds": config}

    async def scenario() -> tuple[Outcome, LocalContext]:
        async with LocalContext(folder, credentials={"db": {"password": "hunter22"}}) as context:
            return await shell.run(call("shell", fields, spec=spec), context), context

    return asyncio.run(scenario())


def result(folder: Path, config: dict[str, Any] | str | list[str]) -> Any:
    outcome, _ = run(folder, config)
    assert outcome.status == "ok", outcome
    return outcome.result


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


def test_the_result_is_what_is_written_to_the_standard_output(tmp_path: Path) -> None:
    outcome, context = run(tmp_path, "printf 'a\\nb\\n\\n'; echo oops >&2; printf tail >&2")
    assert (outcome.status, outcome.result) == ("ok", "a\nb")
    assert outcome.groups == {"shell": {"exit_code": 0}}
    assert context.errors_logged == "oops\ntail\n"


def test_another_exit_code_than_0_is_an_error_that_is_not_retryable(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, "echo partial; echo why >&2; exit 3")
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("shell.exit", False)
    assert outcome.error.details == {"stderr": "why\n"}
    assert outcome.result == "partial"
    assert outcome.groups == {"shell": {"exit_code": 3}}


def test_a_list_of_commands_runs_in_one_shell_and_stops_at_the_first_that_fails(tmp_path: Path) -> None:
    assert result(tmp_path, ["cd /", "x=1", "pwd; echo $x # done", "false || true"]) == "/\n1"
    outcome, _ = run(tmp_path, ["echo one", "(exit 7)", "echo never"])
    assert (outcome.result, outcome.groups["shell"]["exit_code"]) == ("one", 7)


def test_commands_run_in_the_execution_folder_or_in_the_one_that_is_named(tmp_path: Path) -> None:
    _, context = run(tmp_path, "mkdir -p out && echo hi > out/f")
    assert (context.folder / "out" / "f").read_text() == "hi\n"
    assert result(tmp_path, {"command": "cat f", "cwd": "out"}) == "hi"
    outcome, _ = run(tmp_path, {"command": "true", "cwd": "nowhere"})
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.groups["shell"]["exit_code"]) == ("shell.start", None)


def test_the_environment_is_clean_but_for_what_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "hunter22")
    env = {"NAME": "a b", "N": 1, "B": False, "NONE": None, "L": [1, "x"]}
    shown = result(tmp_path, {"cmds": "env", "env": env}).splitlines()
    assert {"NAME=a b", "N=1", "B=false", 'L=[1,"x"]'} <= set(shown)
    assert not [line for line in shown if line.startswith(("SECRET", "NONE", "VIRTUAL_ENV", "PYTHON"))]


@pytest.mark.parametrize(
    "env",
    [
        {"A=B": "x"},
        {"A": "x\0y"},
        {"": "x"},
        "A=1",
        {"A-B": "x"},
        {"1A": "x"},
        {"A": "\ud800"},
        {"A": "x" * MIB},
    ],
    ids=lambda env: ascii(env)[:12],
)
def test_a_variable_that_cannot_be_one_is_refused(tmp_path: Path, env: Any) -> None:
    outcome, _ = run(tmp_path, {"cmds": "true", "env": env})
    assert outcome.error is not None
    assert outcome.error.kind == "shell.start"


def test_text_for_the_standard_input_reaches_the_commands_and_need_not_be_read(tmp_path: Path) -> None:
    assert result(tmp_path, {"cmds": "cat", "stdin": "x" * MIB}) == "x" * MIB
    assert result(tmp_path, {"cmds": "true", "stdin": "x" * MIB}) == ""
    assert result(tmp_path, "cat") == ""


def test_neither_commands_nor_credentials_stand_in_a_command_line_or_in_the_environment(
    tmp_path: Path,
) -> None:
    shown = result(
        tmp_path,
        {"cmds": "cat /proc/*/cmdline | tr '\\0' ' '; env; cat /proc/$$/cmdline # hunter22", "auth": "db"},
    )
    assert "hunter22" not in shown
    assert result(tmp_path, {"cmds": 'cat "$NOETL_AUTH"', "auth": "db"}) == '{"password":"hunter22"}'


def test_temporary_files_have_a_folder_of_their_own_that_is_gone_afterwards(tmp_path: Path) -> None:
    folder = Path(result(tmp_path, 'echo x > "$TMPDIR/f"; ls -ld "$TMPDIR" | cut -c1-10 >&2; echo "$TMPDIR"'))
    assert not folder.exists()


def test_a_program_that_is_killed_is_a_retryable_error_without_an_exit_code(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, "kill -9 $$")
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("shell.killed", True)
    assert outcome.groups["shell"]["exit_code"] is None


@pytest.mark.parametrize(
    ("commands", "resources", "said"),
    [
        ("while :; do :; done", {"cpu_seconds": 1}, "1 s of CPU time (`spec.resources.cpu_seconds`)"),
        ("sh -c 'while :; do :; done'; exit $?", {"cpu_seconds": 1}, "1 s of CPU time"),
        ("head -c 9000 /dev/zero > big", {"file_bytes": 4096}, "over 4096 bytes (`spec.resources.file_"),
    ],
)
def test_a_program_that_a_limit_ends_failed_by_that_limit_and_is_not_repeated(
    tmp_path: Path, commands: str, resources: dict[str, Any], said: str
) -> None:
    outcome, _ = run(tmp_path, commands, resources=resources)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("process.limit", False)
    assert said in outcome.error.message


def test_output_over_the_limit_ends_the_program(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, "yes", resources={"result_bytes": MIB})
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("shell.output", False)


def test_standard_error_over_the_limit_is_left_out_of_the_log(tmp_path: Path) -> None:
    outcome, context = run(tmp_path, "yes | head -c 3000000 >&2", resources={"output_bytes": 1000})
    assert outcome.status == "ok"
    assert len(context.errors_logged) < 100_000
    assert "left out" in context.errors_logged


def test_limits_hold_for_the_commands(tmp_path: Path) -> None:
    limits = {"open_files": 32, "memory": "512Mi", "cpu_seconds": 9, "file_bytes": 4096}
    outcome, _ = run(tmp_path, "ulimit -n; ulimit -v; ulimit -t; ulimit -f", resources=limits)
    assert outcome.result == "32\n524288\n9\n8"
    bad, _ = run(tmp_path, "true", resources={"memory": "much"})
    assert bad.error is not None
    assert bad.error.kind == "spec.invalid"


def test_a_stricter_isolation_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    outcome, context = run(tmp_path, "touch ran", isolation="container")
    assert outcome.error is not None
    assert outcome.error.kind == "isolation.unavailable"
    assert "container" in outcome.error.message
    assert not (context.folder / "ran").exists()


def test_what_runs_in_the_background_is_ended_with_the_commands(tmp_path: Path) -> None:
    pid = int(result(tmp_path, "sleep 1000 & echo $!"))
    asyncio.run(until(lambda: not is_alive(pid)))


@pytest.mark.parametrize(
    "leaving",
    [
        "setsid sh -c 'echo $$ > pid; exec sleep 1000' &",
        "(setsid sh -c 'trap \"\" TERM; echo $$ > pid; exec sleep 1000' &)",
    ],
)
def test_a_process_that_left_the_group_does_not_hold_up_the_result_and_is_ended(
    tmp_path: Path, leaving: str
) -> None:
    pid = int(result(tmp_path, f"{leaving}\nuntil [ -s pid ]; do :; done; cat pid"))
    asyncio.run(until(lambda: not is_alive(pid)))


@pytest.mark.parametrize(
    "commands",
    ["echo $$ > pid; sleep 1000", "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done"],
    ids=["willing", "unwilling"],
)
def test_a_cancelled_task_ends_its_commands(
    tmp_path: Path, commands: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.tools.programs.GRACE_SECONDS", 0.2)

    async def scenario() -> int:
        async with LocalContext(tmp_path) as context:
            file = context.folder / "pid"
            running = asyncio.create_task(shell.run(call("shell", {"cmds": commands}), context))
            await until(lambda: file.exists() and file.read_text().endswith("\n"))
            pid = int(file.read_text())
            assert is_alive(pid)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return pid

    assert not is_alive(asyncio.run(scenario()))


def test_commands_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    code = """
        import asyncio, sys
        from pathlib import Path
        from noetl.tools import shell
        from tests.unit.tools.local_context import LocalContext, call

        async def main():
            async with LocalContext(Path(sys.argv[1])) as context:
                commands = "(setsid sleep 1000 & echo $! > far); echo $$ > pid; sleep 1000; true"
                await shell.run(call("shell", {"cmds": commands}), context)

        asyncio.run(main())
    """
    file = tmp_path / "execution" / "pid"
    worker = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)])
    asyncio.run(until(lambda: file.exists() and file.read_text().endswith("\n")))
    pids = [int(file.read_text()), int(file.with_name("far").read_text())]
    assert all(is_alive(pid) for pid in pids)
    worker.kill()
    worker.wait()
    asyncio.run(until(lambda: not any(is_alive(pid) for pid in pids)))


def test_a_worker_that_adopts_orphans_is_left_with_no_dead_ones(tmp_path: Path) -> None:
    code = """
        import asyncio, os, sys
        from pathlib import Path
        from noetl.tools import shell
        from noetl.tools.processes.orphans import adopt_orphans
        from tests.unit.tools.local_context import LocalContext, call

        async def main():
            assert adopt_orphans()
            async with LocalContext(Path(sys.argv[1])) as context:
                for commands in ("true", "sleep 1000 & (sleep 1000 &)", "kill -9 $$"):
                    await shell.run(call("shell", {"cmds": commands}), context)
            while True:
                try:
                    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                except ChildProcessError:
                    return

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    assert subprocess.run(command, timeout=20, check=False).returncode == 0


def test_a_wait_for_background_jobs_waits_for_no_other_process(tmp_path: Path) -> None:
    assert result(tmp_path, "(echo a) & wait; echo b") == "a\nb"


@pytest.mark.parametrize("commands", [5, ["a", 5], {"a": 1}])
def test_commands_that_are_no_text_are_refused(tmp_path: Path, commands: Any) -> None:
    outcome, _ = run(tmp_path, {"cmds": commands})
    assert outcome.error is not None
    assert outcome.error.kind == "shell.start"
