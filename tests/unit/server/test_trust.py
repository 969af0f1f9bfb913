"""What tokens of operators and workers do not come by, though they may call the route."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx
import pytest

from noetl.server.options import ServerOptions
from tests.contract.control.replicas import Replica
from tests.unit.server.conftest import Play

AUTH = ServerOptions(requests_per_second=0, worker_requests_per_second=0, max_wait_seconds=0)
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: NAME, path: NAME}\n"
GATE = HEAD.replace("NAME", "gate") + (
    "workflow:\n"
    "  - {step: start, tool: {kind: noop}, next: {arcs: [{step: approve}]}}\n"
    "  - {step: approve, tool: {kind: wait, approval: go?}, next: {arcs: [{step: deploy}]}}\n"
    "  - {step: deploy, tool: {kind: noop}}\n"
)
LOOP = HEAD.replace("NAME", "loop") + (
    "workflow:\n  - {step: start, loop: {in: [1, 2, 3], iterator: x}, tool: {kind: noop}}\n"
)
NOW = "2026-11-15T00:00:00.000000Z"


def told(event_type: str, entity: str = "workflow", timestamp: str = NOW, **payload: Any) -> dict[str, Any]:
    return {
        "idem_key": f"k{event_type}",
        "event_type": event_type,
        "timestamp": timestamp,
        "entity_type": entity,
        "entity_id": "x",
        "status": "success",
        "payload": payload,
    }


async def began(client: httpx.AsyncClient, path: str, **body: Any) -> str:
    response = await client.post("/api/executions", json={"path": path, **body})
    assert response.status_code == 201, response.text
    found: str = response.json()["execution_id"]
    return found


async def claimed(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.post("/api/commands/claim", json={"worker_id": "w"})
    found: dict[str, Any] = response.json()["commands"][0]
    return found


async def reported(
    client: httpx.AsyncClient, lease: dict[str, Any], *events: dict[str, Any]
) -> dict[str, Any]:
    body = {"worker_id": "w", "free_slots": 5, "leases": [{"lease": lease, "events": list(events)}]}
    response = await client.post("/api/events/batch", json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_an_edited_playbook_is_run_again_only_by_those_who_may_register_it(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(GATE)
        async with server.client(await server.token("operator")) as operator:
            ran = await began(operator, "gate")
            await operator.post(f"/api/executions/{ran}/cancel")
            edited = {"source": GATE.replace("noop", "shell, cmds: [id]"), "step": "start"}
            refused = await operator.post(f"/api/executions/{ran}/retry", json=edited)
            assert (refused.status_code, refused.json()["code"]) == (403, "auth.forbidden")
            assert "catalog:write" in refused.json()["detail"]
            assert (
                await operator.post(f"/api/executions/{ran}/retry", json={"step": "start"})
            ).status_code == 201
        async with server.client(await server.token("author")) as author:
            assert (await author.post(f"/api/executions/{ran}/retry", json=edited)).status_code == 201

    play(scenario, AUTH)


@pytest.mark.parametrize(
    "forged",
    [
        told("next.evaluated", "step", selected=[{"step": "deploy", "token": "99", "args": {}}]),
        told("signal.received", name="approval.approve", data=True),
        told("playbook.request.evaluated", "playbook", workload={"forged": 1}),
        told("workflow.finished"),
        told("execution.cancelled", "playbook"),
        told("step.resumed", "step", lease=0, cause="signal"),
        told("loop.done", "loop"),
        told("step.done", "step", result=1, next={"selected": [{"step": "deploy", "args": {}}]}),
        told("step.done", "step", result=1, timestamp="yesterday"),
        told("no.such.event"),
    ],
    ids=lambda event: event["event_type"],
)
def test_a_worker_tells_of_its_own_work_alone(play: Play, forged: dict[str, Any]) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(GATE)
        async with (
            server.client(await server.token("operator")) as operator,
            server.client(await server.token("worker", "mine")) as mine,
        ):
            ran = await began(operator, "gate", payload={"real": 1})
            lease = (await claimed(mine))["lease"]
            before = [event.event_type for event in server.events]
            answer = await reported(mine, lease, forged)
            (verdict,) = answer["verdicts"]
            assert (verdict["verdict"], answer["commands"]) == ("refused", [])
            assert [event.event_type for event in server.events] == before
            shown = (await operator.get(f"/api/executions/{ran}")).json()
            assert (shown["status"], shown["workload"]) == ("running", {"real": 1})

    play(scenario, AUTH)


def test_a_worker_reads_no_results_of_executions_that_have_nothing_to_do_with_its_own(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(GATE)
        await server.register(LOOP)
        async with (
            server.client(await server.token("operator")) as operator,
            server.client(await server.token("worker", "mine")) as mine,
            server.client(await server.token("worker", "other")) as other,
        ):
            victim = await began(operator, "loop")
            theirs = await claimed(other)
            run = theirs["step_run_id"]
            done = told("loop.iteration.done", "loop", result="theirs") | {
                "iteration": 0,
                "iteration_id": f"{run}[0]",
            }
            assert (await reported(other, theirs["lease"], done))["verdicts"][0]["verdict"] == "accepted"
            await began(operator, "gate")
            lease = (await claimed(mine))["lease"]
            ref = {
                "kind": "result_ref",
                "ref": f"noetl://{victim}/x",
                "store": "log",
                "key": run,
                "checksum": "",
                "size": 1,
                "schema_hint": {"type": "list", "length": 3},
            }
            within = {**ref, "ref": "noetl://parts/1", "store": "parts", "parts": [ref]}
            for wanted in (ref, within, {"kind": "result_ref", "ref": 5}, {"ref": "x"}):
                asked = {"lease": lease, "ref": wanted}
                answer = await mine.post(f"/api/commands/{lease['command_id']}/bodies/load", json=asked)
                assert answer.status_code == 404, answer.text
                assert "theirs" not in answer.text
            asked = {"lease": theirs["lease"], "ref": ref}
            own = await other.post(f"/api/commands/{theirs['lease']['command_id']}/bodies/load", json=asked)
            assert own.json()["result"] == ["theirs", None, None]

    play(scenario, AUTH)


def test_a_worker_stores_bodies_under_its_own_lease_and_writes_over_none(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(GATE)
        async with (
            server.client(await server.token("operator")) as operator,
            server.client(await server.token("worker", "mine")) as mine,
        ):
            victim = await began(operator, "gate")
            await claimed(mine)
            ran = await began(operator, "gate")
            lease = (await claimed(mine))["lease"]

            async def stored(execution_id: str, body: bytes, key: str | None = None) -> int:
                checksum = hashlib.sha256(body).hexdigest()
                query = {
                    "execution_id": execution_id,
                    "epoch": lease["epoch"],
                    "key": key or f"noetl://{execution_id}/{checksum[:32]}",
                    "checksum": checksum,
                }
                place = f"/api/commands/{lease['command_id']}/bodies"
                return (await mine.post(place, params=query, content=body)).status_code

            assert await stored(ran, b'"good"') == 200
            assert await stored(victim, b'"forged"') == 409
            assert await stored(ran, b'"forged"', f"noetl://{ran}/x") == 422
            await reported(mine, lease, told("step.done", "step", result=1))
            assert await stored(ran, b'"late"') == 409

    play(scenario, AUTH)


@pytest.mark.parametrize(
    "hidden", [{"x": {"kind": "result_ref", "ref": "zzz"}}, {"x": [{"kind": "result_ref", "ref": ""}]}]
)
def test_data_from_outside_is_never_taken_for_a_stored_result(play: Play, hidden: dict[str, Any]) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(GATE)
        async with server.client(await server.token("author")) as author:
            ran = await began(author, "gate")
            asked = [
                ("POST", "/api/executions", {"path": "gate", "payload": hidden}),
                ("POST", f"/api/executions/{ran}/signal", {"name": "s", "payload": hidden}),
                ("PUT", f"/api/vars/{ran}/v", {"value": hidden}),
            ]
            for method, path, body in asked:
                answer = await author.request(method, path, json=body)
                assert (answer.status_code, answer.json()["code"]) == (422, "result.reference"), path
            await author.post(f"/api/executions/{ran}/cancel")
            again = {"step": "start", "payload": hidden}
            answer = await author.post(f"/api/executions/{ran}/retry", json=again)
            assert (answer.status_code, answer.json()["code"]) == (422, "result.reference")

    play(scenario, AUTH)


def test_a_key_of_another_start_is_told_of_and_not_taken_for_the_same(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(GATE)
        await server.register(LOOP)
        async with server.client() as client:
            headers = {"Idempotency-Key": "nightly"}
            first = await client.post("/api/executions", json={"path": "gate"}, headers=headers)
            again = await client.post("/api/executions", json={"path": "gate"}, headers=headers)
            assert first.json() == again.json()
            other = await client.post("/api/executions", json={"path": "loop"}, headers=headers)
            assert (other.status_code, other.json()["code"]) == (409, "execution.key_reused")

    play(scenario)
