"""How the `nats` kind signs in, keeps its connections, and loses them, on real servers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import nats
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noetl.cli.stack.nats_server import NatsServer, free_port
from noetl.tools import nats as nats_kind
from noetl.tools.addresses import POLICY_KEY, AddressPolicy
from tests.unit.tools.local_context import LocalContext, call
from tests.unit.tools.nats_trials import TOKEN, Play, Scenario, Tried, certificate, started_with, tried

SETTINGS = """
listen: "127.0.0.1:{port}"
max_payload: 65536
jetstream {{ store_dir: "{folder}/data" }}
authorization {{
  users: [
    {{ user: writer, password: "writer-password" }}
    {{ user: reader, password: "reader-password", permissions: {{
      publish: ["$JS.API.STREAM.INFO.>", "$JS.API.DIRECT.GET.>", "$JS.API.STREAM.MSG.GET.>", "asked"]
      subscribe: ["_INBOX.>"] }} }}
    {{ user: deaf, password: "deaf-password", permissions: {{ subscribe: ["nothing"] }} }}
  ]
}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    started = NatsServer(tmp_path_factory.mktemp("nats"), free_port(), TOKEN)
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server with users of different rights, which takes small messages only."""
    started = started_with(tmp_path_factory.mktemp("users"), SETTINGS)
    yield started
    started.stop()


@pytest.fixture
def play(server: NatsServer, tmp_path: Path) -> Play:
    async def played(scenario: Scenario) -> None:
        async with tried(tmp_path, server.url, {"url": server.url}) as about:
            await scenario(about)

    return lambda scenario: asyncio.run(played(scenario))


@pytest.fixture
def play_as(users: NatsServer, tmp_path: Path) -> Callable[[str], Play]:
    """Plays a scenario as one of the users."""
    admin = f"nats://writer:writer-password@127.0.0.1:{users.port}"

    def of(user: str) -> Play:
        auth = {"url": f"127.0.0.1:{users.port}", "user": user, "password": f"{user}-password"}

        async def played(scenario: Scenario) -> None:
            async with tried(tmp_path, admin, {"auth": auth}) as about:
                await about.js.create_key_value(bucket="keys")
                await scenario(about)

        return lambda scenario: asyncio.run(played(scenario))

    return of


# --- logins and rights ------------------------------------------------------------------------------


def test_a_missing_right_is_not_worth_another_attempt(play_as: Callable[[str], Play]) -> None:
    async def scenario(about: Tried) -> None:
        for config in (
            {"operation": "kv_put", "bucket": "keys", "key": "a", "value": 1},
            {"operation": "kv_keys", "bucket": "keys"},
            {"operation": "publish", "subject": "told"},
        ):
            outcome = await about.run(**config)
            assert outcome.error is not None
            assert (outcome.error.kind, outcome.error.retryable) == ("nats.access", False)
            assert outcome.error.message.startswith("the login may not publish to `")
        await (await about.js.key_value("keys")).put("a", b"1")
        assert await about.result("kv_get", bucket="keys", key="a") == 1
        assert await about.error("request", subject="asked") == ("nats.no_responders", True)

    play_as("reader")(scenario)


def test_a_login_that_may_hear_no_answers_is_told_so(play_as: Callable[[str], Play]) -> None:
    async def scenario(about: Tried) -> None:
        assert await about.error("kv_get", bucket="keys", key="a") == ("nats.access", False)
        assert await about.result("publish", subject="told") is None

    play_as("deaf")(scenario)


def test_a_message_that_is_too_large_for_the_server_is_refused(play_as: Callable[[str], Play]) -> None:
    async def scenario(about: Tried) -> None:
        for headers in (None, {"A": "x" * 40_000}):
            value = "x" * (70_000 if headers is None else 40_000)
            refused = await about.error("publish", subject="told", value=value, headers=headers)
            assert refused == ("nats.too_large", False)

    play_as("writer")(scenario)


def test_a_wrong_login_is_refused_and_its_secrets_are_kept(users: NatsServer, tmp_path: Path) -> None:
    address = f"127.0.0.1:{users.port}"

    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            for config, secret in (
                ({"auth": {"url": address, "user": "writer", "password": "not-the-one"}}, "not-the-one"),
                ({"url": f"nats://writer:not%2Fthis@{address}"}, "not/this"),
                ({"url": address, "auth": {"token": "no-such-token"}}, "no-such-token"),
            ):
                task = call("nats", {"operation": "publish", "subject": "a", **config})
                outcome = await nats_kind.run(task, context)
                assert outcome.error is not None
                assert (outcome.error.kind, outcome.error.retryable) == ("nats.access", False)
                assert outcome.error.message == f"{address} does not take the login"
                assert secret in context.secrets

    asyncio.run(scenario())


@pytest.mark.parametrize("entry", ["fields", "address", "token"])
def test_a_credential_may_be_fields_an_address_or_a_token(
    server: NatsServer, tmp_path: Path, entry: str
) -> None:
    bare = f"nats://127.0.0.1:{server.port}"
    credential, config = {
        "fields": ({"url": bare, "token": TOKEN}, {"url": "nats://elsewhere.invalid"}),
        "address": ({"value": server.url}, {}),
        "token": ({"value": TOKEN}, {"url": bare}),
    }[entry]

    async def scenario() -> None:
        async with LocalContext(tmp_path, credentials={"main": credential}) as context:
            task = call("nats", {"operation": "publish", "subject": "a", "auth": "main", **config})
            assert (await nats_kind.run(task, context)).error is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("config", "kind", "said"),
    [
        ({}, "config.invalid", "there is no server"),
        ({"url": "ws://127.0.0.1"}, "config.invalid", "`url` is not the address of a NATS server"),
        ({"url": "nats://127.0.0.1:port"}, "config.invalid", "`url` is not the address of a NATS server"),
        ({"url": "nats://169.254.169.254"}, "nats.address_refused", "may not connect to"),
        ({"url": "nats://[fe80::1]:1"}, "nats.address_refused", "may not connect to"),
        ({"url": "a", "auth": {"user": "me"}}, "config.invalid", "both `user` and `password`"),
        ({"url": "a", "auth": {"creds": "no such file"}}, "config.invalid", "not the text of a credentials"),
        ({"url": "a", "auth": {"nkey": "SUAAAAAA"}}, "config.invalid", "not the seed of a user"),
        ({"url": "a", "auth": "unknown"}, "noetl.error", "no credential `unknown`"),
        ({"url": "nats://nowhere.invalid"}, "nats.connection", "the host name cannot be resolved"),
    ],
)
def test_a_server_or_login_that_cannot_be_used_is_named(
    tmp_path: Path, config: dict[str, Any], kind: str, said: str
) -> None:
    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            task = call("nats", {"operation": "publish", "subject": "a", **config})
            outcome = await nats_kind.run(task, context)
            assert outcome.error is not None
            assert outcome.error.kind == kind
            assert outcome.error.retryable == (kind == "nats.connection")
            assert said in outcome.error.message

    asyncio.run(scenario())


def test_the_operator_decides_where_tasks_may_connect_to(server: NatsServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            context.made[POLICY_KEY] = AddressPolicy(deny=("127.0.0.0/8",))
            task = call("nats", {"operation": "publish", "subject": "a", "url": server.url})
            outcome = await nats_kind.run(task, context)
            assert outcome.error is not None
            assert (outcome.error.kind, outcome.error.retryable) == ("nats.address_refused", False)

    asyncio.run(scenario())


# --- connections ------------------------------------------------------------------------------------


def test_calls_with_the_same_login_share_connections(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        async def own_connections() -> int:
            pools = [made for key, made in about.context.made.items() if key.startswith("nats:")]
            assert len(pools) == 1
            return len(pools[0]._idle)

        for _ in range(3):
            await about.done("publish", subject="a")
        assert await own_connections() == 1
        await asyncio.gather(*(about.done("publish", subject="a") for _ in range(40)))
        assert 1 <= await own_connections() <= 16

    play(scenario)


def test_of_several_servers_the_first_that_answers_is_taken(server: NatsServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            url = f"nats://127.0.0.1:{free_port()},nats://169.254.169.254,{server.url}"
            task = call("nats", {"operation": "publish", "subject": "a", "url": url})
            assert (await nats_kind.run(task, context)).error is None

    asyncio.run(scenario())


def test_a_lost_connection_ends_the_call_at_once_and_the_next_one_has_another(tmp_path: Path) -> None:
    lost = NatsServer(tmp_path / "nats", free_port(), TOKEN)
    lost.start()

    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            base = {"subject": "asked", "url": lost.url}
            client = await nats.connect(lost.url, allow_reconnect=False)
            heard = await client.subscribe("asked")
            await client.flush()
            asking = call("nats", {"operation": "request", **base}, spec={"timeout": 60})
            running = asyncio.create_task(nats_kind.run(asking, context))
            await heard.next_msg(timeout=10)
            assert await asyncio.to_thread(lost.stop)
            broken = await asyncio.wait_for(running, 10)
            assert broken.error is not None
            assert (broken.error.kind, broken.error.retryable) == ("nats.connection", True)
            await client.close()

            down = await nats_kind.run(call("nats", {"operation": "publish", **base}), context)
            assert down.error is not None
            assert (down.error.kind, down.error.retryable) == ("nats.connection", True)
            assert TOKEN not in down.error.message

            await asyncio.to_thread(lost.start)
            again = await nats_kind.run(call("nats", {"operation": "publish", **base}), context)
            assert again.error is None

    try:
        asyncio.run(scenario())
    finally:
        lost.stop()


def test_a_cancelled_call_closes_its_connection(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        heard = await about.client.subscribe("asked")
        await about.client.flush()
        asking = asyncio.create_task(about.run("request", subject="asked"))
        await heard.next_msg(timeout=10)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await heard.unsubscribe()

    play(scenario)


def test_a_server_without_tls_is_told_nothing_where_tls_is_asked_for(
    server: NatsServer, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            url = f"tls://{TOKEN}@127.0.0.1:{server.port}"
            task = call("nats", {"operation": "publish", "subject": "a", "url": url})
            outcome = await nats_kind.run(task, context)
            assert outcome.error is not None
            assert (outcome.error.kind, outcome.error.retryable) == ("nats.tls", False)

    asyncio.run(scenario())


def test_a_certificate_is_checked_against_the_name_of_the_server(tmp_path: Path) -> None:
    ca = certificate(tmp_path)
    tls = 'listen: "127.0.0.1:{port}"\ntls {{ cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem" }}'
    secure = started_with(tmp_path, tls)

    async def tried_with(host: str, **fields: str) -> str | None:
        async with LocalContext(tmp_path) as context:
            auth = {"url": f"tls://{host}:{secure.port}", **fields}
            task = call("nats", {"operation": "publish", "subject": "a", "auth": auth})
            error = (await nats_kind.run(task, context)).error
            return None if error is None else error.kind

    try:
        assert asyncio.run(tried_with("localhost", ca=ca)) is None
        assert asyncio.run(tried_with("localhost")) == "nats.tls"
        assert asyncio.run(tried_with("127.0.0.1", ca=ca)) == "nats.tls"
    finally:
        secure.stop()


def seed_of_a_user() -> str:
    raw = bytes([0x95, 0]) + bytes(range(32))
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


SEED = seed_of_a_user()


def test_a_signed_login_without_its_library_says_what_to_install(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nkeys", None)

    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            auth = {"url": f"127.0.0.1:{server.port}", "nkey": SEED}
            task = call("nats", {"operation": "publish", "subject": "a", "auth": auth})
            outcome = await nats_kind.run(task, context)
            assert outcome.error is not None
            assert outcome.error.kind == "tool.not_installed"
            assert "`nats-py[nkeys]`" in outcome.error.message
            assert context.secrets == [SEED]

    asyncio.run(scenario())


def test_without_the_client_library_a_task_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("noetl.tools.nats_")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("nats", "nats.errors", "nats.js", "nats.aio", "nats.aio.client"):
        monkeypatch.setitem(sys.modules, name, None)

    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            outcome = await nats_kind.run(call("nats", {"operation": "publish", "subject": "a"}), context)
            assert outcome.error is not None
            assert (outcome.error.kind, outcome.error.retryable) == ("tool.not_installed", False)
            assert "install `noetl[nats]`" in outcome.error.message

    asyncio.run(scenario())


class SigningKey:
    """What the client library needs of `nkeys`, which comes without a wheel: a real signature by the seed."""

    def __init__(self, seed: bytes) -> None:
        raw = base64.b32decode(seed + b"=" * (-len(seed) % 8))
        self._key = Ed25519PrivateKey.from_private_bytes(raw[2:34])

    @property
    def public_key(self) -> bytes:
        body = bytes([20 << 3]) + self._key.public_key().public_bytes_raw()
        return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).rstrip(b"=")

    def sign(self, nonce: bytes) -> bytes:
        return self._key.sign(nonce)

    def wipe(self) -> None:
        pass


def test_a_login_may_be_a_signed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nkeys = ModuleType("nkeys")
    nkeys.from_seed = SigningKey  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nkeys", nkeys)
    public = SigningKey(SEED.encode()).public_key.decode()
    settings = 'listen: "127.0.0.1:{port}"\nauthorization {{ users: [ {{ nkey: PUBLIC }} ] }}'
    signed = started_with(tmp_path, settings.replace("PUBLIC", public))

    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            auth = {"url": f"127.0.0.1:{signed.port}", "nkey": SEED}
            task = call("nats", {"operation": "publish", "subject": "a", "auth": auth})
            assert (await nats_kind.run(task, context)).error is None

    try:
        asyncio.run(scenario())
    finally:
        signed.stop()
