"""Keys and values in NATS, each with a time to live of its own that every write sets anew.

The client library gives a time to live only to a key it creates; its `put` and `update` would make the key
stay for ever. So writes are published here, with the revision they expect and the time. Times are whole
seconds, rounded up: who needs to be exact writes the moment into the value and looks at it. A value is never
empty; an empty one is the mark of a key that was removed, and counts as absent.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from noetl.bus.nats_connection import NatsConnection, NatsDownError

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

HISTORY: Final = 5
"""Values kept of a key. Each goes when its own time is over, and a removal takes them all."""
REMOVED_SECONDS: Final = 60
"""How long the mark of a removed key is kept, so that a late write with an old revision is refused."""
WRONG_REVISION: Final = (10071, 10164)
"""What the server says where the revision is another than the expected one."""
LIST_SECONDS: Final = 10.0
EXPECTED_REVISION: Final = "Nats-Expected-Last-Subject-Sequence"


class NatsKeyValue:
    """One bucket; made where it is missing. The connection belongs to the caller."""

    def __init__(self, connection: NatsConnection, bucket: str, *, replicas: int = 1) -> None:
        self._connection = connection
        self._bucket = bucket
        self._replicas = replicas
        self._opened: tuple[int, KeyValue] | None = None
        """The bucket, and the connection it was opened on."""

    async def create(self, key: str, value: bytes, lasts_seconds: float) -> int | None:
        """The first revision of a key; None where it is there already."""
        # Imported already where there is a connection.
        from nats.js.errors import KeyWrongLastSequenceError  # noqa: PLC0415

        async with self._bucket_open() as bucket:
            try:
                return await bucket.create(_not_empty(key, value), value, msg_ttl=_whole(lasts_seconds))
            except KeyWrongLastSequenceError:
                return None

    async def get(self, key: str) -> tuple[bytes, int] | None:
        """The value and its revision."""
        # Imported already where there is a connection.
        from nats.js.errors import KeyNotFoundError  # noqa: PLC0415

        async with self._bucket_open() as bucket:
            try:
                entry = await bucket.get(key)
            except KeyNotFoundError:
                return None
            return (entry.value, entry.revision) if entry.value and entry.revision else None

    async def update(self, key: str, value: bytes, revision: int, lasts_seconds: float) -> int | None:
        """The next revision, with a new time to live; None where `revision` is not the last one."""
        # Imported already where there is a connection.
        from nats.js.errors import APIError  # noqa: PLC0415

        subject = self._subject(_not_empty(key, value))
        expected = {EXPECTED_REVISION: str(revision)}
        async with self._bucket_open():
            try:
                done = await self._jetstream().publish(
                    subject, value, headers=expected, msg_ttl=_whole(lasts_seconds)
                )
            except APIError as refused:
                if refused.err_code in WRONG_REVISION:
                    return None
                raise
            return done.seq

    async def put(self, key: str, value: bytes, lasts_seconds: float) -> None:
        """Whatever was there before."""
        subject = self._subject(_not_empty(key, value))
        async with self._bucket_open():
            await self._jetstream().publish(subject, value, msg_ttl=_whole(lasts_seconds))

    async def delete(self, key: str) -> None:
        """Removes the key with its history."""
        async with self._bucket_open() as bucket:
            await bucket.purge(key, msg_ttl=REMOVED_SECONDS)

    async def keys(self, pattern: str) -> list[str]:
        """The keys that match, in which `*` stands for one part between dots.

        The library's own listing reads the whole bucket; a watch of the pattern is answered by the server.
        """
        found = set()
        async with self._bucket_open() as bucket:
            watcher = await bucket.watch(pattern, ignore_deletes=True, meta_only=True)
            try:
                async with asyncio.timeout(LIST_SECONDS):
                    async for entry in watcher:
                        if entry is None:  # all that was there has been told
                            break
                        found.add(entry.key)
            finally:
                await watcher.stop()  # type: ignore[no-untyped-call]
        return sorted(found)

    @asynccontextmanager
    async def _bucket_open(self) -> AsyncIterator[KeyValue]:
        """The bucket; what goes wrong with the connection on the way is `NatsDownError`."""
        self._jetstream()  # raises where there is no connection, before anything is imported
        # Imported already where there is a connection.
        from nats.errors import Error as NatsError  # noqa: PLC0415
        from nats.js.errors import Error as JetStreamError  # noqa: PLC0415

        try:
            if self._opened is None or self._opened[0] != self._connection.connections:
                self._opened = (self._connection.connections, await self._made())
            yield self._opened[1]
        except (NatsError, JetStreamError, OSError, TimeoutError) as error:
            # The bucket may be gone with NATS's state: it is made again the next time.
            self._opened = None
            raise NatsDownError(
                f"NATS at {self._connection.shown} does not answer for `{self._bucket}`: {error!r}"
            ) from error

    async def _made(self) -> KeyValue:
        # Imported already where there is a connection.
        from nats.js.api import KeyValueConfig, StorageType  # noqa: PLC0415
        from nats.js.errors import BucketNotFoundError  # noqa: PLC0415

        jetstream = self._jetstream()
        try:
            return await jetstream.key_value(self._bucket)
        except BucketNotFoundError:
            config = KeyValueConfig(
                bucket=self._bucket,
                history=HISTORY,
                storage=StorageType.FILE,
                replicas=self._replicas,
                direct=False,  # a replica that answers for itself could still know a session that was revoked
            )
            return await jetstream.create_key_value(config)

    def _jetstream(self) -> JetStreamContext:
        return self._connection.jetstream()

    def _subject(self, key: str) -> str:
        return f"$KV.{self._bucket}.{key}"


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))


def _not_empty(key: str, value: bytes) -> str:
    if not value:
        raise ValueError(f"the value of `{key}` is empty, which is how a removed key looks")
    return key
