"""The key-value operations of `nats`.

A write that needs a certain revision carries the action's id, so an attempt that repeats one whose answer
was lost is not refused for its own success. (The server would drop it as a duplicate, but looks at the
revision first.) An empty value is how a removed key looks, and counts as none.
"""

from __future__ import annotations

import math
import re
from contextlib import aclosing
from typing import Final, NamedTuple

from nats.js import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from noetl.records.durations import AS_WRITTEN, parse_duration
from noetl.tools.call_failures import CallFailedError
from noetl.tools.nats_streams import (
    EXPECTED_REVISION,
    WRONG_REVISION,
    checked_bucket,
    last_messages,
    no_bucket,
    publish_confirmed,
)

TTL: Final = "Nats-TTL"
ACTION: Final = "Noetl-Action"
_OPERATION: Final = "KV-Operation"
_MARKER: Final = "Nats-Marker-Reason"
_SIZE: Final = "Nats-Msg-Size"
_KEY: Final = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")
_PATTERN: Final = re.compile(r"([-/_=a-zA-Z0-9]+|\*)(\.([-/_=a-zA-Z0-9]+|\*))*(\.>)?|>")


class Last(NamedTuple):
    """What was last written of a key."""

    value: bytes = b""
    revision: int = 0
    action_id: str | None = None


class Keys:
    """One bucket, for one call."""

    def __init__(self, js: JetStreamContext, bucket: str, action_id: str) -> None:
        self._js = js
        self._bucket = checked_bucket(bucket)
        self._action_id = action_id

    async def get(self, key: str) -> tuple[bytes, int | None]:
        """The value and its revision; nothing where the key is not there."""
        last = await self._last(_checked(key))
        return (last.value, last.revision) if last.value else (b"", None)

    async def put(self, key: str, value: bytes) -> int:
        return await self._publish(key, _not_empty(value), {})

    async def create(self, key: str, value: bytes, ttl: object) -> int:
        headers = {} if ttl is None else {TTL: str(_whole_seconds(ttl))}
        revision = await self._publish_after(0, key, value, headers)
        if revision is not None:
            return revision
        last = await self._last(key)
        if last.value and last.action_id == self._action_id:
            return last.revision
        if not last.value:  # the mark of a key that was removed
            revision = await self._publish_after(last.revision, key, value, headers)
        if revision is None:
            raise CallFailedError("nats.exists", f"the key `{key}` is there already")
        return revision

    async def update(self, key: str, value: bytes, expected: int) -> int:
        revision = await self._publish_after(expected, key, value, {})
        if revision is not None:
            return revision
        last = await self._last(key)
        if last.value and last.action_id == self._action_id:
            return last.revision
        raise CallFailedError("nats.revision", f"{expected} is not the last revision of the key `{key}`")

    async def delete(self, key: str) -> None:
        await self._publish(key, b"", {_OPERATION: "DEL"})

    async def keys(self, pattern: str) -> list[str]:
        if not _PATTERN.fullmatch(pattern):
            raise CallFailedError("config.invalid", "`key` is not a pattern of keys, such as `orders.*`")
        await self._takes_direct_reads()
        prefix = f"$KV.{self._bucket}."
        listed: list[str] = []
        messages = last_messages(self._js, f"KV_{self._bucket}", prefix + pattern, headers_only=True)
        async with aclosing(messages) as found:
            async for message in found:
                headers = message.headers or {}
                if _OPERATION not in headers and _MARKER not in headers and headers.get(_SIZE) != "0":
                    listed.append(message.subject.removeprefix(prefix))
        return sorted(listed)

    async def _takes_direct_reads(self) -> bool:
        """Whether any of the servers that keep the bucket answers; raises where there is no such bucket."""
        try:
            about = await self._js.stream_info(f"KV_{self._bucket}")
        except NotFoundError:
            raise no_bucket(self._bucket) from None
        return bool(about.config.allow_direct)

    async def _last(self, key: str) -> Last:
        """What was last written of the key; nothing where that was its removal."""
        is_direct = await self._takes_direct_reads()
        try:
            found = await self._js.get_msg(
                f"KV_{self._bucket}", subject=f"$KV.{self._bucket}.{key}", direct=is_direct
            )
        except NotFoundError:
            return Last()
        headers = found.headers or {}
        if _OPERATION in headers or _MARKER in headers:
            return Last(revision=found.seq or 0)
        return Last(found.data or b"", found.seq or 0, headers.get(ACTION))

    async def _publish_after(
        self, revision: int, key: str, value: bytes, headers: dict[str, str]
    ) -> int | None:
        """The next revision; None where the last one is another."""
        expecting = {**headers, EXPECTED_REVISION: str(revision), ACTION: self._action_id}
        try:
            return await self._publish(key, _not_empty(value), expecting)
        except APIError as refused:
            if refused.err_code in WRONG_REVISION:
                return None
            raise

    async def _publish(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        done = await publish_confirmed(
            self._js,
            f"$KV.{self._bucket}.{_checked(key)}",
            value,
            headers,
            stream=f"KV_{self._bucket}",
            missing=no_bucket(self._bucket),
        )
        return done.seq


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise CallFailedError(
            "config.invalid", "`key` is not a key: letters, digits, `-`, `/`, `_`, `=`, and dots between them"
        )
    return key


def _not_empty(value: bytes) -> bytes:
    if not value:
        raise CallFailedError(
            "config.invalid", "`value` is empty, which is how a removed key looks; `kv_delete` removes one"
        )
    return value


def _whole_seconds(ttl: object) -> int:
    seconds = parse_duration(ttl)
    if not seconds:
        raise CallFailedError("config.invalid", f"`ttl` is not a duration: {AS_WRITTEN}")
    return math.ceil(seconds)
