"""A task that must not run twice: killed while it runs, it is not made again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: once, path: tests/once}}
workflow:
  - step: start
    tool:
      kind: shell
      command: "echo begun >> {calls}; sleep 30"
      spec: {{on_lease_loss: {wish}}}
"""


def noetl(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("noetl")), *arguments]


def begun_and_killed(folder: Path, wish: str) -> tuple[Path, str]:
    """A run that was killed while its task ran; where the task counts its calls, and the execution."""
    calls, file, store = folder / "calls.txt", folder / "once.yaml", f"sqlite:///{folder}/store.db"
    file.write_text(PLAYBOOK.format(calls=calls, wish=wish), encoding="utf-8")
    log = folder / "log.jsonl"
    process = subprocess.Popen(
        noetl("run", str(file), "--store", store, "--events", str(log)),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    # Its start is in the log before the task begins, or a moment later.
    while not (calls.exists() and "task.started" in log.read_text("utf-8")):
        assert time.monotonic() < deadline
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    first = json.loads(log.read_text("utf-8").splitlines()[0])
    return calls, first["execution_id"]


def test_a_task_that_may_not_run_twice_fails_when_its_process_was_lost(tmp_path: Path) -> None:
    calls, execution_id = begun_and_killed(tmp_path, "fail")
    ended = subprocess.run(
        noetl("resume", execution_id, "--store", f"sqlite:///{tmp_path}/store.db", "--json"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["error"]["kind"] == "worker.lost"
    assert calls.read_text("utf-8") == "begun\n"


def test_by_default_it_is_run_again(tmp_path: Path) -> None:
    calls, execution_id = begun_and_killed(tmp_path, "retry")
    resumed = subprocess.Popen(
        noetl("resume", execution_id, "--store", f"sqlite:///{tmp_path}/store.db"),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while calls.read_text("utf-8") != "begun\nbegun\n":
        assert time.monotonic() < deadline
        assert resumed.poll() is None
    os.killpg(resumed.pid, signal.SIGKILL)
    resumed.wait()
