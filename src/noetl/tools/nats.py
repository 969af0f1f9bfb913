"""`nats`: key-value pairs, objects and messages of a NATS server; `nats_calls.py` runs it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth
from noetl.tools.outcomes import failed

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class NatsConfig(msgspec.Struct, frozen=True, kw_only=True):
    operation: Annotated[
        Literal[
            "kv_get",
            "kv_put",
            "kv_create",
            "kv_update",
            "kv_delete",
            "kv_keys",
            "object_get",
            "object_put",
            "object_delete",
            "object_list",
            "publish",
            "request",
        ],
        Meta(description="What to do, in which part of NATS."),
    ]
    url: Annotated[str | None, Meta(description="The server, where `auth` does not name it.")] = None
    bucket: Annotated[str | None, Meta(description="The key-value or object bucket.")] = None
    key: Annotated[
        str | None, Meta(description="The key or the object's name; with `kv_keys` a pattern.")
    ] = None
    value: Annotated[
        Any, Meta(description="What is stored or sent: a text as it is, any other value as JSON.")
    ] = None
    revision: Annotated[
        int | None, Meta(description="With `kv_update`: the revision that must still be the last one.")
    ] = None
    ttl: Annotated[
        float | str | None, Meta(description="With `kv_create`: how long the key lives, in whole seconds.")
    ] = None
    subject: Annotated[str | None, Meta(description="With `publish` and `request`: the subject.")] = None
    headers: Annotated[dict[str, Any] | None, Meta(description="Headers of the message.")] = None
    message_id: Annotated[
        str | None,
        Meta(description="With `publish`: what a stream drops duplicates by; the action's id by default."),
    ] = None
    stream: Annotated[
        str | None, Meta(description="With `publish`: the stream that must confirm the message.")
    ] = None
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="nats",
    summary="Reads and writes key-value pairs and objects of NATS, and publishes messages.",
    config=NatsConfig,
    one_of=(("bucket", "subject"),),
    outcome_group="nats",
    outcome_fields=("revision", "stream", "sequence"),
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    try:
        from noetl.tools.nats_calls import run_nats  # noqa: PLC0415 - imports the client library
    except ModuleNotFoundError as missing:
        message = f"the NATS client is not installed (`{missing.name}`): install `noetl[nats]`"
        fields: dict[str, Any] = dict.fromkeys(DESCRIPTION.outcome_fields)
        return failed(call, time.monotonic(), "tool.not_installed", message, nats=fields)
    return await run_nats(call, context)
