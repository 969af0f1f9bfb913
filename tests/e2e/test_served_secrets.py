"""What a caller sends along with an execution, and sessions, on a real stack: PostgreSQL, NATS, a server."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
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


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A stack whose server has none of the variables."""
    made = Deployment(Console(tmp_path_factory.mktemp("deployment")))
    made.console.noetl("up", "--port", str(free_port()), "--workers", "1")
    made.register(CHILD)
    yield made
    made.console.finished("down")


@pytest.fixture
def caller(deployment: Deployment) -> Console:
    """The same folder, where somebody has them."""
    made = Console(deployment.console.folder)
    made.environment |= SENT
    return made


def rows(deployment: Deployment) -> list[tuple[str, str, int, bytes]]:
    with psycopg.connect(deployment.cluster.postgres().url) as connection:
        return connection.execute(
            "SELECT credential_name, scope_type, execution_id, data_encrypted FROM noetl.auth_cache"
        ).fetchall()


def nothing_is_kept(deployment: Deployment) -> bool:
    """Asks until that is so, or for too long: an end is tidied up within a second or two."""
    deadline = time.monotonic() + 30
    while rows(deployment):
        if time.monotonic() > deadline:
            return False
    return True


def told_nowhere(deployment: Deployment, execution_id: str) -> bool:
    """Whether neither the API nor a log has the secret."""
    answers = [
        json.dumps(deployment.call("GET", f"/api/executions/{execution_id}{path}"))
        for path in ("", "/events", "/steps", "/result")
    ]
    logs = [log.read_text("utf-8") for log in deployment.cluster.folder.glob("*.log")]
    return not any(SECRET in text for text in answers + logs)


def test_the_callers_variables_go_along_survive_the_server_and_are_forgotten_at_the_end(
    deployment: Deployment, caller: Console
) -> None:
    console = deployment.console
    caller.write("waits.yaml", WAITS)
    with caller.followed("run", "waits.yaml", "--server", deployment.url, "--json") as run:
        execution_id = run.wait_for("step.started")["execution_id"]
        ((name, scope, owner, sealed),) = rows(deployment)
        assert (name, scope, str(owner)) == ("@caller", "execution", execution_id)
        assert SECRET.encode() not in sealed
        # A server that is started again finds them, also after a rotation.
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
    assert told_nowhere(deployment, execution_id)
    assert nothing_is_kept(deployment)


def test_a_registered_playbook_gets_only_what_the_caller_names(
    deployment: Deployment, caller: Console
) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return caller.finished("exec", "secrets/child", "--server", deployment.url, "--json", *options)

    unsent = run()
    assert unsent.returncode == 1
    assert "`SHOP_TOKEN` is not set" in json.loads(unsent.stdout)["error"]["message"]
    sent = run("--send-env", "SHOP_TOKEN")
    assert (sent.returncode, json.loads(sent.stdout)["result"]) == (0, len(SECRET))
    retry = ("retry", json.loads(sent.stdout)["execution_id"], "--from", "start", "--server", deployment.url)
    assert caller.finished(*retry).returncode == 1
    assert caller.finished(*retry, "--send-env", "SHOP_TOKEN").returncode == 0
    missing = run("--send-env", "NOBODY_HAS_IT")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "the variable is not set" in missing.stderr


def test_sessions_are_kept_in_nats_and_looked_at_changed_and_ended_over_http(deployment: Deployment) -> None:
    login = {"user_id": 7, "email": "ada@example.com", "roles": ["viewer"]}
    opened = deployment.call("POST", "/api/sessions", login)
    other = deployment.call("POST", "/api/sessions", login)
    token, session = opened["token"], opened["session"]
    found = deployment.call("POST", "/api/sessions/validate", {"token": token})
    assert (found["session_id"], found["email"]) == (session["session_id"], "ada@example.com")
    listed = deployment.call("GET", "/api/sessions?user_id=7")["sessions"]
    assert [each["session_id"] for each in listed] == [session["session_id"], other["session"]["session_id"]]
    assert deployment.call("POST", "/api/sessions/invalidate", {"token": token}) == {"ended": True}
    with pytest.raises(urllib.error.HTTPError) as gone:
        deployment.call("POST", "/api/sessions/validate", {"token": token})
    assert gone.value.code == 404
    gone.value.close()
    path = f"/api/sessions/7/{other['session']['session_id']}"
    assert deployment.call("DELETE", path) == {"ended": True}
    assert deployment.call("GET", "/api/sessions?user_id=7") == {"sessions": []}
    with psycopg.connect(deployment.cluster.postgres().url) as connection:
        assert connection.execute("SELECT count(*) FROM noetl.session").fetchone() == (0,)
