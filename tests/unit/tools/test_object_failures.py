"""What goes wrong with buckets, and where their client may not connect to."""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from noetl.tools import object_buckets
from noetl.tools.addresses import POLICY_KEY, AddressPolicy
from noetl.tools.object_gate import Gate
from tests.unit.tools.s3_service import KEY, PEM, Scenario, kind_of, play


@pytest.fixture
def on_s3(tmp_path: Path) -> Callable[[Scenario], None]:
    return partial(play, tmp_path)


def test_a_missing_library_is_named(on_s3, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "noetl.tools.object_buckets", None)

    async def scenario(service, context, ask) -> None:
        outcome = await ask("get", key="a")
        assert kind_of(outcome) == ("tool.not_installed", False)
        assert "noetl[objects]" in outcome.error.message

    on_s3(scenario)


def test_an_answer_is_named_and_only_what_may_pass_is_retryable(on_s3) -> None:
    answers = {
        400: ("object.refused", False),
        401: ("object.denied", False),
        403: ("object.denied", False),
        404: ("object.missing", False),
        409: ("object.refused", False),
        503: ("object.unavailable", True),
    }

    async def scenario(service, context, ask) -> None:
        for status, named in answers.items():
            service.failing = [status] * 3
            outcome = await ask("get", key="a")
            assert kind_of(outcome) == named
            assert outcome.error.details["status"] == status
            service.failing = []
        service.failing = [429] * 3
        assert kind_of(await ask("put", key="a", body="x")) == ("object.unavailable", True)

    on_s3(scenario)


def test_a_missing_bucket_is_told_also_where_something_is_deleted_from_it(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        for operation, config in {
            "get": {"key": "a"},
            "delete": {"key": "a"},
            "list": {"prefix": ""},
        }.items():
            outcome = await ask(operation, bucket="nobucket", **config)
            assert kind_of(outcome) == ("object.missing", False)
            assert "bucket" in outcome.error.message

    on_s3(scenario)


def test_a_trouble_that_passes_at_once_is_not_seen(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        service.buckets["lake"]["a.txt"] = (b"x", "text/plain")
        service.failing = [503]
        assert (await ask("get", key="a.txt")).result == "x"

    on_s3(scenario)


def test_a_store_that_cannot_be_reached_is_told_and_may_be_tried_again(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        for scheme in ("http", "https"):
            outcome = await ask("get", key="a", endpoint=f"{scheme}://127.0.0.1:{unused_port()}")
            assert kind_of(outcome) == ("object.connection", True)
        unknown = await ask("get", key="a", endpoint="http://no-such-host.invalid")
        assert kind_of(unknown) == ("object.connection", True)

    on_s3(scenario)


def test_a_store_that_falls_silent_is_given_up(on_s3, monkeypatch) -> None:
    monkeypatch.setattr(object_buckets, "READ_SECONDS", 0.2)

    async def scenario(service, context, ask) -> None:
        assert kind_of(await ask("get", key="stalling")) == ("timeout", True)

    on_s3(scenario)


def test_a_certificate_that_nobody_vouches_for_is_not_accepted(on_s3, tmp_path: Path) -> None:
    async def scenario(service, context, ask) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certified(tmp_path / "server.pem"))
        async with TestServer(web.Application()) as server:
            listening = await asyncio.get_running_loop().create_server(
                server.handler, "127.0.0.1", 0, ssl=tls
            )
            port = listening.sockets[0].getsockname()[1]
            outcome = await ask("get", key="a", endpoint=f"https://localhost:{port}")
            listening.close()
        assert kind_of(outcome) == ("object.tls", False)

    on_s3(scenario)


def certified(path: Path) -> Path:
    """A key and a certificate of its own making."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(KEY, hashes.SHA256())
    )
    path.write_bytes(PEM.encode() + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://169.254.169.254",
        "https://169.254.169.254",
        "http://[fe80::1]",
        "http://0xA9FEA9FE",
        "http://[::ffff:169.254.169.254]",
    ],
)
def test_endpoints_at_metadata_and_link_local_addresses_are_refused(on_s3, endpoint: str) -> None:
    async def scenario(service, context, ask) -> None:
        outcome = await ask("get", key="a", endpoint=endpoint)
        assert kind_of(outcome) == ("object.address_refused", False)
        assert not [name for name in context.made if name.startswith("object:")]

    on_s3(scenario)


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest", "https://169.254.169.254/latest"])
def test_a_redirect_leads_to_no_address_that_is_refused(on_s3, monkeypatch, target: str) -> None:
    monkeypatch.setenv("NO_PROXY", "*")  # would lead around the gate, if the client listened to it

    async def scenario(service, context, ask) -> None:
        service.redirect_to = target
        assert kind_of(await ask("get", key="a")) == ("object.address_refused", False)
        gate: Gate = context.made["object:gate"]
        assert gate._serving

    on_s3(scenario)


def test_many_calls_at_once_share_a_client_and_leave_no_connection_behind(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        await ask(
            "put", key="first", body=""
        )  # the context of these tests makes what is shared once, if asked once
        puts = [ask("put", key=f"{number}.json", body={"number": number}) for number in range(30)]
        assert {outcome.status for outcome in await asyncio.gather(*puts)} == {"ok"}
        found = await asyncio.gather(*(ask("get", key=f"{number}.json") for number in range(30)))
        assert [outcome.result for outcome in found] == [{"number": number} for number in range(30)]
        gate: Gate = context.made["object:gate"]
        assert gate._serving
        await gate.close()
        assert not gate._serving

    on_s3(scenario)


def test_what_the_operator_closes_is_closed_to_buckets_too(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        context.made[POLICY_KEY] = AddressPolicy(deny=("127.0.0.0/8",))
        assert kind_of(await ask("get", key="a")) == ("object.address_refused", False)
        assert service.asked == []

    on_s3(scenario)


def test_the_gate_itself_judges_each_connection_and_serves_only_who_knows_its_password(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        await ask("get", key="a")
        gate: Gate = context.made["object:gate"]
        port = int(gate.url.rpartition(":")[2])
        password = base64.b64encode(gate.url.split("//")[1].partition("@")[0].encode()).decode()

        async def answer(line: str, *headers: str) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write("\r\n".join([line, *headers, "", ""]).encode())
            text = (await reader.read()).decode()
            writer.close()
            return text.partition("\r\n")[0]

        asked = len(service.asked)
        target = service.endpoint.rstrip("/")
        assert await answer(f"GET {target}/open/a HTTP/1.1") == "HTTP/1.1 407 Proxy Authentication Required"
        wrong = "Proxy-Authorization: Basic bm9ldGw6eA=="
        assert (
            await answer(f"GET {target}/open/a HTTP/1.1", wrong)
            == "HTTP/1.1 407 Proxy Authentication Required"
        )
        known = f"Proxy-Authorization: Basic {password}"
        assert await answer("CONNECT 169.254.169.254:443 HTTP/1.1", known) == "HTTP/1.1 403 Forbidden"
        assert await answer("GET http://169.254.169.254/ HTTP/1.1", known) == "HTTP/1.1 403 Forbidden"
        assert await answer("nonsense", known) == "HTTP/1.1 407 Proxy Authentication Required"
        assert len(service.asked) == asked

    on_s3(scenario)


def test_a_call_that_is_cancelled_ends_its_connection(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        running = asyncio.create_task(ask("get", key="stalling"))
        await service.stalls.wait()
        gate: Gate = context.made["object:gate"]
        connections = set(gate._serving)
        assert len(connections) == 1
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(asyncio.gather(*connections, return_exceptions=True), 5)

    on_s3(scenario)
