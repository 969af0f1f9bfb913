"""Runs the calls of the kind `nats`: one operation, on a connection of its login's pool.

What a call must have and may have is a table; a field that means nothing to the operation is a mistake, for
a `ttl` that is silently dropped would be one that nobody finds.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final, NamedTuple

import msgspec
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from noetl.errors import NoetlError
from noetl.records.durations import parse_duration
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.nats import DESCRIPTION, NatsConfig
from noetl.tools.nats_keys import Keys
from noetl.tools.nats_login import read_login
from noetl.tools.nats_objects import object_delete, object_get, object_list, object_put
from noetl.tools.nats_pool import Connection, pool_for
from noetl.tools.nats_streams import MESSAGE_ID, MISSING, REQUEST_SECONDS, named, publish_confirmed
from noetl.tools.nats_values import encoded, result_of
from noetl.tools.outcomes import failed, failed_with, ok


class Done(NamedTuple):
    result: Any = None
    revision: int | None = None
    stream: str | None = None
    sequence: int | None = None


class Fields(NamedTuple):
    needed: tuple[str, ...]
    allowed: tuple[str, ...] = ()


OPERATIONS: Final = {
    "kv_get": Fields(("bucket", "key")),
    "kv_put": Fields(("bucket", "key", "value")),
    "kv_create": Fields(("bucket", "key", "value"), ("ttl",)),
    "kv_update": Fields(("bucket", "key", "value", "revision")),
    "kv_delete": Fields(("bucket", "key")),
    "kv_keys": Fields(("bucket",), ("key",)),
    "object_get": Fields(("bucket", "key")),
    "object_put": Fields(("bucket", "key", "value")),
    "object_delete": Fields(("bucket", "key")),
    "object_list": Fields(("bucket",)),
    "publish": Fields(("subject",), ("value", "headers", "message_id", "stream")),
    "request": Fields(("subject",), ("value", "headers")),
}
EVERYWHERE: Final = ("operation", "url", "auth")

_SUBJECT: Final = re.compile(r"[^\s.*>\x00-\x1f\x7f]+(\.[^\s.*>\x00-\x1f\x7f]+)*")
_HEADER: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STREAM: Final = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+")


async def run_nats(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    nothing = dict.fromkeys(DESCRIPTION.outcome_fields)
    try:
        config = _read(call)
        pool = await pool_for(await read_login(config, context), context)
        async with pool.connection() as connection:
            done = await connection.until_done(_operate(connection, config, call, context))
    except CallFailedError as failure:
        return failed_with(call, started, failure, nats=nothing)
    except NoetlError as error:  # a credential that cannot be had, a result that cannot be stored
        return failed(call, started, error.code, error.message, nats=nothing)
    except msgspec.ValidationError as mistake:
        return failed(call, started, "config.invalid", str(mistake), nats=nothing)
    except (NatsError, TimeoutError, ConnectionError) as error:
        return failed_with(call, started, named(error), nats=nothing)
    group = {"revision": done.revision, "stream": done.stream, "sequence": done.sequence}
    return ok(call, started, done.result, nats=group)


def _read(call: ToolCall) -> NatsConfig:
    config = msgspec.convert(call.config, NatsConfig)
    fields = OPERATIONS[config.operation]
    # A value may be null: then it is there, and is JSON's `null`.
    given = {name for name in call.config if name == "value" or call.config[name] is not None}
    for name in fields.needed:
        if name not in given:
            raise CallFailedError("config.invalid", f"`{config.operation}` needs `{name}`")
    known = {*NatsConfig.__struct_fields__} - {*fields.needed, *fields.allowed, *EVERYWHERE}
    if useless := sorted(given & known):
        raise CallFailedError("config.invalid", f"`{useless[0]}` means nothing to `{config.operation}`")
    return config


async def _operate(connection: Connection, config: NatsConfig, call: ToolCall, context: ToolContext) -> Done:
    js = connection.client.jetstream(timeout=REQUEST_SECONDS)
    body = encoded(config.value) if "value" in call.config else b""
    if config.operation == "publish":
        return await _publish(connection, js, config, body, call)
    if config.operation == "request":
        return await _request(connection, config, body, call, context)
    if config.operation.startswith("kv_"):
        return await _with_keys(js, config, body, call, context)
    return await _with_objects(js, config, body, call, context)


async def _with_keys(
    js: JetStreamContext, config: NatsConfig, body: bytes, call: ToolCall, context: ToolContext
) -> Done:
    keys, key = Keys(js, config.bucket or "", call.action_id), config.key or ""
    match config.operation:
        case "kv_get":
            value, revision = await keys.get(key)
            return Done(await result_of(value, call, context), revision)
        case "kv_put":
            return Done(revision=await keys.put(key, body))
        case "kv_create":
            return Done(revision=await keys.create(key, body, config.ttl))
        case "kv_update":
            return Done(revision=await keys.update(key, body, config.revision or 0))
        case "kv_delete":
            await keys.delete(key)
            return Done()
    return Done(await keys.keys(key or ">"))


async def _with_objects(
    js: JetStreamContext, config: NatsConfig, body: bytes, call: ToolCall, context: ToolContext
) -> Done:
    bucket, name = config.bucket or "", config.key or ""
    if config.operation == "object_list":
        return Done(await object_list(js, bucket))
    if not name:
        raise CallFailedError("config.invalid", "`key` is empty: an object needs a name")
    match config.operation:
        case "object_get":
            return Done(await object_get(js, bucket, name, call, context))
        case "object_put":
            await object_put(js, bucket, name, body)
        case "object_delete":
            await object_delete(js, bucket, name)
    return Done()


async def _publish(
    connection: Connection, js: JetStreamContext, config: NatsConfig, body: bytes, call: ToolCall
) -> Done:
    subject, headers = _subject(config), _headers(config)
    if config.message_id is not None:
        headers[MESSAGE_ID] = _header_value(config.message_id)
    headers.setdefault(MESSAGE_ID, call.action_id)
    if config.stream is None:
        await connection.client.publish(subject, body, headers=headers)
        # The answer to a ping says that the server has taken what came before it. The library's first ping
        # overtakes the message, which waits in a queue; the second one cannot.
        for _ in range(2):
            await connection.client.flush(timeout=int(REQUEST_SECONDS))
        return Done()
    if not _STREAM.fullmatch(config.stream):
        raise CallFailedError("config.invalid", "`stream` is not the name of one")
    headers["Nats-Expected-Stream"] = config.stream
    missing = CallFailedError(MISSING, f"there is no stream `{config.stream}`")
    confirmed = await publish_confirmed(js, subject, body, headers, stream=config.stream, missing=missing)
    return Done(stream=confirmed.stream, sequence=confirmed.seq)


async def _request(
    connection: Connection, config: NatsConfig, body: bytes, call: ToolCall, context: ToolContext
) -> Done:
    limit = call.spec.get("timeout")
    if isinstance(limit, dict):
        limit = limit.get("total")
    seconds = parse_duration(limit) or REQUEST_SECONDS
    headers = _headers(config) or None
    answer = await connection.client.request(_subject(config), body, timeout=seconds, headers=headers)
    return Done(await result_of(answer.data, call, context))


def _subject(config: NatsConfig) -> str:
    subject = config.subject or ""
    if not _SUBJECT.fullmatch(subject):
        raise CallFailedError(
            "config.invalid", "`subject` is not one that can be sent to: words with dots between them"
        )
    return subject


def _headers(config: NatsConfig) -> dict[str, str]:
    given = {name: value for name, value in (config.headers or {}).items() if value is not None}
    for name in given:
        if not _HEADER.fullmatch(name):
            raise CallFailedError("config.invalid", "`headers` has a name that cannot be sent")
    return {name: _header_value(value) for name, value in given.items()}


def _header_value(value: object) -> str:
    text = encoded(value).decode()
    if "\r" in text or "\n" in text:
        raise CallFailedError("config.invalid", "a header has more than one line")
    return text
