"""Result bodies in a NATS object store, which every server and worker of a deployment reaches.

A body's name holds its checksum, so one that is stored twice is one object. The bucket is made where it is
missing; whoever needs the bodies to outlive NATS chooses another store.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final

from noetl.records.result_ref import ResultRef
from noetl.results.bodies import (
    ResultDamagedError,
    ResultGoneError,
    ResultStoreError,
    is_execution_id,
)
from noetl.results.spooled import Spooled

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.object_store import ObjectStore

STORE: Final = "nats_object"
BUCKET: Final = "noetl_results"
TRANSFER_SECONDS: Final = 300.0


class NatsObjectBodies:
    """Implements `ResultBodies`. `jetstream` gives the context of the connection that is up now."""

    def __init__(self, jetstream: Callable[[], JetStreamContext], *, bucket: str = BUCKET) -> None:
        self._jetstream = jetstream
        self._bucket = bucket

    async def put(
        self, execution_id: str, body: bytes | AsyncIterator[bytes], *, media_type: str, store: object
    ) -> ResultRef:
        # Imported already where there is a connection.
        from nats.js.errors import NotFoundError  # noqa: PLC0415

        with Spooled() as spooled:
            await spooled.take(body)
            key = f"{execution_id}/{spooled.checksum}"
            with _translated(key):
                async with asyncio.timeout(TRANSFER_SECONDS):
                    objects = await self._objects()
                    try:
                        await objects.get_info(key)
                    except NotFoundError:
                        await objects.put(key, spooled.file)  # type: ignore[arg-type]  # it has readinto
            return ResultRef(
                ref=f"noetl://{execution_id}/{STORE}/{spooled.checksum}",
                store=STORE,
                key=key,
                checksum=spooled.checksum,
                size=spooled.size,
                schema_hint={"media_type": media_type},
            )

    async def get(self, ref: ResultRef) -> bytes:
        return b"".join([piece async for piece in self.stream(ref)])

    async def stream(self, ref: ResultRef) -> AsyncIterator[bytes]:
        """Gives the first piece only once the whole body is here and has its checksum."""
        # Imported already where there is a connection.
        from nats.js.errors import DigestMismatchError, NotFoundError  # noqa: PLC0415

        with Spooled() as arrived:
            with _translated(ref.key):
                try:
                    async with asyncio.timeout(TRANSFER_SECONDS):
                        objects = await self._objects()
                        await objects.get(ref.key, writeinto=arrived.file)  # type: ignore[arg-type]
                except NotFoundError:
                    raise ResultGoneError(f"the stored result {ref.ref} is gone") from None
                except DigestMismatchError:
                    raise ResultDamagedError(
                        f"the stored result {ref.ref} does not have its checksum"
                    ) from None
            digest = hashlib.sha256()
            async for piece in arrived.pieces():
                digest.update(piece)
            if digest.hexdigest() != ref.checksum:
                raise ResultDamagedError(f"the stored result {ref.ref} does not have its checksum")
            async for piece in arrived.pieces():
                yield piece

    async def executions(self) -> list[str]:
        """Those that have bodies here."""
        names = {name.partition("/")[0] for name in await self._names()}
        return [name for name in names if is_execution_id(name)]

    async def forget(self, execution_ids: Collection[str]) -> None:
        """Removes the bodies of executions."""
        gone = frozenset(execution_ids)
        for name in await self._names():
            if name.partition("/")[0] in gone:
                with _translated(name):
                    await (await self._objects()).delete(name)

    async def _names(self) -> list[str]:
        # Imported already where there is a connection.
        from nats.js.errors import NotFoundError  # noqa: PLC0415

        with _translated("all bodies"):
            async with asyncio.timeout(TRANSFER_SECONDS):
                try:
                    found = await (await self._objects()).list(ignore_deletes=True)
                except NotFoundError:  # it is empty
                    return []
        return [each.name for each in found if each.name is not None]

    async def _objects(self) -> ObjectStore:
        # Imported already where there is a connection.
        from nats.js.errors import BucketNotFoundError  # noqa: PLC0415

        js = self._jetstream()
        try:
            return await js.object_store(self._bucket)
        except BucketNotFoundError:
            return await js.create_object_store(self._bucket)


@contextlib.contextmanager
def _translated(key: str) -> Iterator[None]:
    # Imported already where there is a connection.
    from nats.errors import Error as NatsError  # noqa: PLC0415

    try:
        yield
    except (NatsError, OSError, TimeoutError) as error:
        raise ResultStoreError(
            f"the NATS object store does not answer for {key}: {error or type(error).__name__}"
        ) from error
