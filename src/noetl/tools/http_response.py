"""What an `http` task makes of a response: data, text, or a reference to the stored body.

Memory is bounded whatever the other side sends: a body is read in pieces, becomes data only up to a limit,
and goes to the result store piece by piece above it. Sizes count after decompression, so a small
compressed body cannot become a large one unseen. All text that leaves here can be written as UTF-8, whatever
the other side declares; and no codec runs but those of `noetl.tools.http_charsets`.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import lru_cache
from typing import Any, Final, Literal, Protocol

import aiohttp
import msgspec
from aiohttp.helpers import parse_content_type
from multidict import CIMultiDictProxy
from yarl import URL

from noetl.records.protocols import ToolCall, ToolContext
from noetl.records.result_ref import ref_to_data
from noetl.tools.http_charsets import codec_of
from noetl.tools.http_session import HttpPolicy

PIECE: Final = 1 << 16
LARGE: Final = 1 << 20
"""A body over this is decoded in a thread, so that other tasks and the call's own `timeout` go on."""
MAX_DATA_BYTES: Final = 640 << 20
"""Of memory that a JSON body may take as data, by estimate: ten times the largest text that is decoded."""
INLINE_MAX_BYTES: Final = 65_536
UTF8: Final = ("utf-8", "ascii")
"""Charsets whose text is UTF-8 as it is."""
TEXT_TYPES: Final = frozenset(
    {
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/jsonl",
        "application/sql",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)
REQUEST_ID_HEADERS: Final = (
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "x-ms-request-id",
    "x-guploader-uploadid",
    "cf-ray",
)


class Response(Protocol):
    """What is read of a response, whichever way its request went."""

    @property
    def status(self) -> int: ...
    @property
    def url(self) -> URL: ...
    @property
    def headers(self) -> CIMultiDictProxy[str]: ...
    @property
    def content(self) -> aiohttp.StreamReader: ...

    def close(self) -> None: ...
    def release(self) -> object: ...
    async def wait_for_close(self) -> None: ...


class BodyTooLargeError(Exception):
    """More bytes than the operator lets a body have."""


class BodyError(Exception):
    """A body that is not what the response declares; `text` is what it is."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class HeadersTooLargeError(Exception):
    """More bytes than the operator lets the headers of a response have."""


class TooMuchDataError(Exception):
    """JSON that is small as text and large in memory, such as a long list of empty lists."""


def header_text(value: str) -> str:
    """A header as text: UTF-8 where it is that, otherwise Latin-1, which any bytes are."""
    if value.isascii():
        return value
    # The client library puts lone surrogates in place of bytes that are not UTF-8.
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def group_of(response: Response, policy: HttpPolicy) -> dict[str, Any]:
    """The fields under `outcome.http`; a header that came more than once is joined by commas."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        name, value = header_text(name.lower()), header_text(value)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if sum(map(len, headers)) + sum(map(len, headers.values())) > policy.max_header_bytes:
        raise HeadersTooLargeError
    request_id = next((headers[name] for name in REQUEST_ID_HEADERS if name in headers), None)
    return {"status": response.status, "headers": headers, "request_id": request_id}


async def read_result(response: Response, call: ToolCall, context: ToolContext, policy: HttpPolicy) -> Any:  # noqa: ANN401 - whatever the body holds
    """The decoded body, or the data of a reference to it; null where there is none."""
    knobs = call.spec.get("result")
    knobs = knobs if isinstance(knobs, dict) else {}
    inline = knobs.get("inline_max_bytes")
    content_type = response.headers.get("Content-Type")
    declared = _declared(None if content_type is None else header_text(content_type))
    if declared.form == "json":
        limit = policy.max_decoded_bytes
    elif declared.form == "bytes":
        limit = 0
    else:
        limit = inline if isinstance(inline, int) else INLINE_MAX_BYTES
    content = response.content
    came_with_head = content.is_eof() and content.total_bytes <= min(limit, policy.max_body_bytes, LARGE)
    if came_with_head and declared.form != "unknown":
        return _decoded(content.read_nowait(), declared)
    async with aclosing(_pieces(content, policy.max_body_bytes)) as pieces:
        start = bytearray()
        async for piece in pieces:
            start += piece
            if len(start) > limit:
                break
        else:
            if declared.form != "unknown" or _is_text(start):
                return await _decoded_aside(bytes(start), declared)
        store = knobs.get("store") or "auto"
        async with aclosing(_stored_form(_joined(bytes(start), pieces), declared)) as body:
            stored = await context.results.put(
                call.execution_id, body, media_type=declared.media_type, store=store
            )
    return ref_to_data(stored)


class Declared(msgspec.Struct, frozen=True):
    """What a response says that its body is."""

    form: Literal["json", "text", "unknown", "bytes"]
    media_type: str = "application/octet-stream"
    charset: str = "utf-8"


@lru_cache(maxsize=256)
def _declared(header: str | None) -> Declared:
    if header is None:
        return Declared("unknown")
    kind, parameters = parse_content_type(header)
    charset = codec_of(parameters.get("charset") or "utf-8")
    if kind in ("application/json", "text/json") or kind.endswith("+json"):
        return Declared("json", kind, charset)
    if kind.startswith("text/") or kind.endswith("+xml") or kind in TEXT_TYPES:
        return Declared("text", kind, charset)
    return Declared("bytes", kind, charset)


async def _pieces(content: aiohttp.StreamReader, limit: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for piece in content.iter_chunked(PIECE):
        size += len(piece)
        if size > limit:
            raise BodyTooLargeError
        yield piece


async def _joined(start: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield start
    async for piece in rest:
        yield piece


async def _stored_form(
    pieces: AsyncGenerator[bytes, None], declared: Declared
) -> AsyncGenerator[bytes, None]:
    """The body as it is kept: text as UTF-8, whatever it came in, for a reference names no charset."""
    if declared.form == "bytes" or declared.charset in UTF8:
        async for piece in pieces:
            yield piece
        return
    decoder = codecs.getincrementaldecoder(declared.charset)("replace")
    async for piece in pieces:
        yield decoder.decode(piece).encode()
    yield decoder.decode(b"", final=True).encode()


def _is_text(body: bytearray) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return 0 not in body


async def _decoded_aside(body: bytes, declared: Declared) -> Any:  # noqa: ANN401 - the body's data
    if len(body) <= LARGE:
        return _decoded(body, declared)

    def work() -> Any:  # noqa: ANN401 - the body's data
        if declared.form == "json" and _size_as_data(body) > MAX_DATA_BYTES:
            raise TooMuchDataError
        return _decoded(body, declared)

    return await asyncio.to_thread(work)


def _size_as_data(body: bytes) -> int:
    """An upper estimate of the memory that a JSON text takes as data, without decoding it."""
    return len(body) + 32 * body.count(b",") + 72 * body.count(b"[") + 184 * body.count(b"{")


def _decoded(body: bytes, declared: Declared) -> Any:  # noqa: ANN401 - the body's data
    if not body:
        return None
    if declared.form == "json":
        return _json(body, declared)
    return _text(body, declared)


def _json(body: bytes, declared: Declared) -> Any:  # noqa: ANN401 - the body's data
    text = body
    if declared.charset not in UTF8:
        text = _text(body, declared).encode()
    try:
        return msgspec.json.decode(text.removeprefix(codecs.BOM_UTF8))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BodyError(
            f"the body is declared as JSON and is not JSON: {why}", _text(body[:PIECE], declared)
        ) from None


def _text(body: bytes, declared: Declared) -> str:
    return body.removeprefix(codecs.BOM_UTF8).decode(declared.charset, "replace")
