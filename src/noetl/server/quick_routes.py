"""The three routes that carry nearly all requests, answered without the framework's way to a handler.

They are described, guarded and refused as every other route is: same policies, same structs, same problem
documents. A request that is out of the ordinary in any way (another media type, a query, headers that say
more) goes the usual way; nothing can be asked here that cannot be asked there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from noetl.client.wire import Started, StartRequest
from noetl.records.report import Claim, Report
from noetl.server import commands, executions
from noetl.server.auth import Guard
from noetl.server.parts import Caller, Parts
from noetl.server.policies import policy_of
from noetl.server.problems import PROBLEM_TYPE, REQUEST_ID, MalformedError, told_of
from noetl.server.request_bodies import read_strictly

JSON: Final = "application/json"
UNUSUAL: Final = frozenset({"idempotency-key", "traceparent", "content-encoding", "expect"})

Headers = list[tuple[bytes, bytes]]


class Answer(NamedTuple):
    content: Any
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Route(NamedTuple):
    decoder: msgspec.json.Decoder[Any]
    most_bytes: int
    answer: Callable[[Parts, Caller, Any, Receive], Awaitable[Answer]]


async def _claim(parts: Parts, caller: Caller, data: Claim, receive: Receive) -> Answer:
    return Answer(await commands.claimed(parts, caller, data, receive))


async def _report(parts: Parts, caller: Caller, data: Report, receive: Receive) -> Answer:
    return Answer(await commands.reported(parts, caller, data))


async def _start(parts: Parts, caller: Caller, data: StartRequest, receive: Receive) -> Answer:
    execution_id = await executions.begun(parts, data)
    location = f"/api/executions/{execution_id}".encode()
    return Answer(Started(execution_id=execution_id), 201, ((b"location", location),))


class QuickRoutes:
    def __init__(self, app: ASGIApp, parts: Parts, guard: Guard, headers: Mapping[str, str]) -> None:
        """`headers` go with every answer."""
        self._app = app
        self._parts = parts
        self._guard = guard
        self._headers = _encoded(headers)
        options = parts.options
        self._routes: dict[str, Route] = {
            "/api/events/batch": Route(msgspec.json.Decoder(Report), options.max_report_bytes, _report),
            "/api/commands/claim": Route(msgspec.json.Decoder(Claim), options.max_body_bytes, _claim),
            "/api/executions": Route(msgspec.json.Decoder(StartRequest), options.max_body_bytes, _start),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"])
        if route is None or scope["type"] != ScopeType.HTTP or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        written = list(scope["headers"])
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in written}
        if scope["query_string"] or not _is_plain(given, route.most_bytes, len(written)):
            await self._app(scope, receive, send)
            return
        scope["path_template"] = scope["path"]
        media_type = JSON
        try:
            caller = await self._guard.admit(scope, scope["path"], given)
            data = read_strictly(route.decoder, await _body(receive), policy_of("POST", scope["path"]))
            content, status, headers = await route.answer(self._parts, caller, data, receive)
        # What is not ours to name is a fault of the server, which its log tells of.
        except Exception as error:  # noqa: BLE001 - every request has an answer
            content, problem_headers = told_of(error, scope.get(REQUEST_ID))
            status, media_type = content.status, PROBLEM_TYPE
            headers = tuple(_encoded(problem_headers))
        await self._send(send, status, media_type, msgspec.json.encode(content), headers)

    async def _send(
        self, send: Send, status: int, media_type: str, body: bytes, headers: tuple[tuple[bytes, bytes], ...]
    ) -> None:
        every: Headers = [
            (b"content-type", media_type.encode()),
            (b"content-length", b"%d" % len(body)),
            *headers,
            *self._headers,
        ]
        await send({"type": "http.response.start", "status": status, "headers": every})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def _is_plain(headers: Mapping[str, str], most_bytes: int, written: int) -> bool:
    """JSON whose length is told and is not too much, no header twice, and none that asks for more."""
    length = headers.get("content-length", "")
    return (
        headers.get("content-type") == JSON
        and length.isascii()
        and length.isdecimal()
        and len(length) < 12
        and 0 < int(length) <= most_bytes
        and len(headers) == written
        and UNUSUAL.isdisjoint(headers)
    )


def _encoded(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def _body(receive: Receive) -> bytes:
    """The whole body; the web server sees to it that it is no longer than was told."""
    pieces: list[bytes] = []
    while True:
        message = cast(dict[str, Any], await receive())
        if message["type"] == "http.disconnect":
            raise MalformedError("the body has not arrived whole")
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)
