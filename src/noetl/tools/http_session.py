"""The HTTP client that all `http` tasks of a worker share: one pool of connections, and the rules for it.

Connections go only to addresses that the operator's policy permits, judged after resolving and once more
when the socket is made. There are no cookies and no proxies: a task sees nothing of another one, nor of
the environment the worker was started in.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from noetl.records.protocols import ToolContext
from noetl.tools.addresses import POLICY_KEY, AddressPolicy, AddressRefusedError
from noetl.tools.http_direct import DirectRequests
from noetl.tools.paths import PathRefusedError, read_under

KEPT_ALIVE_SECONDS: Final = 30.0
MAX_PEM_BYTES: Final = 4 << 20
PEM_MARK: Final = "-----BEGIN "
"""A text with this in it is a certificate or a key, not the name of a file."""
REFUSED: Final = "the host leads to an address that tasks may not connect to"


class HttpPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of HTTP tasks; a worker shares one under the key `http.policy`."""

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
            raise AddressRefusedError(REFUSED)
        return permitted

    async def close(self) -> None:
        await self._system.close()


async def _policy(context: ToolContext) -> HttpPolicy:
    async def default() -> HttpPolicy:
        return HttpPolicy(addresses=await address_policy(context))

    return await context.shared("http.policy", default)


async def address_policy(context: ToolContext) -> AddressPolicy:
    """Where tasks may connect to, as the operator of this worker has set it."""

    async def default() -> AddressPolicy:
        return AddressPolicy()

    return await context.shared(POLICY_KEY, default)


def judged_connector(addresses: AddressPolicy) -> aiohttp.TCPConnector:
    """Makes connections to permitted addresses only, whatever name or spelling leads there."""

    def judged_socket(info: tuple[Any, ...]) -> socket.socket:
        # An address that was written as one is not resolved, so this is where it is judged.
        if not addresses.permits(info[4][0]):
            raise AddressRefusedError(REFUSED)
        return socket.socket(family=info[0], type=info[1], proto=info[2])

    return aiohttp.TCPConnector(
        resolver=JudgingResolver(addresses),
        socket_factory=judged_socket,
        limit=0,  # the worker's slots are the limit; a second one would make calls wait unseen
        keepalive_timeout=KEPT_ALIVE_SECONDS,
    )


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
        session = aiohttp.ClientSession(
            connector=judged_connector(policy.addresses),
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
    given = {name: _pem(name, context.folder, tls[name]) for name in ("ca", "cert", "key") if tls.get(name)}
    if "key" in given and "cert" not in given:
        raise TlsError("`tls.key` needs `tls.cert` beside it")

    async def make() -> ssl.SSLContext:
        return await asyncio.to_thread(_make_context, verify, given)

    # A certificate that was renewed in place is another one.
    stamps = ",".join(f"{name}={hashlib.sha256(pem).hexdigest()}" for name, pem in given.items())
    return await context.shared(f"http.tls:{verify}:{stamps}", make)


def _pem(name: str, folder: Path, written: object) -> bytes:
    """What a field of `tls` holds: the certificate or key itself, or a file in the execution's folder."""
    text = str(written)
    if PEM_MARK in text:
        return text.encode()
    try:
        return read_under(folder, text, MAX_PEM_BYTES)
    except FileNotFoundError:
        raise TlsError(f"`tls.{name}`: there is no such file in the execution's folder") from None
    except PathRefusedError as refused:
        raise TlsError(
            f"`tls.{name}`: {refused}; give the file's text instead, from a keychain entry of kind `file`"
        ) from None


def _make_context(verify: bool, given: Mapping[str, bytes]) -> ssl.SSLContext:
    # What runs programs is loaded for the few calls that have certificates of their own.
    from noetl.tools.programs import unnamed_file  # noqa: PLC0415

    try:
        with contextlib.ExitStack() as files:
            # OpenSSL reads keys from files only; a text becomes one that no other process can find.
            names = {name: f"/dev/fd/{files.enter_context(unnamed_file(pem))}" for name, pem in given.items()}
            made = ssl.create_default_context(cafile=names.get("ca"))
            if "cert" in names:
                made.load_cert_chain(names["cert"], names.get("key"))
    except OSError as error:  # ssl.SSLError is one
        raise TlsError(
            f"the certificates that `tls` names cannot be loaded ({type(error).__name__})"
        ) from None
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
