"""A server as its clients call it: JSON over HTTP with a token, repeated where that is safe.

It may be known by several addresses, of replicas that stand for each other. Calls go to one of them until
that does not answer, then to the next.

Errors of the server come back as exceptions with the server's code. What is not known to have failed is
repeated: a connection that broke, a server that is starting or overloaded. A request the server refused is
never repeated. Nothing here knows what is asked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

import aiohttp
import msgspec

from noetl.client.wire import Problem
from noetl.errors import NoetlError
from noetl.ids import Clock, SystemClock
from noetl.records.protocols import LeaseLostError, NotWrittenError
from noetl.records.report import PROTOCOL

Reply = TypeVar("Reply")

ANSWER_SECONDS: Final = 30.0
"""How long an answer may take beyond what the request is ready to wait."""
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 5.0
PROTOCOL_HEADER: Final = "Noetl-Protocol"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
EVENT_STREAM: Final = "text/event-stream"

Query: TypeAlias = Mapping[str, str | int | float | None]

_BROKEN = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)


class ServerError(NoetlError):
    """What a server answered instead of what was asked for; `code` is the server's."""

    code = "server.error"

    def __init__(self, message: str, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


class ServerUnreachableError(NotWrittenError):
    """No server answered, for as long as it was tried."""

    code = "server.unreachable"


@cache
def _error_class(code: str) -> type[ServerError]:
    return type("ServerError", (ServerError,), {"code": code, "__doc__": ServerError.__doc__})


def error_of(problem: Problem) -> NoetlError:
    """The exception that a problem document stands for."""
    message = problem.detail or problem.title
    if problem.code == LeaseLostError.code:
        return LeaseLostError(message)
    if problem.code == NotWrittenError.code:
        return NotWrittenError(message)
    if problem.errors:
        about = "; ".join(
            f"{each.field}: {each.message}" if each.field else each.message for each in problem.errors
        )
        message = f"{message} ({about})"
    return _error_class(problem.code)(message, problem)


def path_of(*parts: str) -> str:
    """A path below `/api`, each part of it quoted."""
    return "/api/" + "/".join(quote(part, safe="") for part in parts)


class Connection:
    """Calls to a server. It may be used on several event loops, and is closed on each of them."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        trace: str | None = None,
        retry_seconds: float = 60.0,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`url`: the address, or several with commas between them."""
        self._urls = tuple(each.strip().rstrip("/") for each in url.split(","))
        self._at = 0
        self._headers = {"Accept": JSON, PROTOCOL_HEADER: str(PROTOCOL)}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        if trace is not None:
            self._headers["traceparent"] = trace
        self._retry_seconds = retry_seconds
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = (
            WeakKeyDictionary()
        )

    @property
    def url(self) -> str:
        """The address that calls go to now."""
        return self._urls[self._at]

    async def close(self) -> None:
        """Closes what was opened on the running loop."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    async def call(
        self,
        method: str,
        path: str,
        decoder: msgspec.json.Decoder[Reply],
        *,
        body: object = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        wait_seconds: float = 0.0,
    ) -> Reply:
        """The decoded answer. `repeatable`: a second call with the same content has no second effect."""
        content = None if body is None else msgspec.json.encode(body)
        answer = await self.exchange(
            method,
            path,
            content=content,
            query=query,
            headers=headers,
            repeatable=repeatable,
            wait_seconds=wait_seconds,
        )
        try:
            return decoder.decode(answer)
        except msgspec.MsgspecError as error:
            raise ServerError(
                f"{method} {self.url}{path} answered what is not understood: {error}"
            ) from error

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        media_type: str = JSON,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        wait_seconds: float = 0.0,
    ) -> bytes:
        """The bytes of the answer."""
        sent = dict(headers or {}) | ({} if content is None else {"Content-Type": media_type})
        given_up = self._clock.monotonic() + self._retry_seconds + wait_seconds
        pause = FIRST_WAIT
        failed = 0
        while True:
            asked_for = 0.0
            url = self.url
            try:
                async with self._request(
                    method, path, content, sent, query, wait_seconds + ANSWER_SECONDS
                ) as response:
                    answer: bytes = await response.read()
                    if response.status < 400:
                        return answer
                    failure: NoetlError = self._refusal(response, answer)
                    asked_for = _retry_after(response)
                    # A request too many was not looked at.
                    may_repeat = response.status == 429 or (response.status >= 500 and repeatable)
                    is_away = response.status == 503
            except aiohttp.ClientConnectorError as error:
                # It was never sent, so it may be sent again whatever it is.
                failure, may_repeat, is_away = self._unreachable(error, url), True, True
            except _BROKEN as error:
                failure, may_repeat, is_away = self._unreachable(error, url), repeatable, True
            if is_away:
                failed += 1
                self._leave(url)
                # Nobody is waited for while there is another address that was not tried.
                if may_repeat and failed % len(self._urls):
                    continue
            pause = min(pause, LONGEST_WAIT)
            # Chance keeps the workers of a server that was away from all coming back at once.
            delay = max(asked_for, pause * (0.5 + random.random() / 2))
            if not may_repeat or self._clock.monotonic() + delay > given_up:
                raise failure
            await self._sleep(delay)
            pause *= 2

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query | None, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.StreamReader | None]:
        """The body of an answer that goes on and on; None where there is nothing more to come."""
        url = self.url
        try:
            async with self._request("GET", path, None, headers, query, None) as response:
                if response.status >= 400:
                    raise self._refusal(response, await response.read())
                yield None if response.status == 204 else response.content
        except _BROKEN as error:
            self._leave(url)
            raise self._unreachable(error, url) from error

    def _request(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        query: Query | None,
        seconds: float | None,
    ) -> Any:  # noqa: ANN401 - the context manager has no public name
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=10.0)
        return self._session().request(
            method, self.url + path, data=content, headers=headers, params=given, timeout=timeout
        )

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            session = aiohttp.ClientSession(
                headers=self._headers, connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0)
            )
            self._sessions[loop] = session
        return session

    def _refusal(self, response: aiohttp.ClientResponse, answer: bytes) -> NoetlError:
        try:
            return error_of(msgspec.json.decode(answer, type=Problem))
        except msgspec.MsgspecError:
            return ServerError(f"{self.url} answered {response.status} {response.reason}")

    def _unreachable(self, error: BaseException, url: str) -> ServerUnreachableError:
        return ServerUnreachableError(f"no server at {url}: {error or type(error).__name__}")

    def _leave(self, url: str) -> None:
        """Turns to the next address, unless another call has done so already."""
        if self.url == url:
            self._at = (self._at + 1) % len(self._urls)


def _retry_after(response: aiohttp.ClientResponse) -> float:
    """How many seconds a server asks to be left alone; a moment instead of a number is not understood."""
    written = response.headers.get("Retry-After", "").strip()
    is_asked = response.status in (429, 503) and written.isascii() and written.isdecimal()
    return float(written[:9]) if is_asked else 0.0
