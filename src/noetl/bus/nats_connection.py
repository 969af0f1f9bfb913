"""One connection to NATS that is made again whenever it is lost, and tells when it is down and when up.

Nobody waits for it: who needs it asks for JetStream and gets `NatsDownError` at once while there is none.
The client library's own reconnecting is not used, because it keeps requests of the lost connection waiting
until they time out.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import random
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

CONNECT_SECONDS: Final = 2
"""Whole seconds, as the client library wants it."""
PING_SECONDS: Final = 5
SLOWEST_RETRY: Final = 2.0
"""Seconds between two attempts to reach a server that has been away for a while."""
REQUEST_SECONDS: Final = 2.0

log = logging.getLogger("noetl.bus")


class NatsDownError(NoetlError):
    code = "nats.down"


class NatsConnection:
    """Open it once in a process; the bus, the sessions and the object store share it."""

    def __init__(self, url: str, *, name: str = "noetl") -> None:
        """`url` may name several servers of one cluster, with commas between them."""
        self._servers = [server.strip() for server in url.split(",")]
        self._name = name
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()
        self._tried = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self.connections = 0
        """How often it was made: what belongs to an earlier one is to be made again."""

    async def open(self) -> bool:
        """Begins to connect, and waits for the first attempt; false where that failed."""
        if importlib.util.find_spec("nats") is None:
            raise NatsDownError("NATS needs its client library: pip install 'noetl[nats]'")
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        await self._tried.wait()
        return self.is_up

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._keeping = None

    @property
    def is_up(self) -> bool:
        return self._up.is_set() and self._client is not None and self._client.is_connected

    @property
    def lost(self) -> asyncio.Event:
        """Set while it is down. Who uses a connection keeps this: the next connection has another."""
        return self._lost

    async def wait_until_up(self) -> None:
        await self._up.wait()

    @property
    def client(self) -> Client:
        if self._client is None or not self._client.is_connected:
            raise NatsDownError(f"NATS at {self.shown} cannot be reached")
        return self._client

    def jetstream(self) -> JetStreamContext:
        return self.client.jetstream(timeout=REQUEST_SECONDS)

    @property
    def shown(self) -> str:
        """The first address, without its password."""
        first = self._servers[0]
        parts = urlsplit(first if "://" in first else f"nats://{first}")
        return f"{parts.hostname}:{parts.port or 4222}"

    async def _keep(self) -> None:
        was_up = True
        pause = 0.05
        try:
            while True:
                problem = await self._connect()
                self._tried.set()
                if problem is None:
                    if not was_up:
                        log.warning("NATS at %s is back", self.shown)
                    was_up, pause = True, 0.05
                    await self._lost.wait()
                    await self._drop()
                    problem = "the connection was lost"
                if was_up:
                    log.warning("NATS is down: workers poll (%s: %s)", self.shown, problem)
                    was_up = False
                await asyncio.sleep(random.uniform(0.5, 1.0) * pause)
                pause = min(SLOWEST_RETRY, pause * 2)
        finally:
            await self._drop()

    async def _connect(self) -> str | None:
        """What kept it from connecting; None: it is up."""
        # Only who uses NATS pays for importing it.
        import nats  # noqa: PLC0415
        from nats.errors import Error as NatsError  # noqa: PLC0415

        lost = asyncio.Event()
        problems: list[str] = []

        async def on_lost() -> None:
            self._up.clear()
            lost.set()

        async def on_error(error: Exception) -> None:
            log.debug("NATS at %s: %s", self.shown, error)
            problems[:] = [str(error) or type(error).__name__]

        try:
            async with asyncio.timeout(CONNECT_SECONDS + 1):
                self._client = await nats.connect(
                    self._servers,
                    name=self._name,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_SECONDS,
                    ping_interval=PING_SECONDS,
                    max_outstanding_pings=2,
                    closed_cb=on_lost,
                    disconnected_cb=on_lost,
                    error_cb=on_error,
                )
        except (NatsError, OSError, TimeoutError) as error:
            return problems[0] if problems else str(error) or type(error).__name__
        self.connections += 1
        self._lost = lost
        if not lost.is_set():
            self._up.set()
        return None

    async def _drop(self) -> None:
        self._up.clear()
        self._lost.set()
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            # Imported already where there is a client.
            from nats.errors import Error as NatsError  # noqa: PLC0415

            with contextlib.suppress(NatsError, OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await client.close()
