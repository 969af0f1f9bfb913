"""Connections to NATS that are kept for later calls, one pool for each login.

A call has its connection for itself, so whatever goes wrong on it, a missing right included, is the call's
own; one that ended badly is closed. Connections go only to addresses that tasks may connect to, and never to
servers that a server names. The client library's reconnecting is not used: it would keep requests of the
lost connection waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
from nats.aio.client import Client, RawCredentials
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, SecureConnWantedError

from noetl.records.protocols import ToolContext
from noetl.tools.addresses import AddressPolicy
from noetl.tools.call_failures import CallFailedError
from noetl.tools.http_session import REFUSED, TlsError, address_policy, tls_context
from noetl.tools.nats_login import Login, Server

MAX_CONNECTIONS: Final = 16
CONNECT_SECONDS: Final = 5
"""Whole seconds, as the client library wants it."""
PING_SECONDS: Final = 5
CLOSE_SECONDS: Final = 0.5

ACCESS: Final = "nats.access"
CONNECTION: Final = "nats.connection"

_REFUSALS: Final = ("authorization violation", "authentication expired", "authentication revoked")
"""What a server says to a login that it will not take the next time either."""
_VIOLATION: Final = re.compile(r"permissions violation for (\w+)(?: to)? \"?([^\"']*)")

Done = TypeVar("Done")


class _StrictClient(Client):
    """The library's client; where TLS is asked for it says nothing before it has that.

    It counts headers as the server does, which ends a connection over a message that is too large.
    """

    needs_tls = False

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        lines = [f"{name}: {value}\r\n".encode() for name, value in (headers or {}).items()]
        if lines and len(payload) + len(b"NATS/1.0\r\n\r\n") + sum(map(len, lines)) > self.max_payload:
            raise MaxPayloadError
        await super().publish(subject, payload, reply, headers)

    def _connect_command(self) -> bytes:
        if self.needs_tls and not self._server_info.get("tls_required"):
            raise SecureConnWantedError
        return super()._connect_command()

    async def end(self) -> None:
        """Closes the connection, also where what is left to send cannot be sent."""
        transport = self._transport
        try:
            # What goes wrong with a connection that is over, or was never made, means nothing.
            with contextlib.suppress(NatsError, OSError, TimeoutError, AssertionError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.close()
        finally:
            if transport is not None:
                transport.close()  # type: ignore[no-untyped-call]


class Connection:
    """One connection, for one call at a time."""

    def __init__(self, server: Server) -> None:
        self.client = _StrictClient()
        self._server = server
        self._ended = asyncio.Event()
        self._problem: CallFailedError | None = None
        self._said: Exception | None = None
        """What the library reported last; that no server is left says less."""

    @property
    def is_usable(self) -> bool:
        return self.client.is_connected and not self._ended.is_set()

    async def open(self, address: str, login: Login, tls: ssl.SSLContext | None) -> None:
        self.client.needs_tls = self._server.tls
        host = f"[{address}]" if ":" in address else address
        signed: dict[str, Any] = {"nkeys_seed_str": login.nkey}
        if login.creds is not None:
            signed = {"user_credentials": RawCredentials(login.creds)}
        try:
            async with asyncio.timeout(2 * CONNECT_SECONDS):
                await self.client.connect(
                    [f"nats://{host}:{self._server.port}"],
                    name="noetl",
                    # Else the library says more before it listens, and what a server says to a login that
                    # it refuses is lost with the connection.
                    verbose=True,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_SECONDS,
                    ping_interval=PING_SECONDS,
                    closed_cb=self._on_closed,
                    error_cb=self._on_error,
                    tls=tls,
                    tls_hostname=self._server.host,
                    user=login.user,
                    password=login.password,
                    token=login.token,
                    **signed,
                )
                if not self.client.is_connected:
                    raise ConnectionResetError
        except (NatsError, OSError, TimeoutError) as error:
            await self.close()
            raise self._refusal(self._said or error) from None
        except ImportError:
            await self.close()
            raise CallFailedError(
                "tool.not_installed",
                "`nkey` and `creds` need a library that is not installed (`nkeys`): install `nats-py[nkeys]`",
            ) from None
        except BaseException:  # nobody else will close it
            await self.close()
            raise

    async def close(self) -> None:
        await self.client.end()

    async def until_done(self, work: Coroutine[Any, Any, Done]) -> Done:
        """What the work gives, unless the connection or a right is lost meanwhile."""
        working = asyncio.ensure_future(work)
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((working, ended), return_when=asyncio.FIRST_COMPLETED)
            problem = self._problem
            if problem is not None and (problem.kind == ACCESS or not _is_done_well(working)):
                raise problem
            return working.result()
        finally:
            ended.cancel()
            while not working.done():
                # The library swallows a cancellation now and then.
                working.cancel()
                await asyncio.wait((working,), timeout=0.5)
            if not working.cancelled():
                working.exception()  # it was looked at, or another failure came first

    async def _on_closed(self) -> None:
        self._end(self._refusal(self.client.last_error))

    async def _on_error(self, error: Exception) -> None:
        self._said = error
        found = _VIOLATION.search(str(error).lower())
        if found is not None:
            verb = "publish" if found[1] == "publish" else "subscribe"
            # The library has made it lower case, so it is not always the subject as it is written.
            self._end(CallFailedError(ACCESS, f"the login may not {verb} to `{found[2]}` (in lower case)"))

    def _end(self, problem: CallFailedError) -> None:
        self._problem = self._problem or problem
        self._ended.set()

    def _refusal(self, error: BaseException | None) -> CallFailedError:
        """What it means that there is no connection, or none any more."""
        where, said = self._server.shown, str(error or "").lower()
        if any(refusal in said for refusal in _REFUSALS):
            return CallFailedError(ACCESS, f"{where} does not take the login")
        if isinstance(error, SecureConnWantedError):
            return CallFailedError("nats.tls", f"{where} does not offer TLS")
        if isinstance(error, ssl.SSLCertVerificationError):
            return CallFailedError(
                "nats.tls", f"{where}: the server's certificate is not accepted: {error.verify_message}"
            )
        if isinstance(error, ssl.SSLError):
            return CallFailedError("nats.tls", f"{where}: no secure connection could be made")
        if "maximum payload" in said:
            return CallFailedError("nats.too_large", f"{where} takes no message as large as this one")
        if isinstance(error, TimeoutError):
            return CallFailedError(CONNECTION, f"{where} does not answer", retryable=True)
        if isinstance(error, OSError) and error.errno:
            return CallFailedError(CONNECTION, f"{where}: {os.strerror(error.errno)}", retryable=True)
        return CallFailedError(CONNECTION, f"{where}: the connection broke", retryable=True)


def _is_done_well(working: asyncio.Future[Any]) -> bool:
    """Whether the work was over before the connection was, and failed for no reason of the connection's."""
    return working.done() and not isinstance(working.exception(), NatsError | OSError)


