"""Runs that are stopped, killed, watched and steered from other processes."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.console import Console

ITEMS = 20
BEFORE_THE_GATE = 8
WIDTH = 4

# Each item leaves a mark; those from the eighth on wait until the gate is open.
GATED = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: gated}
workload: {folder: "", items: []}
workflow:
  - step: start
    loop: {in: "{{ workload.items }}", iterator: item, spec: {mode: parallel, max_in_flight: 4}}
    tool:
      - work:
          kind: %s
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: python, args: {found: "{{ start }}"}, code: "result = sum(int(each) for each in found)"}
"""
SHELL = """shell
          cmds:
            - |
              echo {{ item }} >> {{ workload.folder }}/calls
              while [ {{ item }} -ge 8 ] && [ ! -e {{ workload.folder }}/gate ]; do sleep 0.02; done
              echo {{ item }}"""
PYTHON = """python
          args: {item: "{{ item }}", folder: "{{ workload.folder }}"}
          code: |
            import os, time
            with open(folder + "/calls", "a") as calls:
                calls.write(f"{item}\\\\n")
            while item >= 8 and not os.path.exists(folder + "/gate"):
                time.sleep(0.02)
            result = item""".replace("\\\\", "\\")

WAITING = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: waiting}
workflow:
  - step: start
    tool: {kind: wait, signal: approved}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: python, args: {who: "{{ start.by }}"}, code: "result = who"}
