"""What an `http` task makes of a response: data, text, or a reference to the stored body.

Memory is bounded whatever the other side sends: a body is read in pieces, becomes data only up to a limit,
and goes to the result store piece by piece above it. Sizes count after decompression, so a small
compressed body cannot become a large one unseen.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, Literal

import aiohttp
import msgspec

from noetl.records.protocols import ToolCall, ToolContext
from noetl.records.result_ref import ref_to_data
from noetl.tools.http_session import HttpPolicy

PIECE: Final = 1 << 16
INLINE_MAX_BYTES: Final = 65_536
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


class BodyTooLargeError(Exception):
    """More bytes than the operator lets a body have."""


class BodyError(Exception):
    """A body that is not what the response declares; `text` is what it is."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class HeadersTooLargeError(Exception):
    """More bytes than the operator lets the headers of a response have."""


def group_of(response: aiohttp.ClientResponse, policy: HttpPolicy) -> dict[str, Any]:
    """The fields under `outcome.http`; a header that came more than once is joined by commas."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if sum(len(name) + len(value) for name, value in headers.items()) > policy.max_header_bytes:
        raise HeadersTooLargeError
    request_id = next((headers[name] for name in REQUEST_ID_HEADERS if name in headers), None)
    return {"status": response.status, "headers": headers, "request_id": request_id}


async def read_result(
    response: aiohttp.ClientResponse, call: ToolCall, context: ToolContext, policy: HttpPolicy
) -> Any:  # noqa: ANN401 - whatever the body holds
    """The decoded body, or the data of a reference to it; null where there is none."""
    knobs = call.spec.get("result")
    knobs = knobs if isinstance(knobs, dict) else {}
    inline = knobs.get("inline_max_bytes")
    form = _form(response)
    text_limit = inline if isinstance(inline, int) else INLINE_MAX_BYTES
    limit = {"json": policy.max_decoded_bytes, "text": text_limit, "unknown": text_limit, "bytes": 0}[form]
    async with aclosing(_pieces(response, policy.max_body_bytes)) as pieces:
        start = bytearray()
        async for piece in pieces:
            start += piece
            if len(start) > limit:
                break
        else:
            if form != "unknown" or _is_text(start):
                return _decoded(bytes(start), form, response)
        store = knobs.get("store") or "auto"
        async with aclosing(_joined(bytes(start), pieces)) as body:
            stored = await context.results.put(
                call.execution_id, body, media_type=_media_type(response), store=store
            )
    return ref_to_data(stored)


Form = Literal["json", "text", "unknown", "bytes"]


def _form(response: aiohttp.ClientResponse) -> Form:
    if "Content-Type" not in response.headers:
        return "unknown"
    kind = response.content_type
    if kind in ("application/json", "text/json") or kind.endswith("+json"):
        return "json"
    if kind.startswith("text/") or kind.endswith("+xml") or kind in TEXT_TYPES:
        return "text"
    return "bytes"


def _media_type(response: aiohttp.ClientResponse) -> str:
    return response.content_type if "Content-Type" in response.headers else "application/octet-stream"


async def _pieces(response: aiohttp.ClientResponse, limit: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for piece in response.content.iter_chunked(PIECE):
        size += len(piece)
        if size > limit:
            raise BodyTooLargeError
        yield piece


async def _joined(start: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    yield start
    async for piece in rest:
        yield piece


def _is_text(body: bytearray) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return 0 not in body


def _decoded(body: bytes, form: Form, response: aiohttp.ClientResponse) -> Any:  # noqa: ANN401 - the body's data
    if not body:
        return None
    if form == "json":
        return _json(body, response)
    return _text(body, response)


def _json(body: bytes, response: aiohttp.ClientResponse) -> Any:  # noqa: ANN401 - the body's data
    charset = _charset(response)
    if charset not in ("utf-8", "ascii"):
        body = _text(body, response).encode()
    try:
        return msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BodyError(
            f"the body is declared as JSON and is not JSON: {why}", _text(body[:PIECE], response)
        ) from None


def _text(body: bytes, response: aiohttp.ClientResponse) -> str:
    return body.removeprefix(codecs.BOM_UTF8).decode(_charset(response), "replace")


def _charset(response: aiohttp.ClientResponse) -> str:
    declared = response.charset or "utf-8"
    try:
        b"".decode(declared)  # refuses names that are unknown, and codecs that do not give text
        return codecs.lookup(declared).name
    except (LookupError, ValueError):
        return "utf-8"
