"""A whole deployment with one command: it runs, survives what is killed, ends, and goes on with its data."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.cli.stack.detached import Detached, started_at
from noetl.cli.stack.nats_server import free_port
from tests.e2e.console import Console
from tests.e2e.deployments import Deployment

HELLO = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: examples/hello}
workload: {name: world}
workflow:
  - step: start
    tool:
      kind: python
      args: {name: "{{ workload.name }}"}
      code: "result = f'hello {name}'"
"""


@pytest.fixture
def deployment(console: Console) -> Iterator[Deployment]:
    made = Deployment(console)
    yield made
    console.finished("down")


def kill(part: Detached) -> None:
    record = part.running()
    assert record is not None
    assert part.ask(record, signal.SIGKILL, 20)


def test_up_starts_everything_down_ends_it_and_up_goes_on_with_the_data(deployment: Deployment) -> None:
    console = deployment.console
    shown = console.noetl("up", "--port", str(free_port()))
    assert shown.startswith(f"up: {deployment.cluster.url}\n")
    assert deployment.names() == ["postgres", "nats", "server-1", "worker-1", "worker-2"]
    deployment.register(HELLO)
    assert deployment.run("examples/hello") == "hello world"

    assert console.noetl("up").startswith("it runs already\n")

    # What dies is replaced, the rest is left alone.
    survivor = Detached(deployment.cluster.folder, "worker-1").running()
    kill(Detached(deployment.cluster.folder, "worker-2"))
    kill(deployment.cluster.server)
    kill(deployment.cluster.nats().process)
    assert console.noetl("up").startswith("up: ")
    assert Detached(deployment.cluster.folder, "worker-1").running() == survivor
    assert deployment.names() == ["postgres", "nats", "server-1", "worker-1", "worker-2"]
    assert deployment.run("examples/hello", name="again") == "hello again"

    console.noetl("worker", "scale", "3")
    console.noetl("worker", "scale", "1")
    assert [worker["name"] for worker in console.data("worker", "status")["workers"]] == ["worker-1"]

    processes = [part.running() for part in deployment.cluster.parts()]
    assert console.noetl("down").startswith("down; the data is in ")
    assert deployment.names() == []
    for record in processes:
        assert record is not None
        assert started_at(record.pid) is None
    assert console.noetl("down") == "nothing was running\n"

    console.noetl("up", "--workers", "1")
    assert deployment.run("examples/hello", name="you") == "hello you"


def test_nobody_else_can_read_the_secrets_of_a_deployment(deployment: Deployment) -> None:
    deployment.console.noetl("up", "--port", str(free_port()), "--workers", "1")
    chosen = deployment.cluster.chosen()
    for part in deployment.cluster.parts():
        record = part.running()
        assert record is not None
        command = Path(f"/proc/{record.pid}/cmdline").read_text("utf-8")
        assert chosen.postgres_password not in command
        assert chosen.nats_token not in command
    assert deployment.cluster.folder.stat().st_mode & 0o077 == 0


def test_a_server_and_a_worker_alone_need_neither_postgres_nor_nats(console: Console) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    deployment = Deployment(console, url)
    try:
        shown = console.noetl(
            "server", "start", "--port", str(port), "--store", "sqlite:///own.db", "--detach"
        )
        assert shown.startswith(f"server-1 is ready at {url}")
        assert console.data("server", "status")["servers"][0]["state"] == "ready"
        assert console.noetl("worker", "start", "--server", url, "--detach").startswith("worker-1 started")
        deployment.register(HELLO)
        assert deployment.run("examples/hello", name="SQLite") == "hello SQLite"
    finally:
        assert "worker-1 stopped" in console.noetl("worker", "stop")
        assert "server-1 stopped" in console.noetl("server", "stop")


def test_a_port_that_is_taken_is_said_before_anybody_goes_to_the_wrong_server(deployment: Deployment) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = deployment.console.finished("up", "--port", str(port), "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert f"port {port} is taken by another process" in done.stderr
    assert done.stdout.startswith(f"up: {deployment.url}\n")
    assert str(port) not in deployment.url
