"""Small requests, written to a kept connection at once, without what a client session does around each.

The session of the client library serves every kind of request and pays for it each time: for a small one
that is most of its cost. Here a request is one write and a response is what the connection's own parser
gives. Connections are the session's: made, judged, kept and closed by its connector. Bodies that have to be
made or that may not fit into one write go through the session, as before (`can_send`).
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from noetl.tools.http_request import Request

MAX_BODY: Final = 1 << 15
WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SENT_AGAIN: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods that may be sent twice, where a kept connection turns out to be closed."""
MAX_ORIGINS: Final = 1000
AUTOMATIC: Final = ("Accept", "Accept-Encoding")


class DirectResponse:
    """A response whose head has come; its connection goes back when the body ends, or by `release`."""

    __slots__ = ("_connection", "content", "headers", "status", "url")

    def __init__(
        self, url: URL, message: RawResponseMessage, content: StreamReader, connection: Connection
    ) -> None:
        self.url = url
        self.status: int = message.code
        self.headers: CIMultiDictProxy[str] = message.headers
        self.content = content
        self._connection: Connection | None = connection
        content.on_eof(self.release)

    def release(self) -> None:
        """Gives the connection back; one with a body that was not read to its end is closed."""
        if self._connection is not None:
            self._connection.release()
            self._connection = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def wait_for_close(self) -> None:
        self.release()


class DirectRequests:
    """Sends requests over the connections of a session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._origins: dict[tuple[str, str, ssl.SSLContext | bool], aiohttp.ClientRequest] = {}

    @staticmethod
    def can_send(request: Request) -> bool:
        if request.form or request.files or request.url.raw_user is not None:
            return False
        body = request.body
        if body is None:
            return request.method in WITHOUT_BODY
        return type(body) is bytes and 0 < len(body) <= MAX_BODY and "Content-Type" in request.headers

    async def send(
        self, request: Request, tls: ssl.SSLContext | bool, timeout: aiohttp.ClientTimeout
    ) -> DirectResponse:
        try:
            return await self._exchange(request, tls, timeout)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            # The other side may close a kept connection at the very moment that it is used again.
            if request.method not in SENT_AGAIN:
                raise
            return await self._exchange(request, tls, timeout)

    async def _exchange(
        self, request: Request, tls: ssl.SSLContext | bool, timeout: aiohttp.ClientTimeout
    ) -> DirectResponse:
        connector = self._session.connector
        if connector is None:
            raise aiohttp.ClientConnectionError("the session is closed")
        origin = self._origin(request.url, tls)
        connection = await connector.connect(origin, [], timeout)
        protocol = connection.protocol
        try:
            if protocol is None or protocol.transport is None:
                raise aiohttp.ServerDisconnectedError
            protocol.set_response_params(skip_payload=request.method == "HEAD", read_until_eof=True)
            protocol.transport.write(_message(request, origin.headers))
            message, content = await self._head(protocol, timeout.sock_read)
            if not content.is_eof():
                protocol.read_timeout = timeout.sock_read
                protocol.start_timeout()
            return DirectResponse(request.url, message, content, connection)
        except HttpProcessingError as error:
            connection.close()
            raise aiohttp.ClientError("the response is not HTTP") from error
        except BaseException:  # also a cancellation: half an exchange cannot be taken up again
            connection.close()
            raise

    async def _head(
        self, protocol: ResponseHandler, patience: float | None
    ) -> tuple[RawResponseMessage, StreamReader]:
        """The head of the response and the stream of its body; heads that announce it are passed over."""
        while True:
            timer = None
            if patience is not None:
                late = aiohttp.SocketTimeoutError("no head of a response in time")
                timer = self._loop.call_later(patience, protocol.set_exception, late)
            try:
                message, content = await protocol.read()
            finally:
                if timer is not None:
                    timer.cancel()
            if not 100 <= message.code <= 199 or message.code == 101:
                return message, content

    def _origin(self, url: URL, tls: ssl.SSLContext | bool) -> aiohttp.ClientRequest:
        """What connections are asked for by: a request to the address's scheme, host and port."""
        key = (url.scheme, url.raw_authority, tls)
        found = self._origins.get(key)
        if found is None:
            if len(self._origins) >= MAX_ORIGINS:
                self._origins.clear()
            found = aiohttp.ClientRequest(
                "GET", url.origin(), loop=self._loop, session=self._session, ssl=tls
            )
            self._origins[key] = found
        return found


def _message(request: Request, defaults: CIMultiDict[str]) -> bytes:
    """The request as it is sent; ValueError where a header would end its line."""
    headers = request.headers
    lines = [f"{request.method} {request.url.raw_path_qs} HTTP/1.1"]
    if "Host" not in headers:
        lines.append(f"Host: {defaults['Host']}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"{name}: {defaults[name]}" for name in AUTOMATIC if name not in headers]
    body: bytes = request.body or b""
    if body:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("\r\n")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) or text.count("\r") != len(lines) or "\0" in text:
        raise ValueError("a header holds a line break")
    return text.encode() + body
