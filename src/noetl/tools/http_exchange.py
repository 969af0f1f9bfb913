"""One HTTP exchange from first request to outcome: redirects followed, errors named, time kept.

This is the part of the `http` kind that needs the client library; `http.py` imports it when the first task
runs. A message names scheme, host, port and path of an address and nothing else, because queries, headers
and user parts hold secrets; the client library's own texts are not passed on for the same reason.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from yarl import URL

from noetl.errors import NoetlError
from noetl.records.durations import parse_duration
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.addresses import AddressRefusedError
from noetl.tools.call_failures import CallFailedError
from noetl.tools.http_request import Request, RequestError, address, name_of, request_for, request_to
from noetl.tools.http_response import (
    MAX_DATA_BYTES,
    BodyError,
    BodyTooLargeError,
    HeadersTooLargeError,
    Response,
    TooMuchDataError,
    group_of,
    read_result,
)
from noetl.tools.http_session import HttpClient, HttpPolicy, TlsError, http_client, tls_context
from noetl.tools.outcomes import failed, failed_with, ok

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
MAX_REDIRECTS: Final = 10
RETRYABLE: Final = frozenset({408, 425, 429})
NEVER_RETRYABLE: Final = frozenset({501, 505})
NO_RESPONSE: Final[dict[str, Any]] = {"status": None, "headers": None, "request_id": None}
BODY_OF_A_REDIRECT: Final = 1 << 16
FETCHED_BYTES: Final = 16 << 20

Received = TypeVar("Received")


class Timeouts(msgspec.Struct, frozen=True):
    total: float | None
    """Of the whole exchange, redirects and body included."""
    client: aiohttp.ClientTimeout


class Way(msgspec.Struct, frozen=True):
    """How a request travels."""

    timeouts: Timeouts
    tls: ssl.SSLContext | bool = True
    redirects: int = MAX_REDIRECTS


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes


async def exchange(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    try:
        client = await http_client(context)
        way = Way(
            _timeouts(call.spec),
            await tls_context(context, call.config.get("tls") or {}),
            _redirect_limit(call.config.get("redirects", True)),
        )
        request = await request_for(call, context)
        group, result = await _send(
            client, request, way, lambda response: _received(response, call, context, client.policy)
        )
    except CallFailedError as failure:
        return failed_with(call, started, failure, http=failure.group or NO_RESPONSE)
    except (RequestError, TlsError) as mistake:
        return failed(call, started, "config.invalid", str(mistake), http=NO_RESPONSE)
    except NoetlError as error:  # a credential that cannot be had, a result that cannot be stored
        return failed(call, started, error.code, error.message, http=NO_RESPONSE)
    return _judged(call, started, request, group, result)


async def fetch(request: Request, context: ToolContext, limit: int = FETCHED_BYTES) -> Fetched:
    """A small response as bytes, for the kinds that get something over HTTP; CallFailedError without one."""
    client = await http_client(context)

    async def receive(response: Response) -> Fetched:
        body = bytearray()
        async for piece in response.content.iter_chunked(1 << 16):
            body += piece
            if len(body) > limit:
                raise _too_large(name_of(request.url), limit)
        return Fetched(status=response.status, body=bytes(body))

    return await _send(client, request, Way(_timeouts_of(10, 60, None)), receive)


async def download(source: str, auth: object, context: ToolContext) -> bytes:
    """The body that lies at an address; CallFailedError where there is none."""
    try:
        request = await request_to(source, auth, context)
        fetched = await fetch(request, context)
    except RequestError as mistake:
        raise CallFailedError("config.invalid", str(mistake)) from None
    if fetched.status >= 300:
        raise status_failure(request, fetched.status)
    return fetched.body


def status_failure(request: Request, status: int) -> CallFailedError:
    return CallFailedError(
        "http.status",
        f"{request.method} {name_of(request.url)} answered with status {status}",
        retryable=is_retryable(status),
        status=status,
    )


def is_retryable(status: int) -> bool:
    return status in RETRYABLE or (status >= 500 and status not in NEVER_RETRYABLE)


def _judged(
    call: ToolCall, started: float, request: Request, group: dict[str, Any], result: object
) -> Outcome:
    status: int = group["status"]
    if status < 400 or status in _ok_statuses(call.spec.get("ok_status")):
        return ok(call, started, result, http=group)
    details: dict[str, Any] = {"status": status}
    if (wait := parse_duration(group["headers"].get("retry-after"))) is not None:
        details["retry_after"] = wait
    return failed(
        call,
        started,
        "http.status",
        f"{request.method} {name_of(request.url)} answered with status {status}",
        retryable=is_retryable(status),
        details=details,
        result=result,
        http=group,
    )


async def _send(
    client: HttpClient, request: Request, way: Way, receive: Callable[[Response], Awaitable[Received]]
) -> Received:
    """What `receive` makes of the response that the redirects end at."""
    if way.timeouts.total is None:
        return await _follow(client, request, way, receive)
    try:
        async with asyncio.timeout(way.timeouts.total):
            return await _follow(client, request, way, receive)
    except TimeoutError as error:
        raise _named(error, request.url) from error


async def _follow(
    client: HttpClient, request: Request, way: Way, receive: Callable[[Response], Awaitable[Received]]
) -> Received:
    try:
        for followed in range(way.redirects + 1):
            response = await _request(client, request, way)
            try:
                target = _target(response, request) if way.redirects else None
                if target is None:
                    return await receive(response)
                if followed == way.redirects:
                    break
                await _discard(response)
                if request.takes_its_body_elsewhere(response.status, target):
                    raise _body_kept(request, target)
                request = request.redirected(response.status, target)
            finally:
                response.release()
                await response.wait_for_close()
    except (aiohttp.ClientError, TimeoutError, AddressRefusedError, HeadersTooLargeError) as error:
        raise _named(error, request.url) from error
    raise CallFailedError("http.redirects", f"{name_of(request.url)} redirects once too often")


async def _request(client: HttpClient, request: Request, way: Way) -> Response:
    try:
        if client.direct.can_send(request):
            return await client.direct.send(request, way.tls, way.timeouts.client)
        return await client.session.request(
            request.method,
            request.url,
            headers=request.headers,
            data=request.payload(),
            allow_redirects=False,
            ssl=way.tls,
            timeout=way.timeouts.client,
        )
    except ValueError as error:  # something that only the client finds, such as a host name that is none
        if isinstance(error, aiohttp.ClientError):
            raise
        raise RequestError(f"the request cannot be sent ({type(error).__name__})") from None


async def _received(
    response: Response, call: ToolCall, context: ToolContext, policy: HttpPolicy
) -> tuple[dict[str, Any], object]:
    group = group_of(response, policy)
    try:
        return group, await read_result(response, call, context, policy)
    except BodyTooLargeError:
        failure = _too_large(name_of(response.url), policy.max_body_bytes)
    except TooMuchDataError:
        failure = CallFailedError(
            "http.too_large",
            f"the JSON of {name_of(response.url)} would take more than {MAX_DATA_BYTES >> 20} MiB of memory",
            limit=MAX_DATA_BYTES,
        )
    except BodyError as mistake:
        if response.status >= 400:  # a proxy's error page: the status says more than the body
            return group, mistake.text
        failure = CallFailedError("http.protocol", f"{name_of(response.url)}: {mistake}")
        failure.result = mistake.text
    except (aiohttp.ClientError, TimeoutError) as error:
        failure = _named(error, response.url)
    failure.group = group
    raise failure


def _too_large(where: str, limit: int) -> CallFailedError:
    return CallFailedError("http.too_large", f"the body of {where} has more than {limit} bytes", limit=limit)


def _target(response: Response, request: Request) -> URL | None:
    """Where the response redirects to; None where it is none that can be followed."""
    location = response.headers.get("Location")
    if response.status not in REDIRECTS or location is None:
        return None
    try:
        target = address(str(request.url.join(URL(location))))
    except (ValueError, RequestError):
        raise CallFailedError(
            "http.address_refused", f"{name_of(request.url)} redirects to what is no address of a web server"
        ) from None
    # Another party does not choose which credentials are sent.
    return target.with_user(None).with_fragment(None)


def _body_kept(request: Request, target: URL) -> CallFailedError:
    """A body holds credentials as often as a header does, and nothing says which of its parts they are."""
    return CallFailedError(
        "http.redirects",
        f"{name_of(request.url)} redirects to {target.origin()}, another origin, and the body of a "
        f"{request.method} does not follow there: if it is meant to, write the address there as `url`",
    )


async def _discard(response: Response) -> None:
    """Reads the body of a redirect so that the connection can be used again, unless it is unduly long."""
    size = 0
    async for piece in response.content.iter_chunked(BODY_OF_A_REDIRECT):
        size += len(piece)
        if size > BODY_OF_A_REDIRECT:
            response.close()
            return


def _named(error: Exception, url: URL) -> CallFailedError:
    """The failure that an exception of the client means."""
    where = name_of(url)
    match error:
        case AddressRefusedError():
            return CallFailedError("http.address_refused", f"{where}: {error.message}")
        case aiohttp.InvalidURL():  # a number that is not written like an address
            return CallFailedError(
                "http.address_refused", f"{where}: the host is not written as a name or an address"
            )
        case TimeoutError():
            return CallFailedError("timeout", f"{where} did not answer in time", retryable=True)
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return CallFailedError("http.tls", f"{where}: {_tls_reason(error)}")
        case aiohttp.ClientConnectorDNSError():
            return CallFailedError(
                "http.connect", f"{where}: the host name cannot be resolved", retryable=True
            )
        case aiohttp.ClientConnectorError():
            why = error.os_error.strerror or "no connection"
            return CallFailedError("http.connect", f"{where}: {why}", retryable=True)
        case aiohttp.ClientPayloadError():
            return CallFailedError(
                "http.protocol", f"{where}: the body is incomplete or damaged", retryable=True
            )
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return CallFailedError("http.connect", f"{where}: the connection broke", retryable=True)
        case HeadersTooLargeError():
            return CallFailedError("http.protocol", f"{where}: the headers of the response are too large")
    return CallFailedError("http.protocol", f"{where}: the response is not HTTP that can be read")


def _tls_reason(error: aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError) -> str:
    cause = (
        error.certificate_error
        if isinstance(error, aiohttp.ClientConnectorCertificateError)
        else error.os_error
    )
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the server's certificate is not accepted: {cause.verify_message}"
    return "no secure connection could be made"


def _timeouts(spec: Mapping[str, Any]) -> Timeouts:
    """From `spec.timeout`, where that is a mapping; a number is the whole call's, which the worker keeps."""
    written = spec.get("timeout")
    if not isinstance(written, Mapping):
        return _timeouts_of(None, None, None)
    try:
        return _timeouts_of(written.get("connect"), written.get("read"), written.get("total"))
    except TypeError:  # a list or a mapping, which no cache takes
        raise CallFailedError("config.invalid", "`timeout` holds what is not a duration") from None


