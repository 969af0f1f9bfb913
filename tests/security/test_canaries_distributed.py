"""No secret that goes through a deployment is in its API, logs, database, streams or files."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noetl.cli.stack.detached import Detached
from noetl.cli.stack.nats_server import free_port
from tests.e2e.console import Console
from tests.e2e.deployments import Deployment
from tests.security.campaign import FAILED_TASKS, GO_ON, Campaign
from tests.security.canaries import Canaries
from tests.security.outside import Outside
from tests.security.process_watch import ProcessWatch

TAG = b"NOETL_PROCESS_TAG="
"""In the environment of every process that runs code of a playbook."""
PAGES = (
    "/metrics", "/api/health", "/api/runtime", "/api/executions", "/api/commands", "/api/catalog",
    "/api/credentials", "/api/credentials/stored", "/api/executions/{id}", "/api/executions/{id}/steps",
    "/api/executions/{id}/result", "/api/executions/{id}/events", "/api/vars/{id}",
)  # fmt: skip
RENDERED = ["{{ keychain }}", "{{ keychain.http_header }}", "{{ s_kept_own }}", "{{ s_kept_vault }}"]


class Cluster(Deployment):
    """A deployment whose servers and workers were started with the secrets of a campaign."""

    def __init__(self, folder: Path, world: Outside, dsn: str) -> None:
        home, self.temporary, files = (folder / name for name in ("home", "temporary", "files"))
        for made in (home, self.temporary, files):
            made.mkdir()
        super().__init__(Console(home))
        self.canaries = Canaries()
        self.campaign = Campaign(self.canaries, world.url, dsn, files / "a_secret")
        world.vault = {"password": self.canaries["from_vault"]}
        world.token = self.canaries["from_endpoint"]
        self.playbooks = [self.campaign.child(), self._everything(), self.campaign.interrupted()]
        places = {"TMPDIR": str(self.temporary), "NOETL_KEYCHAIN_FOLDER": str(files)}
        self.console.environment |= self.campaign.environment | places

    def _everything(self) -> dict[str, Any]:
        """The campaign, with a large body that goes to the object store of NATS."""
        playbook = self.campaign.playbook()
        stored = {"result": {"store": "nats_object"}, **GO_ON}
        for step in playbook["workflow"]:
            if step["step"] in ("s_py_large", "s_http_large"):
                for task in step["tool"][0].values():
                    task["spec"] = stored
        return playbook

    def page(self, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=30) as answer:
                read: bytes = answer.read()
        except urllib.error.HTTPError as refused:
            return refused.read()
        return read

    def events(self, execution_id: str) -> list[dict[str, Any]]:
        log: list[dict[str, Any]] = []
        page = {"after": 0, "more": True}
        while page["more"]:
            page = self.call("GET", f"/api/executions/{execution_id}/events?after={page['after']}")
            log += page["events"]
        return log

    def wait_for_start(self, execution_id: str, task: str) -> None:
        """Reads the stream of an execution until a task of it has begun."""
        address = f"{self.url}/api/executions/{execution_id}/events"
        request = urllib.request.Request(address, headers={"Accept": "text/event-stream"})
        with self._opener.open(request, timeout=60) as stream:
            for line in stream:
                if b'"task.started"' in line and f'"{task}"'.encode() in line:
                    return
        raise AssertionError(f"{task} never began")

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """Every value of every table, as the database gives it."""
        url = self.cluster.postgres().url
        with psycopg.connect(url) as connection:
            sql = (
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = 'noetl'"
            )
            for schema, table in connection.execute(sql).fetchall():
                for row in connection.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall():
                    content = b"\n".join(v if isinstance(v, bytes) else str(v).encode() for v in row)
                    yield table, content

    def kill_workers(self) -> None:
        for name in ("worker-1", "worker-2"):
            part = Detached(self.cluster.folder, name)
            record = part.running()
            assert record is not None
            assert part.ask(record, signal.SIGKILL, 20)


@pytest.fixture
def cluster(tmp_path: Path, world: Outside, dsn: str) -> Iterator[Cluster]:
    made = Cluster(tmp_path, world, dsn)
    yield made
    made.console.finished("down")


def test_no_canary_of_a_deployment_is_found_anywhere(cluster: Cluster) -> None:
    found: list[str] = []
    canaries = cluster.canaries
    with ProcessWatch() as watch:
        shown = cluster.console.finished("up", "--port", str(free_port()), "--workers", "2")
        assert shown.returncode == 0, shown.stderr
        for name, fields in cluster.campaign.credentials().items():
            body = {"name": name, "type": "any", "data": fields}
            found += canaries.found_in(cluster.page("/api/credentials", body))
        for playbook in cluster.playbooks:
            cluster.register(json.dumps(playbook))
        whole, cut_off = cluster.start("canary/all"), cluster.start("canary/interrupted")
        assert cluster.ended(whole)["error"]["kind"] == "python.exception", cluster.ended(whole)
        cluster.wait_for_start(cut_off, "held")
        for execution_id in (whole, cut_off):
            for path in PAGES:
                content = cluster.page(path.format(id=execution_id))
                found += [f"{path}: {each}" for each in canaries.found_in(content)]
            for template in RENDERED:
                content = cluster.page(
                    "/api/context/render", {"execution_id": execution_id, "template": template}
                )
                found += [f"{template}: {each}" for each in canaries.found_in(content)]
        cluster.kill_workers()
    log = cluster.events(whole)
    assert ends(log) == FAILED_TASKS | {"task_1": "python.exception"}
    found += [f"events: {each}" for each in canaries.found_in(json.dumps(log).encode())]
    for table, content in cluster.rows():
        found += [f"table {table}: {each}" for each in canaries.found_in(content)]
    for seen in watch.seen:
        content = seen.command + (seen.environment if TAG in seen.environment else b"")
        found += [f"process {seen.command!r}: {each}" for each in canaries.found_in(content)]
    found += canaries.found_in_files(cluster.console.folder, cluster.temporary)
    assert not found, "\n".join(found)


def ends(log: list[dict[str, Any]]) -> dict[str, str]:
    """The tasks that failed, and how."""
    return {
        event["task_label"]: event["payload"]["outcome"]["error"]["kind"]
        for event in log
        if event["event_type"] == "task.done" and event["payload"]["outcome"].get("error")
    }
