"""Code that means harm is stopped within its limits, and neither its worker nor its neighbours notice.

One execution runs all of it at once, beside harmless tasks, with the limits that an operator would set.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from noetl.tools import python
from noetl.tools.processes.sandbox import IsolationUnavailableError, sandbox_for
from tests.e2e.console import Console
from tests.unit.tools.code_context import CodeContext, python_call

SECRET = "worker-" + secrets.token_hex(12)
MOST_MEMORY = 400 << 20
LIMITS = {
    "memory": "600Mi", "cpu_seconds": 1, "output_bytes": 100_000, "result_bytes": 1_000_000,
    "file_bytes": "10Mi", "open_files": 256,
}  # fmt: skip


class Attack(NamedTuple):
    """What is run, and how it may end; `seconds` it has where time is what stops it."""

    text: str
    ends: tuple[str, ...]
    seconds: float = 30


DAEMON = """\
import os
ended, held = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        START
    os._exit(0)
os.close(held)
os.read(ended, 1)  # until it has become another program
os.wait()
result = 1
"""
PYTHON = {
    "harmless_1": Attack("result = 'well'", ("ok",)),
    "eats_memory": Attack("x = []\nwhile True: x.append(bytearray(10**7))", ("python.exception",)),
    "eats_cpu": Attack("while True: pass", ("process.limit",)),
    "eats_cpu_in_a_fork": Attack("import os\nif os.fork() == 0:\n  while True: pass\nresult = 1", ("ok",)),
    "ignores_requests": Attack(
        "import signal, time\nfor n in range(1, 32):\n"
        "  if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\n"
        "while True: time.sleep(1)",
        ("timeout",),
        1.5,
    ),
    "becomes_a_daemon": Attack(DAEMON.replace("START", "os.execvp('sleep', ['sleep', MARK])"), ("ok",)),
    "leaves_a_child": Attack("import subprocess\nsubprocess.Popen(['sleep', MARK])\nresult = 1", ("ok",)),
    "closes_everything": Attack("import os\nos.closerange(0, 2000)\nresult = 1", ("process.died",)),
    "prints_a_gigabyte": Attack(
        "import os\nx = b'x' * (1 << 20)\nfor _ in range(1024): os.write(1, x)", ("ok", "timeout"), 4
    ),
    "returns_a_lot": Attack("result = 'x' * 10**7", ("python.result",)),
    "returns_depth": Attack("result = []\nfor _ in range(10**5): result = [result]", ("python.result",)),
    "writes_a_lot": Attack(
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "with open('big', 'wb') as f:\n  while True: f.write(bytes(1 << 20))",
        ("python.exception",),
    ),
    "opens_a_lot": Attack("x = [open('/dev/null') for _ in range(1000)]", ("python.exception",)),
    "looks_at_its_parent": Attack(
        "import os\nresult = []\nfor place in ('environ', 'cmdline'):\n  try:\n"
        "    result.append(open(f'/proc/{os.getppid()}/{place}', 'rb').read().decode('latin-1'))\n"
        "  except OSError as e: result.append(str(e))",
        ("ok",),
    ),
    "poisons_its_process": Attack("import builtins\nbuiltins.poison = 1\nresult = 1", ("ok",)),
    "harmless_2": Attack("result = 'well'", ("ok",)),
}
SHELL = {
    "harmless_3": Attack("echo well", ("ok",)),
    "shell_eats_memory": Attack(
        "x=$(head -c 900000000 /dev/zero | tr '\\\\0' x); echo $?",
        ("shell.exit", "shell.killed", "process.limit"),
    ),
    "shell_eats_cpu": Attack("while :; do :; done", ("process.limit",)),
    "shell_ignores_requests": Attack("trap '' TERM HUP INT; while :; do sleep 1; done", ("timeout",), 1.5),
    "shell_daemon": Attack("setsid sleep MARK > /dev/null 2>&1 & echo well", ("ok",)),
    "shell_children": Attack("nohup sleep MARK > /dev/null 2>&1 & sleep MARK & echo well", ("ok",)),
    "shell_closes": Attack("exec 0<&- 1>&- 2>&-; sleep 60", ("timeout",), 1.5),
    "shell_prints_a_gigabyte": Attack("yes | head -c 1000000000", ("shell.output",)),
    "shell_shouts_a_gigabyte": Attack("yes | head -c 1000000000 >&2", ("ok", "timeout"), 4),
    "shell_looks_at_its_parent": Attack("tr '\\\\0' '\\\\n' < /proc/$PPID/environ; true", ("ok",)),
    "harmless_4": Attack("echo well", ("ok",)),
}
CONFINED = {
    "writes_outside": Attack(
        "result = []\nfor place in ('/usr/x', '/etc/x', '/x', OUTSIDE):\n"
        "  try:\n    open(place, 'w').write('x'); result.append(place)\n  except OSError: pass",
        ("ok",),
    ),
    "uses_the_network": Attack(
        "import socket\ntry:\n  socket.create_connection(('127.0.0.1', PORT), 2); result = 'connected'\n"
        "except OSError: result = 'no'",
        ("ok",),
    ),
    # Of a bounded size, for the sake of the machine that tests run on.
    "forks_and_forks": Attack(
        "import os, time\nfor _ in range(7): os.fork()\nwhile True: time.sleep(1)", ("timeout",), 2
    ),
    "kills_everybody": Attack(
        "import os, signal\nfor pid in range(2, 40000):\n  if pid != os.getpid():\n"
        "    try: os.kill(pid, signal.SIGKILL)\n    except OSError: pass\nresult = 'tried'",
        ("ok", "process.died"),
    ),
    "escapes_its_environment": Attack(
        DAEMON.replace("START", "os.execve('/bin/sleep', ['sleep', MARK], {})"), ("ok",)
    ),
}


def sandbox_works() -> bool:
    try:
        asyncio.run(sandbox_for({"isolation": "sandbox"}, Path("/tmp")))
    except IsolationUnavailableError:
        return False
    return True


class Ended(NamedTuple):
    """How each attack ended, what it gave back; the most memory of the worker, and what was left."""

    kinds: dict[str, str]
    results: dict[str, Any]
    memory: int
    left: list[Any]


def looped(step: str, task: dict[str, Any], following: str) -> dict[str, Any]:
    return {
        "step": step,
        "loop": {
            "in": f"{{{{ workload.{step} }}}}",
            "iterator": "attack",
            "spec": {"mode": "parallel", "max_in_flight": 6},
        },
        "tool": [{"task": task}],
        "next": {"arcs": [{"step": following}]},
    }


def document(attacks: dict[str, dict[str, Attack]], isolation: str, mark: str) -> dict[str, Any]:
    def spec() -> dict[str, Any]:
        go_on = {"rules": [{"else": {"then": {"do": "continue"}}}]}
        return {
            "isolation": isolation,
            "resources": LIMITS,
            "timeout": "{{ attack.seconds }}",
            "policy": go_on,
        }

    names = [*attacks, "after"]
    tasks: dict[str, dict[str, Any]] = {
        "python": {
            "kind": "python",
            "args": {"text": "{{ attack.text }}"},
            "code": "names = {}\nexec(text, names)\nresult = names.get('result')",
            "spec": spec(),
        },
        "shell": {"kind": "shell", "cmds": "{{ attack.text }}", "spec": spec()},
    }
    # The most memory that the worker took, what another playbook left in this process, and who is left.
    look = (
        "import builtins, os, re\nstatus = open(f'/proc/{os.getppid()}/status').read()\n"
        "result = [int(re.search('VmHWM:\\\\s*(\\\\d+) kB', status)[1]), hasattr(builtins, 'poison')]\n"
        "for name in os.listdir('/proc'):\n"
        "  if name.isdigit():\n    try: said = open(f'/proc/{name}/cmdline').read()\n"
        "    except OSError: continue\n    if said.startswith('sleep') and mark in said: result.append(said)"
    )
    workload = {
        step: [
            {"name": name, "text": attack.text.replace("MARK", quoted(step, mark)), "seconds": attack.seconds}
            for name, attack in listed.items()
        ]
        for step, listed in attacks.items()
    }
    steps = [looped(step, tasks[step], names[index + 1]) for index, step in enumerate(attacks)]
    return {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "hostile", "path": "hostile"},
        "executor": {"spec": {"entry_step": names[0]}},
        "workload": {**workload, "mark": mark},
        "workflow": [
            *steps,
            {
                "step": "after",
                "tool": {"kind": "playbook", "path": "look", "args": {"mark": "{{ workload.mark }}"}},
            },
        ],
        "look": look,
    }


def quoted(step: str, mark: str) -> str:
    return f"'{mark}'" if step == "python" else mark


def attack_all(folder: Path, attacks: dict[str, dict[str, Attack]], isolation: str) -> Ended:
    console = Console(folder)
    mark = f"31{secrets.randbelow(10**6):06}"
    playbook = document(attacks, isolation, mark)
    look = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "look", "path": "look"},
        "workload": {"mark": ""},
        "workflow": [
            {
                "step": "start",
                "tool": {
                    "kind": "python",
                    "args": {"mark": "{{ workload.mark }}"},
                    "code": playbook.pop("look"),
                },
            }
        ],
    }
    console.noetl("register", console.write("look.yaml", json.dumps(look)))
    file = console.write("hostile.yaml", json.dumps(playbook))
    done = console.finished("run", file, "-q", "--events", "events.jsonl", WORKER_SECRET=SECRET)
    assert done.returncode == 0, done.stdout[-3000:]
    return ended(folder / "events.jsonl", attacks)


def ended(events: Path, attacks: dict[str, dict[str, Attack]]) -> Ended:
    kinds, results, memory, left = {}, {}, 0, []
    for line in events.read_text("utf-8").splitlines():
        event = json.loads(line)
        if event["event_type"] != "task.done":
            continue
        outcome = event["payload"]["outcome"]
        if event["step"] == "after":
            memory, *left = outcome["result"]
            continue
        name = list(attacks[event["step"]])[event["iteration"]]
        kinds[name] = outcome["error"]["kind"] if outcome["error"] else "ok"
        results[name] = outcome["result"]
    return Ended(kinds, results, memory * 1024, left)


def unexpected(attacks: dict[str, dict[str, Attack]], kinds: dict[str, str]) -> dict[str, str]:
    known = {name: attack for listed in attacks.values() for name, attack in listed.items()}
    assert kinds.keys() == known.keys()
    return {name: kind for name, kind in kinds.items() if kind not in known[name].ends}


def test_hostile_code_is_stopped_by_its_limits_and_disturbs_nobody(tmp_path: Path) -> None:
    attacks = {"python": PYTHON, "shell": SHELL}
    end = attack_all(tmp_path, attacks, "process")
    assert unexpected(attacks, end.kinds) == {}
    assert end.left == [False]  # nobody is left, and no process of one playbook served the other
    assert SECRET not in json.dumps(end.results)
    assert end.memory < MOST_MEMORY


@pytest.mark.parametrize("isolation", ["process", "sandbox"] if sandbox_works() else ["process"])
def test_a_daemon_ends_with_its_task_and_not_with_its_process(tmp_path: Path, isolation: str) -> None:
    mark = f"32{secrets.randbelow(10**6):06}"
    daemon = PYTHON["becomes_a_daemon"].text.replace("MARK", f"'{mark}'")

    def lives() -> bool:
        return any(mark.encode() in _command(path) for path in Path("/proc").glob("[0-9]*/cmdline"))

    async def scenario() -> None:
        context = CodeContext(tmp_path)
        try:
            outcome = await python.run(
                python_call(daemon, spec={"isolation": isolation}), context.for_tools()
            )
            assert outcome.result == 1
            async with asyncio.timeout(10):
                while lives():
                    await asyncio.sleep(0.01)
        finally:
            await context.aclose()

    asyncio.run(scenario())


def test_a_task_that_spoils_its_process_does_not_take_the_next_one_along(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        context = CodeContext(tmp_path)
        long = "import time\ntime.sleep(0.02)\nresult = 1"  # enough to be under way when the process goes
        codes = ["raise MemoryError", long, "result = 2", long] * 10
        try:
            calls = [python.run(python_call(code), context.for_tools()) for code in codes]
            outcomes = await asyncio.gather(*calls)
        finally:
            await context.aclose()
        return ["ok" if each.error is None else each.error.kind for each in outcomes]

    assert asyncio.run(scenario()) == ["python.exception", "ok", "ok", "ok"] * 10


def _command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_hostile_code_in_a_sandbox_reaches_nothing_and_runs_nowhere_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        confined = {
            name: attack._replace(
                text=attack.text.replace("PORT", port).replace("OUTSIDE", repr(str(outside)))
            )
            for name, attack in CONFINED.items()
        }
        folder = tmp_path / "home"
        folder.mkdir()
        attacks = {"python": PYTHON | confined, "shell": SHELL}
        end = attack_all(folder, attacks, "sandbox")
    if not sandbox_works():  # a machine without sandboxes runs none of it
        assert set(end.kinds.values()) == {"isolation.unavailable"}
        return
    assert unexpected(attacks, end.kinds) == {}
    assert end.left == [False]
    assert set(end.results["writes_outside"]) <= {str(outside)}  # which is a folder of the sandbox's own
    assert not outside.exists()
    assert end.results["uses_the_network"] == "no"
    assert SECRET not in json.dumps(end.results)
    assert end.memory < MOST_MEMORY
