"""The routes that are answered the quick way say the same as they do the usual way."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from noetl.server.options import ServerOptions
from tests.contract.control.replicas import Replica
from tests.unit.server.conftest import Play

QUICK = {"Content-Type": "application/json"}
USUAL = {"Content-Type": "application/json; charset=utf-8"}
"""A type that is written in more words is no longer what workers and the command line send."""
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
workflow: [{step: start, tool: {kind: noop}}]
"""

REQUESTS: dict[str, tuple[str, bytes]] = {
    "a start": ("/api/executions", b'{"path":"p"}'),
    "a start of nothing": ("/api/executions", b'{"path":"nowhere"}'),
    "a start with two names": ("/api/executions", b'{"path":"p","playbook_id":"p"}'),
    "a wrong type": ("/api/executions", b'{"path":1}'),
    "no JSON": ("/api/executions", b'{"path"'),
    "nothing": ("/api/executions", b""),
    "a key twice": ("/api/executions", b'{"path":"p","path":"q"}'),
    "a claim": ("/api/commands/claim", b'{"worker_id":"w","pool":"of nobody"}'),
    "a claim of a stranger": ("/api/commands/claim", b'{"worker_id":"w","protocol":99}'),
    "an empty report": ("/api/events/batch", b'{"worker_id":"w","leases":[]}'),
    "a report of nobody's lease": (
        "/api/events/batch",
        b'{"worker_id":"w","leases":[{"lease":{"command_id":"1.0","execution_id":"1","epoch":1},"events":[]}]}',
    ),
    "a report without leases": ("/api/events/batch", b'{"worker_id":"w","pool":"of nobody"}'),
}


def said(answer: httpx.Response) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Without what differs from one request to the next."""
    body = answer.json()
    for name in ("execution_id", "instance"):
        body.pop(name, None)
    changing = ("x-request-id", "content-length", "location")
    return answer.status_code, body, {k: v for k, v in answer.headers.items() if k not in changing}


@pytest.mark.parametrize("role", ["admin", "worker", "viewer", None])
def test_both_ways_give_the_same_answer(play: Play, role: Any) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(PLAYBOOK)
        token = None if role is None else await server.token(role)
        async with server.client(token) as client:
            for name, (path, body) in REQUESTS.items():
                quick = await client.post(path, content=body, headers=QUICK)
                usual = await client.post(path, content=body, headers=USUAL)
                assert said(quick) == said(usual), name
                assert ("location" in quick.headers) == ("location" in usual.headers), name
                assert quick.headers["x-request-id"]
                assert quick.headers["x-content-type-options"] == "nosniff"

    play(scenario, ServerOptions(auth=True, requests_per_second=0, worker_requests_per_second=0))


def test_a_body_that_is_too_large_is_refused_either_way(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            for headers in (QUICK, USUAL):
                answer = await client.post("/api/executions", content=b" " * 3_000, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")

    play(scenario, ServerOptions(auth=False, max_body_bytes=2_000))
