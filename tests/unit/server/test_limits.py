"""What a server refuses before it does anything: too large, too often, too old, not understood."""

from __future__ import annotations

import httpx
import pytest

from noetl.records.report import PROTOCOL
from noetl.registry.tokens import Token
from noetl.server.options import ServerOptions
from noetl.server.rates import Rates
from noetl.server.serving import configured
from tests.contract.control.replicas import Replica
from tests.unit.server.conftest import Play


class HandClock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def test_a_bucket_empties_and_fills_again() -> None:
    clock = HandClock()
    rates = Rates(10.0, 3, clock)
    assert [rates.wait_of("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert rates.wait_of("a") == pytest.approx(0.1)
    assert rates.wait_of("b") == 0.0
    clock.at += 0.1
    assert rates.wait_of("a") == 0.0
    assert rates.wait_of("a") > 0.0
    clock.at += 60
    assert [rates.wait_of("a") for _ in range(4)][:3] == [0.0, 0.0, 0.0]


def test_a_rate_of_nought_is_no_limit() -> None:
    rates = Rates(0.0, 1, HandClock())
    assert [rates.wait_of("a") for _ in range(100)] == [0.0] * 100


def test_who_asks_too_often_is_told_when_to_go_on(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client(await server.token("viewer")) as client:
            statuses = [(await client.get("/api/catalog")).status_code for _ in range(4)]
            refused = await client.get("/api/catalog")
            # What a load balancer asks is not counted.
            assert (await client.get("/api/health")).status_code == 200
        assert statuses[:2] == [200, 200]
        assert statuses[-1] == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["code"] == "rate.exceeded"

    play(scenario, ServerOptions(requests_per_second=0.01, request_burst=2))


def test_guessing_tokens_is_counted_by_address(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client("noetl_" + "x" * 43) as client:
            statuses = [(await client.get("/api/catalog")).status_code for _ in range(4)]
        assert statuses == [401, 401, 429, 429]

    play(scenario, ServerOptions(requests_per_second=0.01, request_burst=2))


def counted(server: Replica, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every token that the registry is asked about from now on."""
    asked: list[str] = []
    verify = server.tokens.verify

    async def counting(text: str) -> Token | None:
        asked.append(text)
        return await verify(text)

    monkeypatch.setattr(server.tokens, "verify", counting)
    return asked


def test_whoever_guesses_too_often_is_refused_before_the_database_is_asked(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Replica) -> None:
        asked = counted(server, monkeypatch)
        for number in range(5):
            async with server.client("noetl_" + str(number) * 43) as client:
                await client.get("/api/catalog")
        assert len(asked) == 2

    play(scenario, ServerOptions(requests_per_second=0.01, request_burst=2))


def test_a_good_token_is_not_counted_as_a_guess_and_one_in_use_goes_on_while_others_guess(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        good = [await server.token("viewer", f"viewer{number}") for number in range(4)]
        for each in good[:3]:
            async with server.client(each) as client:
                assert (await client.get("/api/catalog")).status_code == 200
        async with server.client("noetl_" + "x" * 43) as client:
            statuses = [(await client.get("/api/catalog")).status_code for _ in range(3)]
        assert statuses == [401, 401, 429]
        async with server.client(good[0]) as client:
            assert (await client.get("/api/catalog")).status_code == 200
        async with server.client(good[3]) as client:
            assert (await client.get("/api/catalog")).status_code == 429

    play(scenario, ServerOptions(requests_per_second=0.01, request_burst=2))


def test_another_address_in_a_header_does_not_make_another_caller(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        config = configured(server.app)
        config.load()
        transport = httpx.ASGITransport(app=config.loaded_app, client=("127.0.0.1", 5))
        statuses = []
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8082") as client:
            for number in range(4):
                headers = {
                    "Authorization": "Bearer noetl_" + str(number) * 43,
                    "X-Forwarded-For": f"192.0.2.{number}",
                }
                statuses.append((await client.get("/api/catalog", headers=headers)).status_code)
        assert statuses == [401, 401, 429, 429]

    play(scenario, ServerOptions(requests_per_second=0.01, request_burst=2))


def test_a_body_that_is_too_large_is_refused(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            response = await client.post("/api/catalog", json={"source": "x" * 5_000})
            assert response.status_code == 413
            assert response.json()["code"] == "request.too_large"
            # A worker's report may be larger.
            report = {"worker_id": "w" * 5_000, "leases": []}
            assert (await client.post("/api/events/batch", json=report)).status_code == 200
            report = {"worker_id": "w" * 50_000, "leases": []}
            assert (await client.post("/api/events/batch", json=report)).status_code == 413

    play(scenario, ServerOptions(auth=False, max_body_bytes=1_000, max_report_bytes=10_000))


@pytest.mark.parametrize(("spoken", "admitted"), [(-1, True), (0, True), (1, True), (2, False), (9, False)])
def test_a_worker_two_versions_of_the_protocol_away_is_refused(
    play: Play, spoken: int, admitted: bool
) -> None:
    protocol = PROTOCOL + spoken

    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            claim = await client.post("/api/commands/claim", json={"worker_id": "w", "protocol": protocol})
            report = await client.post(
                "/api/events/batch", json={"worker_id": "w", "leases": [], "protocol": protocol}
            )
            header = await client.get("/api/catalog", headers={"Noetl-Protocol": str(protocol)})
        for response in (claim, report, header):
            assert (response.status_code == 200) is admitted
            if not admitted:
                assert response.status_code == 426
                assert response.json()["code"] == "worker.protocol"
                assert "upgrade" in response.json()["detail"]

    play(scenario)


def test_a_worker_that_is_newer_may_say_what_the_server_does_not_know(play: Play) -> None:
    lease = {"command_id": "7.1", "execution_id": "7", "epoch": 1, "colour": "red"}

    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            claim = {"worker_id": "w", "mood": "good"}
            assert (await client.post("/api/commands/claim", json=claim)).status_code == 200
            beat = {"worker_id": "w", "leases": [lease], "load": 0.5}
            assert (await client.post("/api/commands/heartbeat", json=beat)).status_code == 200
            asked = await client.post("/api/commands/7.1/keychain", json={"lease": lease, "why": "?"})
            assert asked.json()["code"] in ("lease.lost", "execution.unknown")
            runtime = {"kind": "worker", "name": "w", "pool": "p", "cores": 4}
            assert (await client.post("/api/runtime", json=runtime)).status_code == 200

    play(scenario)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/none", None, 404, "route.unknown"),
        ("GET", "/other", None, 404, "route.unknown"),
        ("PUT", "/api/executions", None, 405, "method.unknown"),
        ("POST", "/api/executions", b"{", 400, "request.malformed"),
        ("POST", "/api/executions", b'{"path": 1}', 422, "request.invalid"),
        ("POST", "/api/executions", b'{"path": "p", "surprise": 1}', 422, "request.invalid"),
        ("POST", "/api/executions", b'{"path": "p", "playbook_id": "p"}', 422, "request.invalid"),
        ("POST", "/api/executions", b'{"playbook_id": "p@x"}', 422, "request.invalid"),
        ("POST", "/api/executions", b'{"path": "p"}', 404, "playbook.unknown"),
        ("GET", "/api/executions?limit=0", None, 422, "request.invalid"),
        ("GET", "/api/executions?cursor=!!", None, 422, "request.invalid"),
        ("GET", "/api/executions?since=yesterday", None, 422, "request.invalid"),
        ("GET", "/api/executions/abc", None, 422, "request.invalid"),
        ("GET", "/api/executions/1", None, 404, "execution.unknown"),
        ("GET", "/api/executions/1/events", None, 404, "execution.unknown"),
        ("POST", "/api/executions/1/cancel", None, 404, "execution.unknown"),
        ("POST", "/api/executions/1/retry", None, 404, "execution.unknown"),
        ("GET", "/api/catalog/entry?path=p", None, 404, "playbook.unknown"),
        ("GET", "/api/vars/1/x", None, 404, "execution.unknown"),
        ("GET", "/api/results/1/x", None, 404, "result.unknown"),
        ("GET", "/api/credentials/x", None, 404, "credential.unknown"),
        ("DELETE", "/api/tokens/x", None, 404, "token.unknown"),
        ("POST", "/api/tokens", b'{"name": "1 x", "role": "viewer"}', 422, "token.invalid"),
        ("POST", "/api/sessions/validate", b'{"token": "x"}', 404, "session.unknown"),
    ],
)
def test_every_error_is_a_problem_with_its_code(
    play: Play, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            headers = {"Content-Type": "application/json", "X-Request-Id": "asked-7"}
            response = await client.request(method, path, content=body, headers=headers)
        assert response.headers["content-type"] == "application/problem+json"
        problem = response.json()
        assert (response.status_code, problem["status"], problem["code"]) == (status, status, code)
        assert problem["title"]
        assert problem["instance"] == response.headers["x-request-id"] == "asked-7"

    play(scenario)


def test_a_request_says_which_field_does_not_fit(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            response = await client.post(
                "/api/events/batch", json={"worker_id": "w", "leases": [{"lease": {"epoch": "1"}}]}
            )
        (error,) = response.json()["errors"]
        assert error["source"] == "body"
        assert error["field"] == "leases[0].lease.epoch"
        assert "int" in error["message"]

    play(scenario)


def test_what_goes_wrong_inside_is_not_told_outside(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: Replica) -> None:
        async def broken(**about: object) -> list[object]:
            raise ValueError("the password is sesame")

        monkeypatch.setattr(server.store, "executions", broken)
        async with server.client() as client:
            response = await client.get("/api/executions")
        assert response.status_code == 500
        assert response.json()["code"] == "server.fault"
        assert "sesame" not in response.text

    play(scenario)


# --- browsers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:8082"},
        {"Host": ""},
    ],
)
def test_a_page_of_another_site_cannot_use_a_server_without_tokens(
    play: Play, headers: dict[str, str]
) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client(**{"Host": "127.0.0.1:8082", **headers}) as client:
            for response in (
                await client.get("/api/executions"),
                await client.post("/api/executions/1/cancel"),
            ):
                assert (response.status_code, response.json()["code"]) == (403, "auth.forbidden")

    play(scenario)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:8082"},
        {"Host": "[::1]:8082"},
        {"Host": "localhost:8082", "Origin": "http://localhost:8082", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_the_servers_own_page_can_use_it(play: Play, headers: dict[str, str]) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client(**{"Host": "127.0.0.1:8082", **headers}) as client:
            assert (await client.get("/api/executions")).status_code == 200

    play(scenario)


def test_a_body_that_does_not_say_it_is_json_is_not_read(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with server.client() as client:
            for kind in ("text/plain", "application/x-www-form-urlencoded"):
                headers = {"Content-Type": kind}
                response = await client.post("/api/executions", content=b'{"path": "p"}', headers=headers)
                assert (response.status_code, response.json()["code"]) == (415, "request.media_type")

    play(scenario)
