"""What a caller sends along with an execution, and sessions, on the real stack: PostgreSQL, NATS, two servers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from noetl.cli.stack.nats_server import free_port
from tests.e2e.console import Console
from tests.e2e.deployments import Deployment

SECRET = "quiet-magpie-4711"
WAITS = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: waits, path: secrets/waits}
keychain:
  - {name: token, kind: env, var: SHOP_TOKEN}
  - {name: login, kind: bearer, var: SHOP_LOGIN}
workflow:
  - step: start
    tool: {kind: wait, signal: go}
    next: {arcs: [{step: use}]}
  - step: use
    tool:
      kind: python
      args: {token: "{{ keychain.token }}", login: "{{ keychain.login }}"}
      code: |
        print("using", token)
        result = [token, len(token), len(login)]
    next: {arcs: [{step: child}]}
  - step: child
    tool: {kind: playbook, path: secrets/child}
"""
CHILD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child, path: secrets/child}
keychain:
  - {name: token, kind: env, var: SHOP_TOKEN}
workflow:
  - step: start
    tool:
      kind: python
      args: {token: "{{ keychain.token }}"}
      code: "result = len(token)"
"""
SENT = {"SHOP_TOKEN": SECRET, "SHOP_LOGIN": f"{SECRET}-login"}


@pytest.fixture
def deployment(console: Console) -> Iterator[Deployment]:
    made = Deployment(console)
    yield made
    console.finished("down")


def rows(deployment: Deployment) -> list[tuple[str, str, int, bytes]]:
    with psycopg.connect(deployment.cluster.postgres().url) as connection:
        return connection.execute(
            "SELECT credential_name, scope_type, execution_id, data_encrypted FROM noetl.auth_cache"
        ).fetchall()


def test_the_callers_variables_go_along_survive_the_server_and_are_forgotten_at_the_end(
    deployment: Deployment,
) -> None:
    console = deployment.console
    console.noetl("up", "--port", str(free_port()), "--workers", "1")
    deployment.register(CHILD)
    console.write("waits.yaml", WAITS)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SENT.items():
            patch.setitem(console.environment, name, value)
        with console.followed("run", "waits.yaml", "--server", deployment.url, "--json") as run:
            execution_id = run.wait_for("step.started")["execution_id"]
            ((name, scope, owner, sealed),) = rows(deployment)
            assert (name, scope, str(owner)) == ("@caller", "execution", execution_id)
            assert SECRET.encode() not in sealed
            # A server that is started again finds them, and so does another one.
            console.noetl("server", "stop", "--name", "server-1")
            console.noetl("up", "--workers", "1")
            assert deployment.call("POST", "/api/credentials/rotate")["unreadable"] == []
            console.noetl("signal", execution_id, "go", "--server", deployment.url)
            code, out, err = run.ended()
    assert code == 0, (out, err)
    told = json.loads(out)
    assert told["steps"]["use"]["result"] == ["***", len(SECRET), len(SENT["SHOP_LOGIN"])]
    assert told["steps"]["child"]["result"] == len(SECRET)
    assert SECRET not in out + err
    for path in ("", "/events", "/steps", "/result"):
        assert SECRET not in json.dumps(deployment.call("GET", f"/api/executions/{execution_id}{path}"))
    for log in deployment.cluster.folder.glob("*.log"):
        assert SECRET not in log.read_text("utf-8")
    # The next execution's start is later than the second after which the end of this one is tidied up.
    deployment.register(CHILD.replace("secrets/child", "secrets/late").replace("keychain", "workload: {}\nx"))
    assert eventually_empty(deployment)


def eventually_empty(deployment: Deployment) -> bool:
    """Asks until nothing is kept any more; the database itself does the waiting."""
    with psycopg.connect(deployment.cluster.postgres().url, autocommit=True) as connection:
        for _ in range(100):
            if connection.execute("SELECT 1 FROM noetl.auth_cache").fetchone() is None:
                return True
            connection.execute("SELECT pg_sleep(0.1)")
    return False
