"""What the buckets of NATS have in common: each is a stream of messages, and is read and written as one.

The client library is told to publish and to read here, and what it raises is named in one place. Reading
makes no subscription that outlives a call.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any, Final

from nats.aio.msg import Msg
from nats.errors import (
    BadHeaderError,
    BadSubjectError,
    MaxPayloadError,
    NoRespondersError,
)
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, PubAck
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from noetl.tools.call_failures import CallFailedError
from noetl.tools.nats_pool import CONNECTION

REQUEST_SECONDS: Final = 10.0
BATCH: Final = 500
MOST_NAMES: Final = 1_000_000
LEFT_SECONDS: Final = 10.0
"""How long a server keeps the cursor of a listing that is over; removing it would need one more right."""

MISSING: Final = "nats.missing"
REFUSED: Final = "nats.refused"
UNAVAILABLE: Final = "nats.unavailable"
MESSAGE_ID: Final = "Nats-Msg-Id"
EXPECTED_REVISION: Final = "Nats-Expected-Last-Subject-Sequence"

WRONG_REVISION: Final = (10071, 10164)
_WITHOUT_JETSTREAM: Final = (10039, 10076)
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]+")


def checked_bucket(name: str) -> str:
    if not _BUCKET.fullmatch(name):
        raise CallFailedError("config.invalid", "`bucket` is not the name of one: letters, digits, `_`, `-`")
    return name


def no_bucket(name: str) -> CallFailedError:
    return CallFailedError(MISSING, f"there is no bucket `{name}`")


async def publish_confirmed(
    js: JetStreamContext,
    subject: str,
    body: bytes,
    headers: dict[str, str],
    *,
    stream: str,
    missing: CallFailedError,
) -> PubAck:
    """Publishes a message that a stream must confirm; raises `missing` where there is no such stream."""
    try:
        return await js.publish(subject, body, headers=headers or None)
    except NoStreamResponseError:
        try:
            await js.stream_info(stream)
        except NotFoundError:
            raise missing from None
        raise CallFailedError(REFUSED, f"the stream `{stream}` takes no messages of this subject") from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, NatsError):
            raise
        raise CallFailedError(REFUSED, "what answered the message is no stream") from None


async def last_messages(
    js: JetStreamContext, stream: str, subject: str, *, headers_only: bool = False
) -> AsyncGenerator[Msg, None]:
    """The last message of each subject that matches."""
    wanted = ConsumerConfig(
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.NONE,
        headers_only=headers_only or None,
        mem_storage=True,
        num_replicas=1,
        inactive_threshold=LEFT_SECONDS,
    )
    cursor = await js.pull_subscribe(subject, stream=stream, config=wanted)
    about = await cursor.consumer_info()
    left = about.num_pending or 0
    if left > MOST_NAMES:
        raise CallFailedError("nats.too_large", f"there are more than {MOST_NAMES} names")
    while left:
        messages = await cursor.fetch(min(left, BATCH), timeout=REQUEST_SECONDS)
        for message in messages:
            yield message
        left = messages[-1].metadata.num_pending
    await cursor.unsubscribe()


def named(error: Exception) -> CallFailedError:
    """The failure that an exception of the client library means."""
    match error:
        case NoRespondersError():
            return CallFailedError("nats.no_responders", "nobody answers on this subject", retryable=True)
        case TimeoutError():
            return CallFailedError("timeout", "there was no answer in time", retryable=True)
        case MaxPayloadError():
            return CallFailedError("nats.too_large", "the server takes no message as large as this one")
        case BadSubjectError():
            return CallFailedError("config.invalid", "`subject` is not one that can be sent to")
        case BadHeaderError():
            return CallFailedError("config.invalid", "`headers` has a name that cannot be sent")
        case NoStreamResponseError():
            return CallFailedError(MISSING, "no stream takes messages of this subject")
        case APIError():
            return _answered(error)
    return CallFailedError(CONNECTION, "the connection broke", retryable=True)


def _answered(error: APIError) -> CallFailedError:
    """What JetStream said; nothing where it did not answer at all."""
    said = error.description or "JetStream does not answer"
    details: dict[str, Any] = {"code": error.err_code} if error.err_code else {}
    is_down = error.code is None or (error.code >= 500 and error.err_code not in _WITHOUT_JETSTREAM)
    if is_down:
        return CallFailedError(UNAVAILABLE, f"NATS: {said}", retryable=True, **details)
    return CallFailedError(REFUSED, f"NATS: {said}", **details)
