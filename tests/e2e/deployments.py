"""A deployment in the folder of a console, and its API as tests call it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from noetl.cli.stack.cluster import Cluster
from tests.e2e.console import Console

ENDS = (b'"playbook.completed"', b'"playbook.failed"')


class Deployment:
    def __init__(self, console: Console, url: str | None = None) -> None:
        """`url`: of a server that is no part of a cluster."""
        self.console = console
        self.cluster = Cluster(console.folder / ".noetl" / "cluster")
        self._url = url
        # A proxy of the environment is for the outside world.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def url(self) -> str:
        return self._url or self.cluster.url

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with self._opener.open(request, timeout=30) as answer:
            return json.loads(answer.read())

    def register(self, source: str) -> None:
        self.call("POST", "/api/catalog", {"source": source})

    def start(self, path: str, **payload: Any) -> str:
        started: str = self.call("POST", "/api/executions", {"path": path, "payload": payload})[
            "execution_id"
        ]
        return started

    def ended(self, execution_id: str) -> Any:
        """Follows the events of an execution until it is over; the execution."""
        address = f"{self.url}/api/executions/{execution_id}/events"
        request = urllib.request.Request(address, headers={"Accept": "text/event-stream"})
        with self._opener.open(request, timeout=60) as stream:
            for line in stream:
                if any(end in line for end in ENDS):
                    break
        return self.call("GET", f"/api/executions/{execution_id}")

    def run(self, path: str, **payload: Any) -> Any:
        """The result of an execution that completes."""
        found = self.ended(self.start(path, **payload))
        assert found["status"] == "completed", found
        return found["result"]

    def names(self) -> list[str]:
        return [part.name for part in self.cluster.parts()]
