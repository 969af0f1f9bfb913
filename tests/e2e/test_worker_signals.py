"""A worker that is told to stop: it finishes what it runs; told twice, it ends at once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.cli.stack.nats_server import free_port
from tests.e2e.console import SCRIPT, Console
from tests.e2e.deployments import Deployment

SECONDS = 60
WAITING = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: waiting, path: examples/waiting}
workload: {pipe: ""}
workflow:
  - step: start
    tool:
      kind: python
      args: {pipe: "{{ workload.pipe }}"}
      code: "result = open(pipe).read()"
    next:
      arcs: [{step: later}]
  - step: later
    tool: {kind: python, code: "result = 'another worker'"}
"""


@pytest.fixture
def deployment(console: Console) -> Iterator[Deployment]:
    port = free_port()
    made = Deployment(console, f"http://127.0.0.1:{port}")
    console.noetl("server", "start", "--port", str(port), "--store", "sqlite:///own.db", "--detach")
    made.register(WAITING)
    yield made
    console.noetl("server", "stop")


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """What the task reads: opening it for writing waits until the task is there."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


class Worker:
    """A worker in the foreground."""

    def __init__(self, deployment: Deployment, *options: str) -> None:
        self.process = subprocess.Popen(
            [SCRIPT, "worker", "start", "--server", deployment.url, *options],
            cwd=deployment.console.folder,
            env=deployment.console.environment,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self.hear("worker ready")

    def hear(self, words: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return
        raise AssertionError(f"the worker ended without `{words}`: {self.process.wait()}")

    def ended(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, said


def test_a_worker_finishes_what_it_runs_and_takes_nothing_more(deployment: Deployment, pipe: Path) -> None:
    worker = Worker(deployment)
    started = deployment.start("examples/waiting", pipe=str(pipe))
    with pipe.open("w") as text:
        worker.process.send_signal(signal.SIGTERM)
        worker.hear("draining: 1 under way")
        text.write("to the end")
    assert worker.ended() == (0, "worker ended\n")
    # The next step is for another worker.
    assert deployment.call("GET", f"/api/executions/{started}")["steps"][0]["result"] == "to the end"
    another = Worker(deployment)
    found = deployment.ended(started)
    another.process.send_signal(signal.SIGTERM)
    assert another.ended()[0] == 0
    assert (found["status"], found["result"]) == ("completed", "another worker")


def test_a_worker_that_is_told_twice_ends_at_once(deployment: Deployment, pipe: Path) -> None:
    worker = Worker(deployment)
    deployment.start("examples/waiting", pipe=str(pipe))
    with pipe.open("w"):
        worker.process.send_signal(signal.SIGTERM)
        worker.hear("draining")
        worker.process.send_signal(signal.SIGINT)
        assert worker.ended() == (0, "worker ended with 1 command left to others\n")


def test_a_worker_waits_no_longer_than_its_time_of_grace(deployment: Deployment, pipe: Path) -> None:
    worker = Worker(deployment, "--grace", "0.1")
    deployment.start("examples/waiting", pipe=str(pipe))
    with pipe.open("w"):
        worker.process.send_signal(signal.SIGINT)
        code, said = worker.ended()
    assert code == 0
    assert said.endswith("worker ended with 1 command left to others\n")


def test_an_idle_worker_ends_and_is_no_longer_known(deployment: Deployment) -> None:
    worker = Worker(deployment, "--name", "idle")
    (known,) = deployment.call("GET", "/api/runtime?kind=worker")["runtimes"]
    assert (known["name"], known["pool"], known["slots"]) == ("idle", "default", 16)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ended()[0] == 0
    assert deployment.call("GET", "/api/runtime?kind=worker")["runtimes"] == []
