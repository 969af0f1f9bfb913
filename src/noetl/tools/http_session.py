"""The HTTP client that all `http` tasks of a worker share: one pool of connections, and the rules for it.

Connections go only to addresses that the operator's policy permits, judged after resolving and once more
when the socket is made. There are no cookies and no proxies: a task sees nothing of another one, nor of
the environment the worker was started in.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from noetl.records.protocols import ToolContext
from noetl.tools.addresses import AddressPolicy, AddressRefusedError
from noetl.tools.http_direct import DirectRequests

KEPT_ALIVE_SECONDS: Final = 30.0


class HttpPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator can set for HTTP tasks; a worker shares one under the key `http.policy`."""

    addresses: AddressPolicy = AddressPolicy()
    max_body_bytes: int = 1 << 30
    """Of a decoded body that is streamed to the result store."""
    max_decoded_bytes: int = 64 << 20
    """Of a body that becomes data in memory; a larger one is stored as it came."""
    max_header_bytes: int = 32 << 10


class TlsError(Exception):
    """Certificates that cannot be used."""


class JudgingResolver(AbstractResolver):
    """Resolves names and gives only the addresses that a connection may go to."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._system = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._system.resolve(host, port, family)
        permitted = [each for each in found if self._policy.permits(each["host"])]
        if found and not permitted:
            raise AddressRefusedError("the host leads to an address that tasks may not connect to")
        return permitted

    async def close(self) -> None:
        await self._system.close()


async def _policy(context: ToolContext) -> HttpPolicy:
    async def default() -> HttpPolicy:
        return HttpPolicy()

    return await context.shared("http.policy", default)


class HttpClient:
    """The session with its rules, and what sends small requests over its connections."""

    def __init__(self, policy: HttpPolicy, session: aiohttp.ClientSession) -> None:
        self.policy = policy
        self.session = session
        self.direct = DirectRequests(session)

    async def close(self) -> None:
        await self.session.close()


async def http_client(context: ToolContext) -> HttpClient:
    async def make() -> HttpClient:
        policy = await _policy(context)

        def judged_socket(info: tuple[Any, ...]) -> socket.socket:
            # An address that was written as one is not resolved, so this is where it is judged.
            if not policy.addresses.permits(info[4][0]):
                raise AddressRefusedError("the host leads to an address that tasks may not connect to")
            return socket.socket(family=info[0], type=info[1], proto=info[2])

        connector = aiohttp.TCPConnector(
            resolver=JudgingResolver(policy.addresses),
            socket_factory=judged_socket,
            limit=0,  # the worker's slots are the limit; a second one would make calls wait unseen
            keepalive_timeout=KEPT_ALIVE_SECONDS,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return HttpClient(policy, session)

    return await context.shared("http.session", make)


async def tls_context(context: ToolContext, tls: Mapping[str, Any]) -> ssl.SSLContext | bool:
    """How connections are checked; the same fields give the same object, so that connections are shared."""
    if not tls:
        return True
    verify = tls.get("verify", True) not in (False, None)
    files = {name: _file(context.folder, tls[name]) for name in ("ca", "cert", "key") if tls.get(name)}
    if "key" in files and "cert" not in files:
        raise TlsError("`tls.key` needs `tls.cert` beside it")

    async def make() -> ssl.SSLContext:
        return await asyncio.to_thread(_make_context, verify, files)

    # A certificate that was renewed in place is another one.
    stamps = ",".join(f"{name}={path}@{path.stat().st_mtime_ns}" for name, path in files.items())
    return await context.shared(f"http.tls:{verify}:{stamps}", make)


def _file(folder: Path, written: object) -> Path:
    path = folder / str(written)
    if not path.is_file():
        raise TlsError("a file that `tls` names does not exist")
    return path


def _make_context(verify: bool, files: Mapping[str, Path]) -> ssl.SSLContext:
    ca, cert = files.get("ca"), files.get("cert")
    try:
        made = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if cert is not None:
            made.load_cert_chain(cert, files.get("key"))
    except OSError as error:  # ssl.SSLError is one
        raise TlsError(
            f"the certificates that `tls` names cannot be loaded ({type(error).__name__})"
        ) from None
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
