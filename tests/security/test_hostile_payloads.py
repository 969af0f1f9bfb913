"""Playbooks, payloads and paths that mean harm are refused: soon, in little memory, and in words."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import pytest

from noetl.testing import play
from noetl.tools import playbook
from tests.e2e.console import SCRIPT, Console
from tests.security.campaign import GO_ON
from tests.security.outside import Outside
from tests.unit.tools.local_context import LocalContext, call

MOST_MEMORY = 400 << 20
MOST_CPU_SECONDS = 6.0
"""Of the whole command, its start included; on an idle machine it is under one."""
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: victim}
workload: {x: 1}
workflow:
  - step: start
    tool: {kind: python, args: {x: "{{ workload.x }}"}, code: "result = 1"}
"""
LAUGHS = "\n".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}' if level else 'x'] * 10)}]" for level in range(12)
)
PLAYBOOKS = {
    "laughs": f"{LAUGHS}\n{PLAYBOOK}",
    "deep": "workflow: " + "[" * 100_000,
    "deep_blocks": "\n".join(" " * level + "a:" for level in range(2000)),
    "deep_template": PLAYBOOK.replace("workload.x }}", "(" * 5000 + "1" + ")" * 5000 + " }}"),
    "long_template": PLAYBOOK.replace("workload.x }}", " + ".join(["1"] * 100_000) + " }}"),
    "long_scalar": PLAYBOOK.replace("x: 1", f"x: {'a' * 2_000_000}"),
    "many_keys": PLAYBOOK + "workbook:\n" + "\n".join(f"  - {{name: n{n}}}" for n in range(40_000)),
    "long_number": PLAYBOOK.replace("x: 1", f"x: {'9' * 100_000}"),
    "long_hex_number": PLAYBOOK.replace("workload.x }}", f"0x{'f' * 5000} }}}}"),
    "long_duration": PLAYBOOK.replace("kind: python", f"kind: python, spec: {{timeout: {'9' * 401}}}"),
    "binary": "\0\1\2" * 1000,
    "merge": PLAYBOOK + "b: &b\n  <<: *b\n",
    "tag": PLAYBOOK.replace("x: 1", "x: !!python/object/apply:os.system [id]"),
}
PAYLOADS = {
    "deep_lists": '{"x":' + "[" * 200_000 + "]" * 200_000 + "}",
    "deep_mappings": '{"x":' + '{"a":' * 5000 + "1" + "}" * 5000 + "}",
    "a_number": '{"x":' + "9" * 5_000_000 + "}",
    "no_number": '{"x": NaN}',
    "half_a_character": '{"x": "\\ud800"}',
    "not_closed": '{"x":' + '"' * 3,
}


class Ended(NamedTuple):
    exit_code: int
    said: str
    memory: int
    cpu_seconds: float


MEASURED = """
import os, resource, subprocess, sys
ended = subprocess.run(sys.argv[2:], check=False)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    file.write(f"{used.ru_maxrss} {used.ru_utime + used.ru_stime}")
sys.exit(ended.returncode)
"""
"""Runs a command from a small process: a child of a large one counts its parent's memory as its own."""


def ran(folder: Path, *arguments: str) -> Ended:
    """Runs a command; what it took, its children included."""
    figures = folder / "figures.txt"
    process = subprocess.run(
        [sys.executable, "-c", MEASURED, str(figures), SCRIPT, *arguments],
        cwd=folder,
        env=Console(folder).environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    kibibytes, seconds = figures.read_text("utf-8").split()
    return Ended(process.returncode, process.stdout.decode(), int(kibibytes) * 1024, float(seconds))


def check_refusal(ended: Ended) -> None:
    assert ended.exit_code == 2, ended.said[-2000:]
    assert "Traceback" not in ended.said
    assert 0 < len(ended.said) < 20_000
    assert ended.memory < MOST_MEMORY
    assert ended.cpu_seconds < MOST_CPU_SECONDS


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_hostile_playbook_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "victim.yaml").write_text(PLAYBOOKS[name], encoding="utf-8")
    check_refusal(ran(tmp_path, "run", "victim.yaml"))


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_hostile_payload_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "victim.yaml").write_text(PLAYBOOK, encoding="utf-8")
    (tmp_path / "payload.json").write_text(PAYLOADS[name], encoding="utf-8")
    check_refusal(ran(tmp_path, "run", "victim.yaml", "--payload", "@payload.json"))


def test_the_ways_out_of_a_step_share_one_budget() -> None:
    guard = "{{ (range(30000) | map('string') | list | length) > 999999 }}"
    arcs = ", ".join(f'{{step: b, when: "{guard}"}}' for _ in range(100))
    started = process_time()
    found = play(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\nworkflow:\n"
        f"  - step: start\n    tool: {{kind: noop}}\n    next: {{arcs: [{arcs}]}}\n"
        "  - step: b\n    tool: {kind: noop}\n"
    )
    assert process_time() - started < 3
    assert found.error is not None
    assert (found.status, found.error["kind"], found.error["step"]) == ("failed", "template.budget", "start")
    assert "a way out of step `start`" in found.error["message"]


