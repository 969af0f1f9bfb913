"""NATS servers and the `nats` kind on them, for its tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import nats
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from noetl.cli.stack.nats_server import START_SECONDS, NatsServer, free_port, nats_binary
from noetl.records.outcome import Outcome
from noetl.tools import nats as nats_kind
from tests.unit.tools.local_context import LocalContext, call

TOKEN = "a-token-of-the-tests"
NOTHING = {"revision": None, "stream": None, "sequence": None}


def started_with(folder: Path, settings: str) -> NatsServer:
    """A server with settings of its own."""
    server = NatsServer(folder, free_port(), "")
    (folder / "nats.conf").write_text(settings.format(port=server.port, folder=folder))
    command = [str(nats_binary()), "-c", str(folder / "nats.conf")]
    server.process.start(command, at=f"127.0.0.1:{server.port}", is_ours=False)
    server.process.wait_until(server.is_ready, START_SECONDS)
    return server


class Tried:
    """The kind in a context of its own, and a client beside it."""

    def __init__(self, context: LocalContext, login: dict[str, Any], client: Any) -> None:
        self.context = context
        self.login = login
        self.client = client
        self.js = client.jetstream()

    async def run(self, operation: str, *, spec: dict[str, Any] | None = None, **config: Any) -> Outcome:
        config = {**self.login, **config, "operation": operation}
        return await nats_kind.run(call("nats", config, spec=spec), self.context)

    async def done(self, operation: str, **config: Any) -> Outcome:
        outcome = await self.run(operation, **config)
        assert outcome.error is None, outcome.error
        return outcome

    async def result(self, operation: str, **config: Any) -> Any:
        return (await self.done(operation, **config)).result

    async def revision(self, operation: str, **config: Any) -> int:
        outcome = await self.done(operation, **config)
        found: int = outcome.groups["nats"]["revision"]
        assert outcome.groups == {"nats": {**NOTHING, "revision": found}}
        return found

    async def error(self, operation: str, **config: Any) -> tuple[str, bool]:
        outcome = await self.run(operation, **config)
        assert outcome.error is not None, outcome.result
        assert outcome.groups == {"nats": NOTHING}
        return outcome.error.kind, outcome.error.retryable


Scenario: TypeAlias = Callable[[Tried], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]


@contextlib.asynccontextmanager
async def tried(folder: Path, admin: str, login: dict[str, Any]) -> AsyncIterator[Tried]:
    before = asyncio.all_tasks()
    client = await nats.connect(admin, allow_reconnect=False)
    try:
        async with LocalContext(folder) as context, asyncio.timeout(20):
            yield Tried(context, login, client)
    finally:
        await client.close()
    for _ in range(3):  # what was cancelled needs a moment to end
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


def certificate(folder: Path) -> str:
    """Makes a key and a certificate that signs itself, for `localhost`; gives the certificate."""
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    (folder / "cert.pem").write_bytes(pem)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return pem.decode()