"""


def gated(console: Console, kind: str = SHELL) -> list[str]:
    payload = {"folder": str(console.folder), "items": list(range(ITEMS))}
    return ["run", console.write("gated.yaml", GATED % kind), "--payload", json.dumps(payload)]


def open_gate(folder: Path) -> None:
    (folder / "gate").touch()


def calls(folder: Path) -> Counter[int]:
    return Counter(map(int, (folder / "calls").read_text().split()))


def finished_items(console: Console, execution_id: str) -> Counter[int]:
    events = console.data("events", execution_id, "--type", "task.done", "--step", "start")
    return Counter(event["iteration"] for event in events)


def assert_each_item_once(console: Console, execution_id: str, document: dict[str, Any]) -> None:
    """The outcome is that of an undisturbed run, every item is in the log once, and what was finished
    when the run broke off was not called again."""
    assert document["status"] == "completed"
    assert document["result"] == sum(range(ITEMS))
    assert finished_items(console, execution_id) == Counter(range(ITEMS))
    called = calls(console.folder)
    assert all(called[item] == 1 for item in range(BEFORE_THE_GATE))
    repeated = [item for item in called if called[item] > 1]
    assert len(repeated) <= WIDTH
    assert max(called.values()) <= 2


@pytest.mark.parametrize("kind", [SHELL, PYTHON], ids=["shell", "python"])
def test_a_killed_run_goes_on_where_it_was(console: Console, kind: str) -> None:
    with console.followed(*gated(console, kind)) as run:
        execution_id = run.wait_for("task.done", BEFORE_THE_GATE)["execution_id"]
        run.send(signal.SIGKILL)
        assert run.ended()[0] == -signal.SIGKILL
    assert "interrupted" in console.noetl("list")
    status = console.noetl("status", execution_id)
    assert f"nothing runs it now; go on with: noetl resume {execution_id}" in status
    open_gate(console.folder)
    assert_each_item_once(console, execution_id, console.data("resume", execution_id))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_stops_and_says_how_to_go_on(console: Console, number: signal.Signals) -> None:
    with console.followed(*gated(console)) as run:
        execution_id = run.wait_for("task.done", BEFORE_THE_GATE)["execution_id"]
        run.send(number)
        code, shown, _ = run.ended()
    assert code == 130
    assert shown.splitlines()[-2:] == ["‖ gated interrupted", f"  go on with: noetl resume {execution_id}"]
    assert console.data("list")["executions"][0]["status"] == "interrupted"
    assert console.data("list", "--status", "interrupted")["executions"][0]["execution_id"] == execution_id
    assert console.data("status", execution_id)["status"] == "interrupted"
    open_gate(console.folder)
    shown = console.noetl("resume", execution_id)
    assert "after: done in" in shown
    assert_each_item_once(console, execution_id, console.data("status", execution_id))


def test_the_document_of_an_interrupted_run_says_so(console: Console) -> None:
    with console.followed(*gated(console), "--json") as run:
        execution_id = run.wait_for("task.done", BEFORE_THE_GATE)["execution_id"]
        run.send(signal.SIGINT)
        code, shown, told = run.ended()
    assert code == 130
    document = json.loads(shown)
    assert (document["status"], document["finished_at"], document["steps"]) == ("interrupted", None, {})
    assert f"noetl resume {execution_id}" in told


def test_a_run_is_seen_from_another_process(console: Console) -> None:
    with console.followed(*gated(console)) as run:
        execution_id = run.wait_for("task.done", BEFORE_THE_GATE)["execution_id"]
        row = console.data("list")["executions"][0]
        assert (row["execution_id"], row["status"]) == (execution_id, "running")
        assert "running" in console.noetl("list")
        assert f"{BEFORE_THE_GATE}/{ITEMS}" in console.noetl("status", execution_id)
        assert console.data("status", execution_id)["steps"]["start"]["status"] == "running"
        assert "is not over" in console.refused("result", execution_id)
        assert "step `start` has no result" in console.refused("result", execution_id, "start")
        open_gate(console.folder)
        assert console.noetl("status", execution_id, "-f").count("start: done in ") == 1
        assert run.ended()[0] == 0


def test_only_one_process_runs_executions_of_a_store(console: Console) -> None:
    with console.followed(*gated(console)) as run:
        execution_id = run.wait_for("task.done", BEFORE_THE_GATE)["execution_id"]
        owner = f"process {run.process.pid} owns it"
        assert owner in console.refused("run", "gated.yaml")
        assert owner in console.refused("register", "gated.yaml")
        assert "another process owns the store" in console.refused("resume", execution_id)
        open_gate(console.folder)
        assert run.ended()[0] == 0


def test_a_run_is_cancelled_from_another_process(console: Console) -> None:
    with console.followed(*gated(console)) as run:
        execution_id = run.wait_for("task.done", BEFORE_THE_GATE)["execution_id"]
        assert console.noetl("cancel", execution_id, "--reason", "enough") == (
            f"cancelled execution {execution_id}\n"
        )
        code, shown, _ = run.ended()
    assert code == 3
    assert "◌ gated cancelled after " in shown
    assert "execution.cancelled: enough" in shown
    document = console.data("status", execution_id)
    assert document["status"] == "cancelled"
    assert "has no result: it was cancelled" in console.refused("result", execution_id)
    assert document["steps"]["start"]["status"] == "cancelled"


def test_a_paused_run_starts_nothing_until_it_is_resumed(console: Console) -> None:
    with console.followed(*gated(console)) as run:
        execution_id = run.wait_for("task.done", BEFORE_THE_GATE)["execution_id"]
        assert "paused execution" in console.noetl("pause", execution_id)
        open_gate(console.folder)
        run.wait_for("step.paused")  # what ran has ended, and no further item is begun
        begun = len(calls(console.folder))
        assert begun < ITEMS
        assert set(console.data("status", execution_id)["steps"]) == {"start"}
        assert len(calls(console.folder)) == begun
        assert "goes on in the process that runs it" in console.noetl("resume", execution_id)
        code, shown, _ = run.ended()
    assert code == 0
    assert "gated: paused" in shown
    assert_each_item_once(console, execution_id, console.data("status", execution_id))
    assert max(calls(console.folder).values()) == 1, "a pause takes nothing away from those who work"


def test_an_execution_that_nobody_runs_is_steered_all_the_same(console: Console) -> None:
    with console.followed("run", console.write("w.yaml", WAITING)) as run:
        execution_id = run.wait_for("task.started")["execution_id"]
        run.send(signal.SIGKILL)
        run.ended()
    console.noetl("signal", execution_id, "approved", "--data", '{"by": "ada"}')
    console.noetl("pause", execution_id)
    assert console.data("resume", execution_id)["result"] == "ada"
    types = [event["event_type"] for event in console.data("events", execution_id)]
    assert [name for name in types if name.startswith(("signal.", "execution."))] == [
        "signal.received",
        "execution.paused",
        "execution.resumed",
    ]


def test_children_of_a_cancelled_execution_that_nobody_runs_are_cancelled_too(console: Console) -> None:
    child = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: child}\nworkflow:\n"
    child += "  - {step: start, tool: {kind: wait, signal: go}}\n"
    console.noetl("register", console.write("child.yaml", child))
    parent = child.replace("child", "parent").replace(
        "{kind: wait, signal: go}", "{kind: playbook, path: child}"
    )
    with console.followed("run", console.write("parent.yaml", parent)) as run:
        execution_id = run.wait_for("step.paused")["execution_id"]
        run.send(signal.SIGKILL)
        run.ended()
    done = console.finished("cancel", execution_id)
    assert (done.returncode, done.stderr) == (0, "")
    listed = console.data("list")["executions"]
    assert {each["playbook"]["name"]: each["status"] for each in listed} == {
        "parent": "cancelled",
        "child": "cancelled",
    }


def test_a_signal_from_another_process_is_received(console: Console) -> None:
    with console.followed("run", console.write("w.yaml", WAITING), "--json") as run:
        execution_id = run.wait_for("task.started")["execution_id"]
        console.noetl("signal", execution_id, "approved", "--data", '{"by": "ada"}')
        code, shown, _ = run.ended()
    assert code == 0
    assert json.loads(shown)["result"] == "ada"


def test_the_question_of_an_approval_is_shown_to_whoever_looks(console: Console) -> None:
    asking = WAITING.replace("signal: approved", "approval: 'Ship {{ 3 + 4 }} boxes to {{ keychain.to }}?'")
    asking = asking.replace("workflow:", "keychain: [{name: to, kind: file, path: to}]\nworkflow:")
    console.write("to", "hideout")
    with console.followed("run", console.write("w.yaml", asking), "--json") as run:
        execution_id = run.wait_for("step.paused")["execution_id"]
        shown = console.noetl("status", execution_id)
        assert "waits for the signal `approval.task_1` (Ship 7 boxes to ***?)" in shown
        grant = next(line for line in shown.splitlines() if line.startswith("grant it with: "))
        followed = console.data("status", execution_id)["steps"]["start"]["waits"]
        assert followed["questions"] == {"approval.task_1": "Ship 7 boxes to ***?"}
        console.noetl(*grant.removeprefix("grant it with: noetl ").split())
        assert run.ended()[0] == 1  # `true` has no `by`
    assert console.noetl("logs", execution_id).endswith("Ship 7 boxes to ***? granted\n")


def test_data_that_is_not_json_is_a_usage_error(console: Console) -> None:
    assert "--data is not JSON" in console.refused("signal", "1", "approved", "--data", "{")