class NatsPool:
    def __init__(self, login: Login, addresses: AddressPolicy, tls: ssl.SSLContext | None) -> None:
        self._login = login
        self._addresses = addresses
        self._tls = tls
        self._idle: list[Connection] = []
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection; it is kept for others unless the call ended badly."""
        async with self._places:
            connection = await self._taken()
            try:
                yield connection
            except BaseException:  # whatever happened, what still comes on it is not known
                await connection.close()
                raise
            self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _taken(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            await connection.close()
        return await self._opened()

    async def _opened(self) -> Connection:
        """A connection to the first server that takes one."""
        failure: CallFailedError | None = None
        for server in self._login.servers:
            try:
                for address in await self._permitted(server):
                    connection = Connection(server)
                    try:
                        await connection.open(address, self._login, self._tls)
                    except CallFailedError as refused:
                        failure = refused
                        if not refused.retryable:
                            break
                    else:
                        return connection
            except CallFailedError as refused:
                failure = refused
        assert failure is not None
        raise failure

    async def _permitted(self, server: Server) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise CallFailedError(
                CONNECTION, f"{server.shown}: the host name cannot be resolved", retryable=True
            ) from None
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        permitted = [each for each in addresses if self._addresses.permits(each)]
        if not permitted:
            raise CallFailedError("nats.address_refused", f"{server.shown}: {REFUSED}")
        return permitted


async def pool_for(login: Login, context: ToolContext) -> NatsPool:
    addresses = await address_policy(context)
    try:
        tls = await tls_context(context, login.tls)
    except TlsError as mistake:
        raise CallFailedError("config.invalid", str(mistake).replace("`tls.", "`auth.")) from None

    async def make() -> NatsPool:
        return NatsPool(login, addresses, tls if isinstance(tls, ssl.SSLContext) else None)

    key = hashlib.sha256(msgspec.json.encode(login)).hexdigest()
    # A file of certificates that was changed, or is another execution's, makes another context.
    return await context.shared(f"nats:{key}:{id(tls)}", make)
