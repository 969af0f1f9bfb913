"""Keeps the leases of a worker: renews all of them in one call, from a thread of its own.

Busy code in the worker's event loop must not cost it its leases, so nothing is shared with that loop but what
is held. A lease that could not be renewed in time is given up shortly before it runs out, because from then
on another worker may have it; time is counted from when a beat is sent, never from its answer.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError
from noetl.records.command import HeldLease
from noetl.records.report import AnyCommand, Beat, BeatReply

if TYPE_CHECKING:
    from noetl.worker.worker import Worker

IDLE_SECONDS: Final = 0.25
"""How often it looks for leases before the first has come, which says how long they last."""
AGAIN_SECONDS: Final = 0.5
"""How soon a beat that failed is tried again, at most."""

log = logging.getLogger("noetl.worker")

Lost = Callable[[AnyCommand], None]


class Beats:
    def __init__(self, worker: Worker, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._worker = worker
        self._monotonic = monotonic
        self._until: dict[HeldLease, float] = {}
        self._given_up: set[HeldLease] = set()
        """Those whose work is being stopped, which may take a while: telling twice would break that off."""
        self._interval = IDLE_SECONDS
        self._is_failing = False
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None

    def start(self) -> None:
        """To be called on the worker's event loop: what is lost is stopped there."""
        loop = asyncio.get_running_loop()
        ready = threading.Event()

        def lost(command: AnyCommand) -> None:
            loop.call_soon_threadsafe(self._worker.revoke_lease, command)

        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(lost, ready)), name="noetl-beats", daemon=True
        )
        self._thread.start()
        ready.wait()

    async def stop(self) -> None:
        self._stop()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    # --- on the thread ----------------------------------------------------------------------------------

    async def _run(self, lost: Lost, ready: threading.Event) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(ended.set)
        ready.set()
        try:
            while not ended.is_set():
                try:
                    pause = await self._beat(lost)
                # A bug here would silently cost the worker every lease; beating on may not.
                except Exception:
                    log.exception("a beat failed")
                    pause = AGAIN_SECONDS
                try:
                    async with asyncio.timeout(pause):
                        await ended.wait()
                except TimeoutError:
                    continue
        finally:
            self._stop = lambda: None
            # Only a source on another machine has opened something here.
            leave = getattr(self._worker.source, "leave_loop", None)
            if leave is not None:
                await leave()

    async def _beat(self, lost: Lost) -> float:
        """One beat for all leases; how long to wait for the next."""
        held = {command.lease: command for command in list(self._worker.held.values())}
        self._given_up &= held.keys()
        for lease in self._given_up:
            del held[lease]
        if not held:
            self._until.clear()
            return self._interval
        lasting = min(command.lease_seconds for command in held.values())
        self._interval = lasting / 3
        sent = self._monotonic()
        until = {
            lease: self._until.get(lease, sent + command.lease_seconds) for lease, command in held.items()
        }
        reply = await self._answer(tuple(held))
        gone: set[str] = set()
        if reply is not None:
            gone = set(reply.lost)
            until = dict.fromkeys(held, sent + reply.lease_seconds)
        # Stopping takes a moment itself.
        over = self._monotonic() + min(lasting / 10, 2.0)
        for lease, command in held.items():
            if lease.command_id in gone or until[lease] <= over:
                lost(command)
                self._given_up.add(lease)
                del until[lease]
        self._until = until
        if reply is not None:
            return max(0.0, sent + self._interval - self._monotonic())
        first = min(until.values(), default=over)
        return max(0.01, min(first - over, AGAIN_SECONDS, self._interval / 4))

    async def _answer(self, leases: tuple[HeldLease, ...]) -> BeatReply | None:
        try:
            async with asyncio.timeout(self._interval):
                reply = await self._worker.source.beat(Beat(worker_id=self._worker.worker_id, leases=leases))
        except (NoetlError, TimeoutError) as error:
            if not self._is_failing:
                problem = str(error) or "no answer"
                log.warning("the server does not hear that this worker is alive: %s", problem)
            self._is_failing = True
            return None
        if self._is_failing:
            log.warning("the server hears this worker again")
        self._is_failing = False
        return reply
