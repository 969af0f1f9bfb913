"""Executions, the catalog, variables and the queue as the API shows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.client.api import Api
from noetl.client.connection import Connection, ServerError
from noetl.client.wire import RetryRequest
from noetl.client.wire_access import CredentialRequest, TokenRequest
from noetl.client.wire_work import RuntimeRequest
from noetl.ids import SystemClock
from noetl.records.protocols import ExecutionRequest
from noetl.records.report import Claim
from noetl.results.bodies import FileBodies
from noetl.store.protocol import StoreError
from noetl.tools.registry import runnable
from noetl.worker.worker import Worker
from tests.contract.control.replicas import KINDS, Replica, served
from tests.unit.server.conftest import Play

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: tests/p}\n"
PLAYBOOK = HEAD + (
    "workload: {n: 2}\n"
    "workflow:\n"
    "  - step: start\n"
    "    tool: {kind: python, args: {n: '{{ workload.n }}'}, code: 'result = {\"rows\": list(range(n))}'}\n"
    "    next: {arcs: [{step: end}]}\n"
    "  - step: end\n"
    "    tool: {kind: python, args: {rows: '{{ start.rows }}'}, code: 'result = sum(rows) // (len(rows) - 3)'"
    "}\n"
)
WAITING = HEAD + "workflow: [{step: start, tool: {kind: noop}}]\n"
ASKING = HEAD + "workflow: [{step: start, tool: {kind: wait, approval: Release?}}]\n"


@asynccontextmanager
async def working(server: Replica, folder: Path) -> AsyncIterator[None]:
    """A worker at work on what the server has."""
    worker = Worker(
        server.control,
        KINDS,
        runnable,
        results=FileBodies(folder),
        folder=folder,
        clock=SystemClock(),
    )
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def finished(server: Replica, execution_id: str, folder: Path) -> None:
    """Works until an execution is over."""
    async with working(server, folder):
        await server.control.finished(execution_id)


def test_an_execution_is_shown_as_a_whole_and_run_again_from_where_it_failed(
    play: Play, tmp_path: Path
) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(PLAYBOOK)
        async with server.client() as client:
            asked = {"playbook_id": "tests/p@1", "payload": {"n": 3}}
            response = await client.post("/api/executions", json=asked)
            execution_id = response.json()["execution_id"]
            assert response.headers["location"] == f"/api/executions/{execution_id}"
            await finished(server, execution_id, tmp_path)
            shown = (await client.get(f"/api/executions/{execution_id}")).json()
            assert shown["status"] == "failed"
            assert shown["playbook"] == {
                "name": "p",
                "path": "tests/p",
                "version": 1,
                "dialect": "canonical",
            }
            assert shown["workload"] == {"n": 3}
            assert shown["error"]["step"] == "end"
            assert [(step["name"], step["status"]) for step in shown["steps"]] == [
                ("start", "done"),
                ("end", "failed"),
            ]
            result = await client.get(f"/api/executions/{execution_id}/result", params={"step": "start"})
            assert result.json()["result"] == {"rows": [0, 1, 2]}
            again = await client.post(
                f"/api/executions/{execution_id}/retry", json={"step": "start", "payload": {"n": 5}}
            )
            assert again.status_code == 201
            repeated = again.json()["execution_id"]
            await finished(server, repeated, tmp_path)
            ended = (await client.get(f"/api/executions/{repeated}")).json()
            assert (ended["status"], ended["result"]) == ("completed", 5)
            graph = (await client.get(f"/api/executions/{repeated}/graph")).json()
            assert {node["name"]: node["status"] for node in graph["nodes"]} == {
                "start": "done",
                "end": "done",
            }
            drawn = await client.get(f"/api/executions/{repeated}/graph", params={"format": "mermaid"})
            assert drawn.headers["content-type"].startswith("text/plain")
            assert "start" in drawn.text

    play(scenario)


def test_what_a_step_waits_for_is_shown_with_the_question_that_is_asked(play: Play, tmp_path: Path) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(ASKING)
        async with server.client() as client, working(server, tmp_path):
            started = (await client.post("/api/executions", json={"path": "tests/p"})).json()["execution_id"]

            async def waits() -> Any:
                return (await client.get(f"/api/executions/{started}")).json()["steps"][0]["waits"]

            while not (shown := await waits()):
                await asyncio.sleep(0.05)
            assert shown == [
                {
                    "until": None,
                    "signals": ["approval.task_1"],
                    "questions": {"approval.task_1": "Release?"},
                    "children": [],
                }
            ]
            sent = {"name": "approval.task_1", "payload": True}
            answer = await client.post(f"/api/executions/{started}/signal", json=sent)
            assert answer.is_success, answer.text
            await server.control.finished(started)
            assert await waits() == []

    play(scenario)


def test_an_execution_that_is_not_over_cannot_be_run_again(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(WAITING)
        async with server.client() as client:
            started = (await client.post("/api/executions", json={"path": "tests/p"})).json()["execution_id"]
            response = await client.post(f"/api/executions/{started}/retry")
        assert (response.status_code, response.json()["code"]) == (409, "retry.impossible")

    play(scenario)


def test_a_list_is_paged_to_its_end_whatever_is_filtered(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(WAITING)
        await server.register(WAITING.replace("tests/p", "tests/q"))
        async with server.client() as client:
            made: list[str] = []
            for number in range(7):
                path = "tests/q" if number == 3 else "tests/p"
                body = {"path": path, "parent_execution_id": made[0] if number in (2, 5) else None}
                made.append((await client.post("/api/executions", json=body)).json()["execution_id"])
            await client.post(f"/api/executions/{made[4]}/cancel", json={"reason": "enough"})

            async def every(**query: str) -> list[str]:
                found, cursor = [], None
                while True:
                    asked = query | {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
                    page = (await client.get("/api/executions", params=asked)).json()
                    found += [each["execution_id"] for each in page["executions"]]
                    cursor = page["cursor"]
                    if cursor is None:
                        return found

            assert await every() == made[::-1]
            assert await every(path="tests/q") == [made[3]]
            assert await every(status="cancelled") == [made[4]]
            assert await every(parent=made[0]) == [made[5], made[2]]
            since = (await client.get(f"/api/executions/{made[5]}")).json()["started_at"]
            assert await every(since=since) == [made[6], made[5]]

    play(scenario)


def test_a_changed_playbook_is_a_new_version(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            first = (await client.post("/api/catalog", json={"source": WAITING})).json()
            same = (await client.post("/api/catalog", json={"source": WAITING})).json()
            other = (await client.post("/api/catalog", json={"source": PLAYBOOK})).json()
            assert (first["version"], same["version"], other["version"]) == (1, 1, 2)
            versions = (await client.get("/api/catalog/versions", params={"path": "tests/p"})).json()
            assert sorted(entry["version"] for entry in versions["entries"]) == [1, 2]
            shown = (await client.get("/api/catalog/entry", params={"path": "tests/p", "version": 1})).json()
            assert shown["source"] == WAITING
            source = await client.get(f"/api/catalog/sources/{other['digest']}")
            assert source.text == PLAYBOOK

    play(scenario)


def test_an_invalid_playbook_is_answered_with_its_diagnostics(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            response = await client.post("/api/catalog", json={"source": HEAD + "workflow: [{stp: x}]"})
        problem = response.json()
        assert (response.status_code, problem["code"]) == (422, "playbook.invalid")
        assert all(
            {"severity", "code", "message", "line", "column"} <= set(each) for each in problem["diagnostics"]
        )
        assert any(each["severity"] == "error" and each["line"] == 4 for each in problem["diagnostics"])

    play(scenario)


def test_variables_are_set_by_events_and_read_by_templates(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(WAITING)
        async with server.client() as client:
            started = (
                await client.post("/api/executions", json={"path": "tests/p", "payload": {"a": 1}})
            ).json()
            place = f"/api/vars/{started['execution_id']}"
            assert (await client.put(f"{place}/city", json={"value": "Oslo"})).status_code == 200
            assert (await client.get(f"{place}/city")).json() == {"name": "city", "value": "Oslo"}
            rendered = await client.post(
                "/api/context/render",
                json={
                    "execution_id": started["execution_id"],
                    "template": {"text": "to {{ vars.city }}", "sum": "{{ workload.a + more }}", "n": 1},
                    "payload": {"more": 2},
                },
            )
            assert rendered.json()["result"] == {"text": "to Oslo", "sum": 3, "n": 1}
            assert (await client.delete(f"{place}/city")).json()["value"] == "Oslo"
            assert (await client.get(f"{place}/city")).status_code == 404
            assert (await client.get(place)).json()["variables"] == []
            await client.post(f"/api/executions/{started['execution_id']}/cancel")
            late = await client.put(f"{place}/city", json={"value": "Rome"})
            assert (late.status_code, late.json()["code"]) == (409, "execution.over")
        types = [event.event_type for event in await server.store.events(started["execution_id"])]
        assert types.count("vars.set") == 2
        assert types[-1] == "playbook.processed"

    play(scenario)


def test_a_template_that_does_too_much_is_refused(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(WAITING)
        async with server.client() as client:
            started = (await client.post("/api/executions", json={"path": "tests/p"})).json()
            body = {"execution_id": started["execution_id"], "template": "{{ 'x' * 100000000000 }}"}
            response = await client.post("/api/context/render", json=body)
        assert (response.status_code, response.json()["code"]) == (422, "template.budget")

    play(scenario)


def test_an_outside_event_reaches_the_execution_as_a_signal(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(WAITING)
        async with server.client() as client:
            started = (await client.post("/api/executions", json={"path": "tests/p"})).json()
            told = {
                "execution_id": started["execution_id"],
                "name": "paid",
                "step": "s",
                "payload": {"sum": 4},
            }
            assert (await client.post("/api/events", json=told)).status_code == 202
        log = await server.store.events(started["execution_id"])
        (signal,) = [event for event in log if event.event_type == "signal.received"]
        assert signal.payload == {"name": "paid", "data": {"sum": 4, "step": "s"}}

    play(scenario)


def test_the_queue_shows_what_waits_and_who_has_what(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(WAITING)
        async with server.client() as client:
            for _ in range(2):
                await client.post("/api/executions", json={"path": "tests/p"})
            await client.post("/api/commands/claim", json={"worker_id": "w"})
            free = (await client.get("/api/commands", params={"state": "free"})).json()
            leased = (await client.get("/api/commands", params={"state": "leased"})).json()
            assert (free["depth"], leased["depth"]) == (1, 1)
            assert free["oldest_seconds"] >= 0
            assert leased["commands"][0]["worker_id"] == "w"
            measured = (await client.get("/metrics")).text
        assert 'noetl_queue_depth{pool="default",state="free"} 1.0' in measured
        assert 'noetl_queue_depth{pool="default",state="leased"} 1.0' in measured
        assert 'noetl_queue_age_seconds{pool="default"}' in measured

    play(scenario)


def test_nothing_is_leased_to_a_worker_that_has_gone(play: Play) -> None:
    """The application is called as a server calls it, by a client that breaks the connection off."""
    asked = msgspec.json.encode(Claim(pool="default", worker_id="w", limit=1, wait_seconds=20.0))

    async def claim(server: Replica, gone: asyncio.Event) -> None:
        messages = [{"type": "http.request", "body": asked, "more_body": False}]

        async def receive() -> Any:
            if not messages:
                await gone.wait()
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None: ...

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": "/api/commands/claim", "raw_path": b"/api/commands/claim",
            "query_string": b"", "headers": [(b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "extensions": {}, "state": {},
        }  # fmt: skip
        await server.app(scope, receive, send)  # type: ignore[arg-type]

    async def scenario(server: Replica) -> None:
        await server.register(WAITING)
        # It has gone before it is looked for work, and while it waits for some.
        gone = asyncio.Event()
        gone.set()
        first = await server.control.start(ExecutionRequest(path="tests/p"))
        await claim(server, gone)
        assert [each.state for each in await server.store.queue()] == ["free"]
        await server.control.cancel(first)
        gone = asyncio.Event()
        waiting = asyncio.create_task(claim(server, gone))
        while "default" not in getattr(server.control.bus, "_heard"):  # noqa: B009 - it waits there
            await asyncio.sleep(0)
        gone.set()
        await waiting
        await server.control.start(ExecutionRequest(path="tests/p"))
        assert [each.state for each in await server.store.queue()] == ["free"]

    play(scenario)


def test_lists_go_by_parent_by_time_and_in_both_directions(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(WAITING)
        async with server.client() as client:
            made: list[str] = []
            for number in range(5):
                body = {"path": "tests/p", "parent_execution_id": made[0] if number > 2 else None}
                made.append((await client.post("/api/executions", json=body)).json()["execution_id"])
            row = await server.store.execution(made[2])
            assert row is not None

            async def listed(**query: str) -> list[str]:
                found, cursor = [], ""
                while cursor is not None:
                    asked = query | {"limit": "1"} | ({"cursor": cursor} if cursor else {})
                    page = (await client.get("/api/executions", params=asked)).json()
                    found += [each["execution_id"] for each in page["executions"]]
                    cursor = page["cursor"]
                return found

            assert await listed(order="oldest") == made
            assert await listed(parent=made[0]) == [made[4], made[3]]
            assert await listed(since=row.requested_at, order="oldest") == made[2:]
            assert await listed(since=row.requested_at) == made[:1:-1]
            refused = await client.get("/api/executions", params={"order": "sideways"})
            assert refused.status_code == 422

    play(scenario)


def test_a_server_without_its_store_is_not_ready(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: Replica) -> None:
        async def away(**about: object) -> list[object]:
            raise StoreError("the database is away")

        async with server.client() as client:
            assert (await client.get("/api/ready")).json()["ready"] is True
            monkeypatch.setattr(server.store, "commands", away)
            response = await client.get("/api/ready")
            assert response.status_code == 503
            assert response.json()["checks"][0] == {
                "name": "store",
                "ok": False,
                "detail": "the database is away",
            }
            queue = await client.get("/api/commands")
            assert (queue.status_code, queue.json()["code"]) == (503, "store.error")
            assert queue.headers["retry-after"] == "1"
            assert (await client.get("/api/health")).status_code == 200

    play(scenario)


def test_a_server_whose_store_hangs_says_soon_that_it_is_not_ready(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.server.machines.CHECK_SECONDS", 0.05)

    async def scenario(server: Replica) -> None:
        given_up = asyncio.Event()

        async def hanging(**about: object) -> list[object]:
            try:
                await asyncio.Event().wait()
            finally:
                await given_up.wait()  # a driver that cannot be told to stop
            return []

        async with server.client() as client:
            monkeypatch.setattr(server.store, "commands", hanging)
            async with asyncio.timeout(5):
                response = await client.get("/api/ready")
            assert response.status_code == 503
            assert response.json()["checks"][0]["detail"] == "no answer in 0.05 seconds"
            assert (await client.get("/api/health")).status_code == 200
            given_up.set()

    play(scenario)


def test_what_the_client_asks_for_is_what_the_server_has(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with served(server.app) as at:
            api = Api(Connection(at.url, retry_seconds=0))
            assert (await api.health()).status == "ok"
            assert (await api.ready()).ready
            entry = await api.register(WAITING)
            assert (await api.playbook("tests/p")).source == WAITING
            assert [each.version for each in (await api.versions("tests/p")).entries] == [entry.version]
            assert [each.path for each in (await api.catalog()).entries] == ["tests/p"]
            with pytest.raises(ServerError) as caught:
                await api.register("a: [")
            assert caught.value.code == "playbook.invalid"
            assert caught.value.problem is not None
            assert caught.value.problem.diagnostics[0].code == "yaml.syntax"
            async with server.client() as client:
                started = (await client.post("/api/executions", json={"path": "tests/p"})).json()[
                    "execution_id"
                ]
            assert [each.execution_id for each in (await api.executions()).executions] == [started]
            assert (await api.execution(started)).status == "running"
            assert [step.name for step in (await api.steps(started)).steps] == ["start"]
            assert (await api.events(started, limit=2)).more
            assert (await api.queue()).depth == 1
            await api.set_variable(started, "v", [1])
            assert (await api.variable(started, "v")).value == [1]
            assert [each.name for each in (await api.variables(started)).variables] == ["v"]
            await api.delete_variable(started, "v")
            with pytest.raises(ServerError, match="not over"):
                await api.retry(started, RetryRequest())
            with pytest.raises(ServerError, match="not over"):
                await api.result(started)
            await api.set_credential(CredentialRequest(name="db", type="postgres", data={"p": "sesame-open"}))
            assert [each.name for each in (await api.credentials()).credentials] == ["db"]
            assert (await api.credential("db")).data is None
            assert (await api.credential("db", include_data=True)).data == {"p": "sesame-open"}
            assert (await api.delete_credential("db")).name == "db"
            issued = await api.create_token(TokenRequest(name="t", role="viewer"))
            assert issued.text.startswith("noetl_")
            assert [each.name for each in (await api.tokens()).tokens] == ["t"]
            assert (await api.revoke_token("t")).revoked_at is not None
            await api.register_runtime(RuntimeRequest(kind="worker", name="w", pool="default", slots=2))
            assert await api.beat_runtime("worker", "w")
            assert {each.kind for each in (await api.runtimes()).runtimes} == {"server", "worker"}
            assert await api.leave_runtime("worker", "w")
            assert not await api.beat_runtime("worker", "w")
            await api.close()

    play(scenario)


def test_a_session_lasts_until_it_is_ended(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            opened = (await client.post("/api/sessions", json={"user_id": 7, "roles": ["viewer"]})).json()
            token = {"token": opened["token"]}
            assert (await client.post("/api/sessions/validate", json=token)).json()["user_id"] == 7
            listed = (await client.get("/api/sessions", params={"user_id": 7})).json()["sessions"]
            assert [each["session_id"] for each in listed] == [opened["session"]["session_id"]]
            assert (await client.post("/api/sessions/invalidate", json=token)).json() == {"ended": True}
            assert (await client.post("/api/sessions/validate", json=token)).status_code == 404

    play(scenario)
