"""The object operations of `nats`: small objects become data, large ones go to the result store in pieces.

An object is read piece by piece as it is needed, and counts only if it has its checksum in the end.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import msgspec
from nats.js import JetStreamContext
from nats.js.api import ObjectInfo
from nats.js.errors import BadObjectMetaError, BucketNotFoundError, NotFoundError
from nats.js.object_store import ObjectStore

from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.nats_streams import REFUSED, checked_bucket, last_messages, no_bucket
from noetl.tools.nats_values import result_of, stored

DECODED_BYTES: Final = 8 << 20
"""A larger object is stored as it came, and is never in memory as a whole."""
STOP_SECONDS: Final = 2.0


async def object_get(
    js: JetStreamContext, bucket: str, name: str, call: ToolCall, context: ToolContext
) -> Any:  # noqa: ANN401 - whatever the object holds
    objects = await _store(js, bucket)
    try:
        info = await objects.get_info(name)
        if info.is_link():
            bucket, info = await _followed(js, info)
    except NotFoundError:
        return None
    except BadObjectMetaError:
        raise _unreadable() from None
    if not info.size:
        return None
    async with aclosing(_pieces(js, bucket, info)) as pieces:
        if info.size > DECODED_BYTES:
            return await stored(pieces, call, context)
        return await result_of(b"".join([piece async for piece in pieces]), call, context)


async def object_put(js: JetStreamContext, bucket: str, name: str, body: bytes) -> None:
    objects = await _store(js, bucket)
    source = _Source(body)
    putting = asyncio.ensure_future(objects.put(name, source))
    try:
        await asyncio.shield(putting)
    except asyncio.CancelledError:
        # The library takes back what it has sent if reading fails, but not if it is cancelled.
        source.is_stopped = True
        await asyncio.wait((putting,), timeout=STOP_SECONDS)
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        raise


async def object_delete(js: JetStreamContext, bucket: str, name: str) -> None:
    """That it is not there is what was asked for."""
    objects = await _store(js, bucket)
    try:
        await objects.delete(name)
    except NotFoundError:
        return


async def object_list(js: JetStreamContext, bucket: str) -> list[str]:
    await _store(js, bucket)
    names: list[str] = []
    async with aclosing(last_messages(js, f"OBJ_{bucket}", f"$O.{bucket}.M.>")) as found:
        async for message in found:
            try:
                about = msgspec.json.decode(message.data, type=_About)
            except msgspec.MsgspecError:
                raise _unreadable() from None
            if not about.deleted:
                names.append(about.name)
    return sorted(names)


class _About(msgspec.Struct):
    """What NATS keeps about an object, as far as a list needs it."""

    name: str
    deleted: bool = False


class _Source(io.BytesIO):
    """A body that can be told to end in a failure."""

    is_stopped = False

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - any buffer
        if self.is_stopped:
            raise ConnectionAbortedError
        return super().readinto(buffer)


async def _store(js: JetStreamContext, bucket: str) -> ObjectStore:
    try:
        return await js.object_store(checked_bucket(bucket))
    except BucketNotFoundError:
        raise no_bucket(bucket) from None


async def _followed(js: JetStreamContext, info: ObjectInfo) -> tuple[str, ObjectInfo]:
    """The object that a link leads to; NotFoundError where that is gone."""
    link = info.options.link if info.options else None
    if link is None or not link.name:
        raise CallFailedError(REFUSED, "the object is a link to a whole bucket")
    target = await (await _store(js, link.bucket)).get_info(link.name)
    if target.is_link():
        raise CallFailedError(REFUSED, "the object is a link to a link")
    return link.bucket, target


async def _pieces(js: JetStreamContext, bucket: str, info: ObjectInfo) -> AsyncGenerator[bytes, None]:
    stream, subject = f"OBJ_{bucket}", f"$O.{bucket}.C.{info.nuid}"
    is_direct = bool((await js.stream_info(stream)).config.allow_direct)
    digest, size, last = hashlib.sha256(), 0, 0
    while size < (info.size or 0):
        try:
            message = await js.get_msg(stream, seq=last + 1, subject=subject, next=True, direct=is_direct)
        except NotFoundError:
            raise _damaged("its pieces are not all there") from None
        if not message.data or not message.seq:
            raise _damaged("a piece of it is empty")
        last = message.seq
        size += len(message.data)
        digest.update(message.data)
        yield message.data
    if size != info.size or digest.digest() != _checksum(info):
        raise _damaged("it does not have its checksum")


def _checksum(info: ObjectInfo) -> bytes:
    _, _, written = (info.digest or "").partition("=")
    try:
        return base64.urlsafe_b64decode(written)
    except binascii.Error:
        return b""


def _unreadable() -> CallFailedError:
    return CallFailedError(REFUSED, "what NATS keeps about an object cannot be read")


def _damaged(why: str) -> CallFailedError:
    # Whoever writes the object anew takes the pieces of the earlier one away from those who read it.
    return CallFailedError("nats.damaged", f"the object was changed or damaged: {why}", retryable=True)
