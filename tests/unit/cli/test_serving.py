"""A server as it is put together: on SQLite alone, with and without a master key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from noetl.cli.environment import settings_from_environment
from noetl.cli.serving import Wanted, made
from noetl.errors import UsageError
from noetl.secrets.encryption import KeyRing, MasterKey
from noetl.server.app import Api
from noetl.server.options import ServerOptions

SECRET = "quiet-magpie-4711"
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: tests/p}
keychain: [{name: token, kind: env, var: SHOP_TOKEN}]
workflow:
  - step: start
    tool: {kind: noop, args: {token: "{{ keychain.token }}"}}
    next: {arcs: [{step: end, args: {token: "{{ keychain.token }}"}}]}
"""
ASKED = {"path": "tests/p", "secrets": {"SHOP_TOKEN": SECRET, "OTHER": "x"}}
Scenario = Callable[[Api, httpx.AsyncClient], Awaitable[None]]


def wanted(folder: Path, keys: KeyRing | None = None, **options: Any) -> Wanted:
    return Wanted(
        options=ServerOptions(auth=False, requests_per_second=0, **options),
        store=f"sqlite:///{folder}/own.db",
        nats=None,
        keys=keys,
        key_file=folder / "keys",
        folder=folder / "files",
        keychain_folder=folder / "files",
        environment={"NOETL_SECRET": "never-for-playbooks"},
    )


def play(told: Wanted, scenario: Scenario) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30), made(told) as app:
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                await scenario(app, client)

    asyncio.run(whole())


async def registered(client: httpx.AsyncClient) -> None:
    assert (await client.post("/api/catalog", json={"source": PLAYBOOK})).status_code == 201


def test_sessions_lie_in_the_store_where_there_is_no_nats(tmp_path: Path) -> None:
    async def scenario(app: Api, client: httpx.AsyncClient) -> None:
        opened = (await client.post("/api/sessions", json={"user_id": 3})).json()
        found = (await client.post("/api/sessions/validate", json={"token": opened["token"]})).json()
        assert found == opened["session"]
        listed = (await client.get("/api/sessions", params={"user_id": 3})).json()["sessions"]
        assert listed == [found]
        ended = await client.post("/api/sessions/invalidate", json={"token": opened["token"]})
        assert ended.json() == {"ended": True}
        assert (await client.get("/api/sessions", params={"user_id": 3})).json() == {"sessions": []}

    play(wanted(tmp_path), scenario)


@pytest.mark.parametrize("keys", [None, KeyRing([MasterKey.random()])], ids=["no master key", "a master key"])
def test_an_execution_has_what_its_caller_sent_and_tells_it_to_nobody(
    tmp_path: Path, keys: KeyRing | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(app: Api, client: httpx.AsyncClient) -> None:
        await registered(client)
        unsent = (await client.post("/api/executions", json={"path": "tests/p"})).json()["execution_id"]
        failed = (await client.get(f"/api/executions/{unsent}")).json()
        assert failed["error"]["kind"] == "keychain.unresolved"
        started = await client.post("/api/executions", json=ASKED)
        assert started.status_code == 201
        assert SECRET not in started.text
        execution_id = started.json()["execution_id"]
        for path in ("", "/events", "/steps", "/graph"):
            shown = await client.get(f"/api/executions/{execution_id}{path}")
            assert (shown.status_code, SECRET in shown.text) == (200, False)
        (leased,) = (
            await client.post("/api/commands/claim", json={"pool": "default", "worker_id": "w", "limit": 1})
        ).json()["commands"]
        kept = await client.post(
            f"/api/commands/{leased['lease']['command_id']}/keychain", json={"lease": leased["lease"]}
        )
        assert kept.json() == {"entries": {"token": SECRET}}

    with capture_logs() as lines, caplog.at_level("DEBUG"):
        play(wanted(tmp_path, keys), scenario)
    assert SECRET not in f"{lines} {caplog.text}"
    assert ("in memory only" in caplog.text) is (keys is None)


def test_another_server_with_the_same_key_can_go_on_and_one_without_says_what_it_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys, started = KeyRing([MasterKey.random()]), []

    async def begin(app: Api, client: httpx.AsyncClient) -> None:
        await registered(client)
        started.append((await client.post("/api/executions", json=ASKED)).json()["execution_id"])

    async def go_on(app: Api, client: httpx.AsyncClient) -> None:
        live = await app.parts.control.open(started[0])
        await app.parts.control._with_keychain(live)
        assert live.keychain == {"token": SECRET}

    async def cannot(app: Api, client: httpx.AsyncClient) -> None:
        claim = {"pool": "default", "worker_id": "w", "limit": 1}
        answer = await client.post("/api/commands/claim", json=claim)
        assert answer.json() == {"commands": []}

    play(wanted(tmp_path, keys), begin)
    play(wanted(tmp_path, keys), go_on)
    with caplog.at_level("WARNING", "noetl.control"):
        play(wanted(tmp_path), cannot)
    assert "`SHOP_TOKEN` is not set" in caplog.text


def test_a_secret_that_is_no_text_or_too_long_is_refused_without_being_shown(tmp_path: Path) -> None:
    async def scenario(app: Api, client: httpx.AsyncClient) -> None:
        await registered(client)
        for secrets in ({"A": 12345678}, {"A": SECRET * 10_000}, {"": SECRET}, [SECRET]):
            refused = await client.post("/api/executions", json={"path": "tests/p", "secrets": secrets})
            assert refused.status_code == 422
            assert SECRET not in refused.text
            assert "12345678" not in refused.text

    play(wanted(tmp_path), scenario)


def test_credentials_are_rotated_over_http(tmp_path: Path) -> None:
    before, after = MasterKey.random(), MasterKey.random()

    async def keep(app: Api, client: httpx.AsyncClient) -> None:
        draft = {"name": "pg", "type": "postgres", "data": {"password": SECRET}}
        assert (await client.post("/api/credentials", json=draft)).status_code == 200

    async def rotate(app: Api, client: httpx.AsyncClient) -> None:
        done = (await client.post("/api/credentials/rotate")).json()
        assert done == {"key_id": after.key_id, "rewrapped": 1, "unreadable": []}
        shown = await client.get("/api/credentials/pg", params={"include_data": "true"})
        assert shown.json()["data"] == {"password": SECRET}

    async def without(app: Api, client: httpx.AsyncClient) -> None:
        assert (await client.post("/api/credentials/rotate")).status_code == 501

    play(wanted(tmp_path, KeyRing([before])), keep)
    play(wanted(tmp_path, KeyRing([after, before])), rotate)
    play(wanted(tmp_path), without)


def test_how_long_executions_are_kept_is_a_setting() -> None:
    assert settings_from_environment({}).retention_days is None
    assert settings_from_environment({"NOETL_RETENTION_DAYS": "30"}).retention_days == 30
    with pytest.raises(UsageError, match="NOETL_RETENTION_DAYS"):
        settings_from_environment({"NOETL_RETENTION_DAYS": "0"})
