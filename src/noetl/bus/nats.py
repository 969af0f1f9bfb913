"""The bus over NATS JetStream: a work-queue stream for each deployment, one durable consumer for each pool.

Everything in NATS can be lost at any time: stream and consumers are made again when they are found missing,
and what was told meanwhile is found by workers that ask. A message is acknowledged as soon as it is fetched,
for only the claim counts, so a redelivery never means anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.bus.nats_connection import REQUEST_SECONDS, NatsConnection, NatsDownError
from noetl.bus.protocol import until_poll
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.subscription import Subscription
    from nats.js import JetStreamContext

MOST_QUEUED: Final = 10_000
"""Wake-ups that wait to be sent; more are dropped, for a commit must not wait for NATS."""
MOST_AT_ONCE: Final = 256
MOST_KEPT: Final = 100_000
KEPT_SECONDS: Final = 60.0
"""How long a wake-up that nobody fetched is kept: whoever comes later asks by itself first."""
LOOK_SECONDS: Final = 5.0
"""How often an idle worker asks while NATS is up, on average: a wake-up may have been lost on its way."""
POLL_SECONDS: Final = 1.0
"""How often an idle worker asks while NATS is down, on average."""
SEND_SECONDS: Final = 2.0
ACK_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 0.5
"""How much longer than a request lasts its answer is waited for."""
PATIENCE: Final = 4
"""Waits in a row that take no more than they could claim."""

log = logging.getLogger("noetl.bus")


class ConsumerGoneError(NoetlError):
    code = "nats.consumer_gone"


class NatsBus:
    """Implements `Bus`. The connection belongs to the caller, who closes it after the bus."""

    def __init__(
        self, connection: NatsConnection, *, deployment: str = "noetl", poll_seconds: float = LOOK_SECONDS
    ) -> None:
        self._connection = connection
        self._poll_seconds = poll_seconds
        self._stream = f"{_token(deployment)}_work"
        self._prefix = f"{_token(deployment)}.work"
        self._queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue(MOST_QUEUED)
        self._sending: asyncio.Task[None] | None = None
        self._stream_of = 0
        """The connection on which the stream was last seen."""
        self._pools: dict[str, _Pool] = {}
        self._closed = asyncio.Event()
        self._is_refused = False
        self.published = 0
        self.dropped = 0
        """Wake-ups that nobody got, because NATS was down or too slow."""

    @property
    def is_up(self) -> bool:
        return self._connection.is_up and not self._is_refused and not self._closed.is_set()

    async def publish(self, pool: str, command_ids: Sequence[str]) -> None:
        if self._closed.is_set() or not self._connection.is_up:
            self.dropped += len(command_ids)
            return
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        for number, key in enumerate(command_ids):
            try:
                self._queue.put_nowait((pool, key))
            except asyncio.QueueFull:
                self.dropped += len(command_ids) - number
                return

    async def wait(self, pool: str, timeout: float, limit: int = 1) -> bool:
        if self._closed.is_set() or timeout <= 0:
            return False
        if not self._connection.is_up:
            return await self._pause(timeout)
        seconds = until_poll(timeout, self._poll_seconds)
        listening = asyncio.ensure_future(self._listen(pool, seconds, limit))
        ended = [asyncio.ensure_future(event.wait()) for event in (self._connection.lost, self._closed)]
        try:
            await asyncio.wait((listening, *ended), return_when=asyncio.FIRST_COMPLETED)
            if not listening.done():
                return not self._closed.is_set()
            return listening.result() or seconds < timeout
        except _unreachable() as error:
            self._refused(error)
            return await self._pause(timeout)
        finally:
            for task in (listening, *ended):
                task.cancel()
            await asyncio.gather(listening, *ended, return_exceptions=True)

    async def close(self) -> None:
        self._closed.set()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for pool in self._pools.values():
            async with pool.lock:  # whoever listens is stopping, and has its subscription until then
                await pool.forget()

    async def sent(self) -> None:
        """Waits until what was published so far is sent or dropped."""
        await self._queue.join()

    # --- sending ------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < MOST_AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                await self._send(batch)
                self.published += len(batch)
                self._accepted()
            except _unreachable() as error:
                self.dropped += len(batch)
                self._refused(error)
            finally:
                for _ in batch:
                    self._queue.task_done()

    async def _send(self, batch: Sequence[tuple[str, str]]) -> None:
        # Imported already where there is a connection.
        from nats.js.errors import NoStreamResponseError  # noqa: PLC0415

        js = self._connection.jetstream()
        await self._ensure_stream(js)
        try:
            await self._send_on(js, batch)
        except NoStreamResponseError:
            self._stream_of = 0
            await self._ensure_stream(js)
            await self._send_on(js, batch)  # what arrived the first time is dropped by its message id

    async def _send_on(self, js: JetStreamContext, batch: Sequence[tuple[str, str]]) -> None:
        """Sends all without waiting but the last: what NATS says of that holds for those before it."""
        client = self._connection.client
        for number, (pool, key) in enumerate(batch, start=1):
            subject, headers = self._subject(pool), {"Nats-Msg-Id": key}
            if number < len(batch):
                await client.publish(subject, key.encode(), headers=headers)
            else:
                await js.publish(subject, key.encode(), timeout=SEND_SECONDS, headers=headers)

    # --- listening ----------------------------------------------------------------------------------

    async def _listen(self, name: str, timeout: float, limit: int) -> bool:
        until = time.monotonic() + timeout
        pool = self._pools.setdefault(name, _Pool())
        # One fetch at a time: two on one subscription would take each other's answers.
        try:
            async with asyncio.timeout(timeout):
                await pool.lock.acquire()
        except TimeoutError:
            return False
        try:
            if pool.connection != self._connection.connections:
                await self._subscribe(name, pool)
            heard = await pool.fetch(limit, max(0.01, until - time.monotonic()))
        except ConsumerGoneError:
            pool.connection = 0
            await self._subscribe(name, pool)
            heard = True  # what was told while it was gone is to be asked for
        finally:
            pool.lock.release()
        self._accepted()
        return heard

    async def _subscribe(self, name: str, pool: _Pool) -> None:
        # Imported already where there is a connection.
        from nats.js.api import AckPolicy, ConsumerConfig  # noqa: PLC0415

        number = self._connection.connections
        js = self._connection.jetstream()
        self._stream_of = 0
        await self._ensure_stream(js)
        durable = f"pool_{_token(name)}"
        wanted = ConsumerConfig(
            durable_name=durable,
            filter_subject=self._subject(name),
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
        )
        await js.add_consumer(self._stream, wanted)
        await pool.subscribe(self._connection.client, f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{durable}")
        pool.connection = number

    async def _ensure_stream(self, js: JetStreamContext) -> None:
        if self._stream_of == self._connection.connections:
            return
        # Imported already where there is a connection.
        from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig  # noqa: PLC0415
        from nats.js.errors import BadRequestError  # noqa: PLC0415

        number = self._connection.connections
        wanted = StreamConfig(
            name=self._stream,
            subjects=[f"{self._prefix}.*"],
            retention=RetentionPolicy.WORK_QUEUE,
            # Wake-ups are not worth a disk: a restart of NATS may forget them.
            storage=StorageType.MEMORY,
            discard=DiscardPolicy.OLD,
            max_msgs=MOST_KEPT,
            max_age=KEPT_SECONDS,
            duplicate_window=KEPT_SECONDS,
        )
        try:
            await js.add_stream(wanted)
        except BadRequestError:  # it is there, made by another version of NoETL
            await js.update_stream(wanted)
        self._stream_of = number

    def _subject(self, pool: str) -> str:
        return f"{self._prefix}.{_token(pool)}"

    # --- without NATS -------------------------------------------------------------------------------

    async def _pause(self, timeout: float) -> bool:
        """Waits as long as a polling worker does, or until NATS is back: then it is time to ask."""
        seconds = until_poll(timeout, POLL_SECONDS)
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(self._closed.wait())]
        if not self._connection.is_up:
            waits.append(asyncio.ensure_future(self._connection.wait_until_up()))
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return not self._closed.is_set()

    def _refused(self, error: BaseException) -> None:
        """The connection is up but JetStream does not answer as it should."""
        self._stream_of = 0
        for pool in self._pools.values():
            pool.connection = 0
        if self._connection.is_up and not self._is_refused:
            self._is_refused = True
            log.warning("NATS is down: workers poll (JetStream: %s)", error or type(error).__name__)

    def _accepted(self) -> None:
        if self._is_refused:
            self._is_refused = False
            log.warning("NATS at %s is back", self._connection.shown)


class _Pool:
    """The consumer of one pool as this process sees it.

    The client library's own fetch is not used: it takes the word that the consumer is gone for silence.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.connection = 0
        """The connection that the subscription belongs to; 0: it is to be made again."""
        self._client: Client | None = None
        self._answers: Subscription | None = None
        self._inbox = ""
        self._asks = ""
        self._requests = 0
        self._in_a_row = 0
        """Waits that were answered at once and left more lying."""

    async def subscribe(self, client: Client, asks: str) -> None:
        """`asks` is the subject under which the consumer takes requests."""
        await self.forget()
        self._client, self._asks, self._inbox = client, asks, client.new_inbox()
        self._answers = await client.subscribe(f"{self._inbox}.*")

    async def fetch(self, limit: int, timeout: float) -> bool:
        """Takes what lies there, or waits for one; false when there was nothing in time."""
        # Whoever waits again and again has claimed in vain each time, so what still lies here is of commands
        # long taken: such a heap is cleared in ever larger bites, not by a claim for each.
        grown = max(0, self._in_a_row - PATIENCE)
        bite = min(MOST_AT_ONCE, limit * 4**grown) if grown < 5 else MOST_AT_ONCE
        pending = await self._request({"batch": bite, "no_wait": True}, bite, REQUEST_SECONDS)
        if pending is None:
            self._in_a_row = 0
            return await self._request({"batch": 1, "expires": int(timeout * 1e9)}, 1, timeout) is not None
        self._in_a_row = self._in_a_row + 1 if pending else 0
        return True

    async def _request(self, wanted: dict[str, object], batch: int, timeout: float) -> int | None:
        """How many messages the consumer still has after those that came; None: none came."""
        assert self._client is not None
        assert self._answers is not None
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        await self._client.publish(self._asks, msgspec.json.encode(wanted), reply)
        pending: int | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout + ANSWER_SECONDS):
                while batch:
                    message = await self._answers.next_msg(timeout=None)
                    headers = message.headers or {}
                    status = headers.get("Status")
                    if status is None:
                        await message.ack()
                        pending = message.metadata.num_pending
                        batch -= 1
                    elif message.subject != reply or status == "100":
                        continue  # about an earlier request, or a sign of life
                    elif status in ("404", "408"):
                        break
                    else:
                        raise ConsumerGoneError(headers.get("Description") or status)
        return pending

    async def forget(self) -> None:
        answers, self._answers, self.connection = self._answers, None, 0
        if answers is not None:
            with contextlib.suppress(*_unreachable()):
                await answers.unsubscribe()


def _unreachable() -> tuple[type[BaseException], ...]:
    """What NATS raises that has to do with the connection or the other side, not with us."""
    # Imported already where there is a connection.
    from nats.errors import Error as NatsError  # noqa: PLC0415

    return (NatsError, NatsDownError, OSError, TimeoutError)


def _token(name: str) -> str:
    """A name as one part of a subject; what NATS gives a meaning to is written by its number."""
    return re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", name) or "_"
