"""A proxy inside the worker that judges where the client of buckets connects to.

That client is a library with a network stack of its own: it resolves names itself and follows redirects. So
it is given a proxy, which resolves each host, asks the address policy and connects to the address it was
told is permitted. Only those who know its password are served. It looks into no body.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
import socket
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import msgspec

from noetl.tools.addresses import AddressPolicy, AddressRefusedError

PIECE: Final = 1 << 16
MAX_HEAD: Final = 1 << 16
CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 1.0
REFUSED: Final = "noetl: an address that tasks may not connect to"
"""The body of a refusal, by which it is told from one of the store's own."""
_USER: Final = "noetl"


class Head(msgspec.Struct, frozen=True):
    """The beginning of a request: where it goes, and its lines as the other side is to see them."""

    host: str
    port: int
    is_tunnel: bool
    password: str
    lines: tuple[str, ...]
    body_size: int

    @property
    def target(self) -> tuple[str, int, bool]:
        return self.host, self.port, self.is_tunnel


class Gate:
    """Use `open_gate` to make one; `url` is what a client takes as its proxy."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._password = secrets.token_urlsafe(24)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=MAX_HEAD)

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http://{_USER}:{self._password}@127.0.0.1:{port}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for each in self._serving:
            each.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A connection that breaks on either side is closed on the other, and that is all there is to say.
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._pass_on(reader, writer)
        finally:
            await _close(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _read_head(reader)
        if head is None or not hmac.compare_digest(head.password, self._password):
            await _answer(writer, "407 Proxy Authentication Required")
            return
        try:
            there = await self._connect(head)
        except AddressRefusedError:
            await _answer(writer, "403 Forbidden", REFUSED)
            return
        there_reader, there_writer = there
        try:
            if head.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                forward = asyncio.create_task(_copy(reader, there_writer))
            else:
                forward = asyncio.create_task(_requests(head, reader, there_writer))
            await _until_one_ends(forward, asyncio.create_task(_copy(there_reader, writer)))
        finally:
            await _close(there_writer)

    async def _connect(self, head: Head) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(CONNECT_SECONDS):
            failure: OSError | None = None
            for each in await permitted(head.host, head.port, self._policy):
                try:
                    return await asyncio.open_connection(each, head.port, limit=PIECE)
                except OSError as error:
                    failure = error
        raise failure or OSError("no address")


async def open_gate(policy: AddressPolicy) -> Gate:
    gate = Gate(policy)
    await gate.open()
    return gate


async def permitted(host: str, port: int, policy: AddressPolicy) -> list[str]:
    """The addresses of a host that may be connected to; AddressRefusedError where it has only others."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a name that is none
        raise OSError("the host name cannot be resolved") from None
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    judged = [each for each in addresses if policy.permits(each)]
    if not judged:
        raise AddressRefusedError("the host leads to an address that tasks may not connect to")
    return judged


async def _read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next request's; None for what is no request to a proxy."""
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text.removesuffix("\r\n\r\n").split("\r\n")
    method, _, rest = first.partition(" ")
    written, _, version = rest.rpartition(" ")
    kept: list[str] = []
    password, size = "", 0
    for line in lines:
        name, _, value = line.partition(":")
        match name.lower():
            case "proxy-authorization":
                password = _password(value.strip())
            case "proxy-connection":
                pass
            case "transfer-encoding":  # where such a body ends is not known without reading it
                return None
            case "content-length":
                if not value.strip().isdecimal():
                    return None
                size = int(value)
                kept.append(line)
            case _:
                kept.append(line)
    is_tunnel = method == "CONNECT"
    try:
        parts = urlsplit(f"//{written}" if is_tunnel else written)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or (not is_tunnel and parts.scheme != "http"):
        return None
    path = written[len("http://") :].partition("/")[2]
    return Head(
        host=host,
        port=port or (443 if is_tunnel else 80),
        is_tunnel=is_tunnel,
        password=password,
        lines=(f"{method} /{path} {version}", *kept),
        body_size=size,
    )


def _password(header: str) -> str:
    try:
        text = base64.b64decode(header.partition(" ")[2], validate=True).decode("ascii")
    except ValueError:
        return ""
    return text.partition(":")[2]


async def _answer(writer: asyncio.StreamWriter, status: str, body: str = "") -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write((head + body).encode())
    await writer.drain()


async def _requests(head: Head | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends the requests of one connection on, one after the other, all to where the first one went."""
    first = head
    while head is not None and first is not None and head.target == first.target:
        writer.write(("\r\n".join(head.lines) + "\r\n\r\n").encode("latin-1"))
        await _copy(reader, writer, head.body_size)
        head = await _read_head(reader)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int | None = None) -> None:
    """All that comes, or the next `size` bytes of it."""
    left = size
    while left is None or left > 0:
        piece = await reader.read(PIECE if left is None else min(left, PIECE))
        if not piece:
            return
        writer.write(piece)
        await writer.drain()
        left = None if left is None else left - len(piece)
    await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    """Ends a connection, with what is still to be sent if the other side takes it."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except OSError:
        pass  # it is closed already


async def _until_one_ends(*tasks: asyncio.Task[None]) -> None:
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
