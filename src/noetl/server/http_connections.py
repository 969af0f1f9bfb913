"""One HTTP connection as the server keeps it: what is no request, is endless or comes too slowly is refused.

The web server's own class parses and calls the application; here it only gets limits, for it has none on the
head of a request and on how long one may take to arrive. Refusals are problem documents like all others. A
request that has arrived is none of its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from noetl.client.wire import Problem
from noetl.server.problems import CODE_OF, PROBLEM_TYPE

LEAST_BYTES_PER_SECOND: Final = 64 * 1024
"""A body that comes at this rate is not slow, however large it is."""
VERSIONS: Final = ("1.0", "1.1")
MOST_HEAD_BYTES: Final = 64 * 1024
"""Of a request's first line and its headers."""


class JoinedWrites:
    """A transport that writes together what it is given in one step of the event loop.

    The head of an answer and its body would be two packets, and whoever waits for them would be woken twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and not self._transport.is_closing():
            self._transport.write(b"".join(waiting))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the transport has
        return getattr(self._transport, name)


class LimitedConnection(HttpToolsProtocol):
    """`is_arriving` from the first byte of a request to its last, and before the first request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self.is_arriving = True
        self.began = self.loop.time()
        self.body_bytes = 0
        self._head_bytes = 0
        self._in_head = True

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if not self.is_arriving:
            self._begin()
        super().data_received(data)
        # What came in one piece with the end of the head is no part of it, so only an unfinished one counts.
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES:
            self.refuse(431, f"the head of a request has at most {MOST_HEAD_BYTES} bytes")

    def _begin(self) -> None:
        self.is_arriving = True
        self.began = self.loop.time()
        self.body_bytes = 0

    def on_message_begin(self) -> None:
        self._begin()
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        if self.parser.get_http_version() not in VERSIONS:
            self.refuse(400, "this server speaks HTTP/1.1")
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.is_arriving = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, "this is no HTTP request")

    def refuse(self, status: int, detail: str) -> None:
        """Says so, unless an answer is under way, and hangs up."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_answer(status, detail, self.server_state.default_headers))
        self.transport.close()

    def check_pace(self, now: float, seconds: float) -> None:
        """Refuses a request that is late; nobody who has sent nothing at all gets an answer."""
        if not self.is_arriving or now - self.began <= seconds + self.body_bytes / LEAST_BYTES_PER_SECOND:
            return
        if self.flow.read_paused:
            return  # it is the server that is slow
        if self.scope is None:
            self.transport.close()
        else:
            self.refuse(408, f"the request has not arrived in {seconds:g} seconds")


def check_paces(connections: Iterable[object], now: float, seconds: float) -> None:
    for connection in list(connections):
        if isinstance(connection, LimitedConnection):
            connection.check_pace(now, seconds)


def _answer(status: int, detail: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    title = HTTPStatus(status).phrase
    body = msgspec.json.encode(Problem(title=title, status=status, code=CODE_OF[status], detail=detail))
    lines = [
        f"HTTP/1.1 {status} {title}".encode(),
        *(name + b": " + value for name, value in headers),
        f"content-type: {PROBLEM_TYPE}".encode(),
        f"content-length: {len(body)}".encode(),
        b"connection: close",
        b"",
        body,
    ]
    return b"\r\n".join(lines)
