"""The user that workers have at NATS: enough to be woken and to keep results, and no way to sessions."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.bus.kv import NatsKeyValue
from noetl.bus.nats import NatsBus
from noetl.bus.nats_connection import NatsConnection, NatsDownError
from noetl.cli.stack.nats_server import WORKERS_PUBLISH, WORKERS_SUBSCRIBE, NatsServer, free_port, nats_binary
from noetl.registry.sessions import BUCKET
from noetl.results.nats_objects import NatsObjectBodies

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"), free_port(), "of_servers", "of_workers")
    server.start()
    yield server
    server.stop()


async def connected(url: str) -> NatsConnection:
    connection = NatsConnection(url)
    assert await connection.open()
    return connection


def test_a_worker_is_woken_and_keeps_results_with_a_user_of_its_own(nats: NatsServer) -> None:
    async def scenario() -> tuple[bool, bytes]:
        servers, workers = await connected(nats.url), await connected(nats.worker_url)
        telling, woken = NatsBus(servers), NatsBus(workers)
        try:
            await telling.publish("default", ["7"])
            await telling.sent()
            heard = await woken.wait("default", 10.0)
            bodies = NatsObjectBodies(workers.jetstream)
            body = b"x" * 300_000
            ref = await bodies.put("7", body, media_type="text/plain", store=None)
            assert (await NatsObjectBodies(servers.jetstream).get(ref)) == body
            return heard, await bodies.get(ref)
        finally:
            for bus in (telling, woken):
                await bus.close()
            for connection in (servers, workers):
                await connection.close()

    heard, body = asyncio.run(scenario())
    assert heard
    assert len(body) == 300_000


def test_a_worker_can_neither_read_nor_write_sessions(nats: NatsServer) -> None:
    async def scenario() -> tuple[list[str], Any]:
        servers, workers = await connected(nats.url), await connected(nats.worker_url)
        refused: list[str] = []
        try:
            kept = NatsKeyValue(servers, BUCKET)
            await kept.put("noetl.sessions.a", b"secret", 60.0)
            client = workers.client
            for subject in (
                f"$KV.{BUCKET}.noetl.sessions.a",
                f"$JS.API.STREAM.INFO.KV_{BUCKET}",
                f"$JS.API.DIRECT.GET.KV_{BUCKET}.$KV.{BUCKET}.noetl.sessions.a",
                f"$JS.API.STREAM.MSG.GET.KV_{BUCKET}",
                f"$JS.API.CONSUMER.CREATE.KV_{BUCKET}",
                f"$JS.API.STREAM.DELETE.KV_{BUCKET}",
                "$JS.API.STREAM.UPDATE.noetl_work",
                "$JS.API.STREAM.CREATE.another",
            ):
                with pytest.raises(TimeoutError):
                    await client.request(subject, b"forged", timeout=0.2)
                refused.append(str(client.last_error))
            with pytest.raises((TimeoutError, NatsDownError)):
                await asyncio.wait_for(NatsKeyValue(workers, BUCKET).get("noetl.sessions.a"), 0.3)
            return refused, await kept.get("noetl.sessions.a")
        finally:
            for connection in (servers, workers):
                await connection.close()

    refused, found = asyncio.run(scenario())
    assert all("permissions violation for publish" in each.lower() for each in refused), refused
    assert found is not None
    assert found[0] == b"secret"


def test_the_settings_for_a_deployment_give_workers_the_same_rights(tmp_path: Path) -> None:
    shown = (ROOT / "docs" / "how-to" / "deploy.md").read_text("utf-8")
    settings = (ROOT / "deploy" / "nats.conf").read_text("utf-8")
    users = settings[settings.index("authorization {") :]
    assert users in shown
    assert [each for each in (*WORKERS_PUBLISH, *WORKERS_SUBSCRIBE) if f'"{each}"' not in users] == []
    assert users.count('"') == 2 * len((*WORKERS_PUBLISH, *WORKERS_SUBSCRIBE))
    checked = subprocess.run(
        [nats_binary(), "-t", "-c", ROOT / "deploy" / "nats.conf"],
        env={"NATS_TOKEN": "of_servers", "NATS_WORKER_TOKEN": "of_workers"},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert checked.returncode == 0, checked.stderr
