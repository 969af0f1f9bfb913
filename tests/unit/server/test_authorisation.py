"""Who may call what: every route of the router with every role, and with none."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest
from litestar import get
from litestar.routes import HTTPRoute

from noetl.engine.leases import Leased
from noetl.errors import UsageError
from noetl.registry.roles import ROLES, allows
from noetl.server.app import Api
from noetl.server.options import ServerOptions, check_exposure
from noetl.server.policies import POLICIES
from tests.contract.control.replicas import Replica
from tests.unit.server.conftest import Play

AUTH = ServerOptions(requests_per_second=0, worker_requests_per_second=0, max_wait_seconds=0)
PLAYBOOK = (
    "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
    "workflow: [{step: start, tool: {kind: noop}}]\nkeychain: [{name: door, kind: env}]\n"
)
SAMPLES = {"kind": "worker", "user_id": "1", "session_id": "1", "digest": "0" * 64, "execution_id": "1"}


def routes(app: Api) -> Iterator[tuple[str, str]]:
    """Every method and path that the router knows, those it offers by itself left out."""
    for route in app.routes:
        assert isinstance(route, HTTPRoute), "a route of another kind needs a guard of its own"
        for method in route.methods:
            if method != "OPTIONS":
                yield method, re.sub(r":\w+}", "}", route.path)


def address(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda found: SAMPLES.get(found[1], "x"), path)


def test_every_route_has_a_policy_and_every_policy_a_route(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        assert set(routes(server.app)) == set(POLICIES)

    play(scenario)


def test_every_route_admits_the_roles_of_its_policy_and_no_other(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        tokens: dict[str, str | None] = {role: await server.token(role) for role in ROLES}
        wrong = []
        for role, token in {**tokens, "nobody": None, "forged": "noetl_" + "x" * 43}.items():
            async with server.client(token) as client:
                for method, path in routes(server.app):
                    response = await client.request(method, address(path))
                    permission = POLICIES[method, path].permission
                    if permission == "public" and role != "forged":
                        expected = True
                    elif role in ("nobody", "forged"):
                        expected = False
                        assert response.status_code == 401, (role, method, path)
                    else:
                        expected = permission == "known" or allows(role, permission)  # type: ignore[arg-type]
                        if not expected:
                            assert response.status_code == 403, (role, method, path)
                            assert response.json()["code"] == "auth.forbidden"
                    if expected != (response.status_code not in (401, 403)):
                        wrong.append((role, method, path, response.status_code))
        assert wrong == []

    play(scenario, AUTH)


def test_methods_that_are_offered_by_themselves_are_refused(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client(await server.token("admin")) as client:
            for path in {path for _, path in POLICIES}:
                assert (await client.request("OPTIONS", address(path))).status_code == 403
                assert (await client.request("HEAD", address(path))).status_code in (403, 405)

    play(scenario, AUTH)


def test_a_route_without_a_policy_is_refused_to_everybody(play: Play) -> None:
    @get("/api/forgotten")
    async def forgotten() -> str:
        return "told"

    async def scenario(server: Replica) -> None:
        server.app.register(forgotten)
        async with server.client(await server.token("admin")) as client:
            response = await client.get("/api/forgotten")
        assert response.status_code == 403
        assert "told" not in response.text

    play(scenario, AUTH)


def test_a_token_that_was_revoked_opens_nothing(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client(await server.token("viewer", "gone")) as client:
            assert (await client.get("/api/executions")).status_code == 200
            await server.tokens.revoke("gone")
            response = await client.get("/api/executions")
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["code"] == "auth.invalid"

    play(scenario, AUTH)


def test_the_data_of_a_credential_needs_a_permission_of_its_own(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        draft = {"name": "db", "type": "postgres", "data": {"password": "sesame-open"}}
        async with server.client(await server.token("credential_admin")) as admin:
            assert (await admin.post("/api/credentials", json=draft)).status_code == 200
            shown = await admin.get("/api/credentials/db", params={"include_data": "true"})
            assert shown.json()["data"] == {"password": "sesame-open"}
            listed = await admin.get("/api/credentials")
            assert "sesame" not in listed.text
        async with server.client(await server.token("author")) as author:
            assert (await author.get("/api/credentials/db")).status_code == 200
            refused = await author.get("/api/credentials/db", params={"include_data": "true"})
        assert refused.status_code == 403
        assert "sesame" not in refused.text

    play(scenario, AUTH)


# --- workers reach only what they hold --------------------------------------------------------------------


def test_a_worker_cannot_use_the_lease_of_another_token(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(PLAYBOOK)
        async with (
            server.client(await server.token("operator")) as operator,
            server.client(await server.token("worker", "mine")) as mine,
            server.client(await server.token("worker", "other")) as other,
        ):
            execution_id = (await operator.post("/api/executions", json={"path": "p"})).json()["execution_id"]
            claimed = (await mine.post("/api/commands/claim", json={"worker_id": "w"})).json()["commands"][0]
            lease = claimed["lease"]
            place = f"/api/commands/{lease['command_id']}"
            asked = {"lease": lease}
            assert (await mine.post(f"{place}/keychain", json=asked)).json()["entries"] != {}
            for path, body in {
                "keychain": asked,
                "loop": asked,
                "heard": asked | {"after": 0},
                "signal": asked | {"name": "x"},
                "child": asked | {"call": {"call_id": "c", "path": "p"}},
                "child/stop": asked | {"call_id": "c"},
                "bodies/load": asked | {"ref": {}},
            }.items():
                response = await other.post(f"{place}/{path}", json=body)
                assert (path, response.status_code) == (path, 409)
                assert response.json()["code"] == "lease.lost"
            # The name it gives its worker does not help: another token's worker has another name.
            beat = {"worker_id": "w", "leases": [lease]}
            assert (await other.post("/api/commands/heartbeat", json=beat)).json()["lost"] != []
            report = {"worker_id": "w", "leases": [{"lease": lease, "events": []}]}
            verdicts = (await other.post("/api/events/batch", json=report)).json()["verdicts"]
            assert [each["verdict"] for each in verdicts] == ["refused"]
            assert (await mine.post("/api/commands/heartbeat", json=beat)).json()["lost"] == []
            assert await server.store.execution(execution_id) is not None

    play(scenario, AUTH)


def test_each_lease_of_a_batch_is_authorised_by_itself(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(PLAYBOOK)
        async with (
            server.client(await server.token("operator")) as operator,
            server.client(await server.token("worker", "mine")) as mine,
            server.client(await server.token("worker", "other")) as other,
        ):
            leases = []
            for client in (mine, other):
                await operator.post("/api/executions", json={"path": "p"})
                claimed = await client.post("/api/commands/claim", json={"worker_id": "w"})
                leases.append(claimed.json()["commands"][0]["lease"])
            batch = {"worker_id": "w", "leases": [{"lease": each, "events": []} for each in leases]}
            verdicts = (await mine.post("/api/events/batch", json=batch)).json()["verdicts"]
        by_command = {each["command_id"]: each["verdict"] for each in verdicts}
        assert by_command == {leases[0]["command_id"]: "accepted", leases[1]["command_id"]: "refused"}

    play(scenario, AUTH)


def test_a_worker_cannot_store_a_body_for_another_execution(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(PLAYBOOK)
        async with (
            server.client(await server.token("operator")) as operator,
            server.client(await server.token("worker", "mine")) as mine,
        ):
            await operator.post("/api/executions", json={"path": "p"})
            lease = (await mine.post("/api/commands/claim", json={"worker_id": "w"})).json()["commands"][0][
                "lease"
            ]
            query = {
                "execution_id": lease["execution_id"],
                "epoch": lease["epoch"],
                "key": "noetl://77/stolen",
                "checksum": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            }
            place = f"/api/commands/{lease['command_id']}/bodies"
            response = await mine.post(place, params=query, content=b"")
        assert response.status_code == 422
        assert await server.store.body("noetl://77/stolen") is None

    play(scenario, AUTH)


def test_a_workers_token_cannot_speak_for_a_server(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client(await server.token("worker", "mine")) as mine:
            asked = {"kind": "server", "name": "s"}
            assert (await mine.post("/api/runtime", json=asked)).status_code == 403
            asked = {"kind": "worker", "name": "w", "pool": "default"}
            assert (await mine.post("/api/runtime", json=asked)).json()["name"] == "mine:w"

    play(scenario, AUTH)


def test_the_context_of_a_claimed_command_is_what_the_interpreter_takes(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(PLAYBOOK)
        async with server.client(await server.token("admin")) as client:
            await client.post("/api/executions", json={"path": "p", "payload": {"n": 3}})
            claimed = await client.post("/api/commands/claim", json={"worker_id": "w"})
        context = msgspec.convert(claimed.json()["commands"][0]["context"], Leased, strict=False)
        assert context.workload == {"n": 3}

    play(scenario, AUTH)


# --- where a server may listen without asking -------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_a_server_that_only_this_machine_reaches_needs_no_auth(host: str) -> None:
    check_exposure(ServerOptions(host=host, auth=False))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", "127.0.0.1.example.org"])
def test_a_server_that_others_reach_refuses_to_start_without_auth(host: str) -> None:
    with pytest.raises(UsageError, match="without authentication"):
        check_exposure(ServerOptions(host=host, auth=False))
    check_exposure(ServerOptions(host=host, auth=True))
    check_exposure(ServerOptions(host=host, auth=False, insecure=True))


def test_a_token_that_is_bound_to_pools_takes_work_of_no_other(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(PLAYBOOK)
        bound = (await server.tokens.create("bound", "worker", pools=("gpu", "cpu"))).text
        free = await server.token("worker", "free")
        async with server.client(await server.token("operator")) as operator:
            assert (await operator.post("/api/executions", json={"path": "p"})).status_code == 201
        async with server.client(bound) as client:
            refused = await client.post("/api/commands/claim", json={"worker_id": "w", "pool": "default"})
            assert (refused.status_code, refused.json()["code"]) == (403, "auth.forbidden")
            allowed = await client.post("/api/commands/claim", json={"worker_id": "w", "pool": "gpu"})
            assert (allowed.status_code, allowed.json()["commands"]) == (200, [])
            for pool, status in (("default", 403), ("cpu", 200)):
                body = {"kind": "worker", "name": "w", "pool": pool}
                assert (await client.post("/api/runtime", json=body)).status_code == status
                body = {"kind": "pool", "name": pool}
                assert (await client.post("/api/runtime", json=body)).status_code == status
                assert (await client.delete(f"/api/runtime/pool/{pool}")).status_code == status
            # Nor does work of another pool come along with the answer to a report.
            report = {"worker_id": "w", "leases": [], "pool": "default", "free_slots": 5}
            assert (await client.post("/api/events/batch", json=report)).json()["commands"] == []
        async with server.client(free) as client:
            taken = await client.post("/api/commands/claim", json={"worker_id": "w", "pool": "default"})
            assert len(taken.json()["commands"]) == 1

    play(scenario, AUTH)


def test_pools_are_given_when_a_token_is_made_and_only_to_workers(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client(await server.token("admin")) as client:
            made = await client.post("/api/tokens", json={"name": "a", "role": "worker", "pools": ["gpu"]})
            assert made.json()["token"]["pools"] == ["gpu"]
            for wrong in ({"role": "viewer", "pools": ["gpu"]}, {"role": "worker", "pools": ["a,b"]}):
                refused = await client.post("/api/tokens", json={"name": "b", **wrong})
                assert (refused.status_code, refused.json()["code"]) == (422, "token.invalid")

    play(scenario, AUTH)