@lru_cache(maxsize=256, typed=True)  # few are ever written, and each call has some
def _timeouts_of(connect: object, read: object, total: object) -> Timeouts:
    written = {"connect": connect, "read": read, "total": total}
    found = {name: parse_duration(value) if value else None for name, value in written.items()}
    if wrong := [name for name, value in written.items() if value and found[name] is None]:
        raise CallFailedError("config.invalid", f"`timeout.{wrong[0]}` is not a duration")
    client = aiohttp.ClientTimeout(
        total=None, connect=found["connect"], sock_read=found["read"], ceil_threshold=3600
    )
    return Timeouts(found["total"], client)


def _redirect_limit(written: object) -> int:
    if isinstance(written, bool) or written is None:
        return MAX_REDIRECTS if written else 0
    if isinstance(written, int) and written >= 0:
        return written
    raise CallFailedError("config.invalid", "`redirects` is neither true, false nor a number")


def _ok_statuses(written: object) -> frozenset[int]:
    """The statuses of `spec.ok_status`: numbers, or texts such as `404` and `4xx`, alone or in a list."""
    if written is None:
        return frozenset()
    found: set[int] = set()
    for each in written if isinstance(written, list | tuple) else [written]:
        text = str(each).strip().lower()
        if text.isdecimal():
            found.add(int(text))
        elif len(text) == 3 and text[0].isdecimal() and text[1:] == "xx":
            found.update(range(int(text[0]) * 100, int(text[0]) * 100 + 100))
        else:
            raise CallFailedError("config.invalid", "`ok_status` is neither a status code nor a list of them")
    return frozenset(found)