def test_the_rules_of_admission_share_one_budget() -> None:
    guard = "{{ (range(30000) | map('string') | list | length) > 999999 }}"
    rules = ", ".join(f'{{when: "{guard}", then: {{allow: true}}}}' for _ in range(100))
    started = process_time()
    found = play(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\nworkflow:\n"
        f"  - step: start\n    spec: {{policy: {{admit: {{rules: [{rules}]}}}}}}\n    tool: {{kind: noop}}\n"
    )
    assert process_time() - started < 3
    assert found.error is not None
    assert (found.status, found.error["kind"], found.error["step"]) == ("failed", "template.budget", "start")


@pytest.mark.parametrize("version", ["9" * 5000, 10**4000, 10**19, -1, True], ids=range(5))
def test_a_version_no_catalog_counts_to_is_none(tmp_path: Path, version: object) -> None:
    config = {"path": "child", "version": version}
    outcome = asyncio.run(playbook.run(call("playbook", config), LocalContext(tmp_path)))
    assert outcome.error is not None
    assert outcome.error.kind == "playbook.version"
    assert len(outcome.error.message) < 200


def test_no_field_that_names_a_path_leads_out_of_the_folder(tmp_path: Path, world: Outside) -> None:
    kept = "this is nobody's business"
    outside = tmp_path / "outside"
    outside.write_text(kept)
    (tmp_path / "outside.sh").write_text("echo escaped")
    home = tmp_path / "home"
    home.mkdir()
    escapes = ["../../../../outside", str(outside), "a/../../../../../outside", "linked/outside"]
    tasks: list[dict[str, Any]] = [
        {"kind": "shell", "cmds": f"mkdir -p a; ln -sfn {tmp_path} linked"},
    ]
    for path in escapes:
        tasks += [
            {"kind": "sqlite", "database": path, "query": "CREATE TABLE escaped (a)"},
            {"kind": "sqlite", "database": f"file:{path}?mode=rwc", "query": "CREATE TABLE escaped (a)"},
            {"kind": "sqlite", "query": f"ATTACH '{path}.db' AS x; CREATE TABLE x.escaped (a)"},
            {"kind": "duckdb", "database": path, "query": "CREATE TABLE escaped (a INTEGER)"},
            {"kind": "duckdb", "query": f"SELECT content FROM read_text('{path}')"},
            {"kind": "duckdb", "query": f"COPY (SELECT 1) TO '{path}.csv'"},
            {"kind": "duckdb", "query": f"ATTACH '{path}.duck' AS x; CREATE TABLE x.escaped (a INTEGER)"},
            {"kind": "script", "source": f"{path}.sh"},
            {"kind": "http", "method": "POST", "url": f"{world.url}/echo", "files": {"f": path}},
        ]
    steps = [
        {"step": f"s{index}" if index else "start", "tool": [{"t": {**task, "spec": GO_ON}}]}
        for index, task in enumerate(tasks)
    ]
    for index, step in enumerate(steps[:-1]):
        step["next"] = {"arcs": [{"step": steps[index + 1]["step"]}]}  # type: ignore[assignment]
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "escapes"}}
    (home / "escapes.yaml").write_text(json.dumps(head | {"workflow": steps}))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    done = Console(home).finished("run", "escapes.yaml", "-q", "--events", "events.jsonl")
    assert done.returncode == 0, done.stdout[-2000:]
    log = (home / "events.jsonl").read_text()
    outcomes = [
        event["payload"]["outcome"]["status"]
        for event in map(json.loads, log.splitlines())
        if event["event_type"] == "task.done"
    ]
    # A name that begins like a URL is only a name: what it leads to lies inside, if it is anything.
    names = ["file:" in str(task.get("database")) for task in tasks]
    ends = ["ok" if is_name else end for end, is_name in zip(outcomes, names, strict=True)]
    assert ends == ["ok", *("ok" if is_name else "error" for is_name in names[1:])]
    assert kept not in log
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_what_reaches_a_command_as_data_stays_data(tmp_path: Path) -> None:
    """Values that look like options, expansions or ends of commands."""
    values = [
        "-rf",
        "--version",
        "$(touch own)",
        "`touch own`",
        "; touch own",
        "'; touch own; '",
        "a\nb",
        "*",
    ]
    tasks: list[dict[str, Any]] = [
        {"shell": {"kind": "shell", "cmds": 'printf %s "$IT"', "env": {"IT": "{{ value }}"}}},
        {"typed": {"kind": "shell", "cmds": "cat", "stdin": "{{ value }}"}},
        {"made": {"kind": "shell", "cmds": "echo 'printf %s \"$1\"' > own.sh"}},
        {"script": {"kind": "script", "source": "own.sh", "arguments": ["{{ value }}"]}},
        {
            "all": {
                "kind": "python",
                "args": {"it": "{{ value }}", "found": ["{{ shell }}", "{{ typed }}", "{{ script }}"]},
                "code": "import os\nassert found == [it] * 3, found\nassert not os.path.exists('own')",
            }
        },
    ]
    playbook = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "data"},
        "workload": {"values": values},
        "workflow": [
            {"step": "start", "loop": {"in": "{{ workload.values }}", "iterator": "value"}, "tool": tasks}
        ],
    }
    console = Console(tmp_path)
    done = console.finished("run", console.write("data.yaml", json.dumps(playbook)), "-q")
    assert done.returncode == 0, done.stdout
