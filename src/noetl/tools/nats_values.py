"""Values on their way to NATS and back: a text as it is, anything else as JSON; JSON comes back as data.

NATS knows bytes only, so a text that happens to be JSON comes back as what it says.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from noetl.records.protocols import ToolCall, ToolContext
from noetl.records.result_ref import ref_to_data

BINARY: Final = "application/octet-stream"


def encoded(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


async def result_of(body: bytes, call: ToolCall, context: ToolContext) -> Any:  # noqa: ANN401 - whatever it holds
    """Data, text, or a reference to bytes that are neither; null where there are none."""
    if not body:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return body.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        return await stored(body, call, context)


async def stored(body: bytes | AsyncIterator[bytes], call: ToolCall, context: ToolContext) -> dict[str, Any]:
    """The data of a reference to the body, which goes to the result store in pieces."""
    knobs = call.spec.get("result")
    store = knobs.get("store") if isinstance(knobs, dict) else None
    kept = await context.results.put(call.execution_id, body, media_type=BINARY, store=store or "auto")
    return ref_to_data(kept)
