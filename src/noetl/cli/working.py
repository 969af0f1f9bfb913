"""Puts a worker together: the control plane over HTTP, wake-ups from NATS, and an end that loses nothing.

The first signal drains it: nothing more is claimed, and what runs has a time of grace to finish or to be
parked. What does not make it is handed to another worker when its lease runs out. A second signal ends the
worker at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import uvloop

from noetl import __version__
from noetl.bus.nats import NatsBus
from noetl.bus.nats_connection import NatsConnection
from noetl.bus.protocol import Bus
from noetl.cli.collecting import collect_seldom
from noetl.client.connection import Connection, path_of
from noetl.client.control import HttpControl
from noetl.client.wire_work import RuntimeBeat, RuntimeKnown
from noetl.engine.leases import Leased
from noetl.errors import NoetlError
from noetl.ids import SystemClock
from noetl.records.protocols import NotWrittenError, ResultBodies
from noetl.records.report import PROTOCOL, AnyCommand, Beat, Claim, Report, ReportReply
from noetl.registry.runtime import Registration, Runtime
from noetl.results.bodies import FileBodies
from noetl.results.chosen import ChosenBodies
from noetl.results.nats_objects import NatsObjectBodies
from noetl.tools.processes.folders import remove_abandoned_once
from noetl.tools.registry import builtin_kinds, runnable
from noetl.worker.worker import Worker

POLL_SECONDS: Final = 2.0
"""How long a server holds back an answer: no longer, because a worker that drains waits for it."""
BEAT_SECONDS: Final = 10.0
AWAY_SECONDS: Final = 2.0
"""How long to wait before asking a server again that could not be reached for long."""

log = logging.getLogger("noetl.worker")

_RUNTIME: Final = msgspec.json.Decoder(Runtime)
_KNOWN: Final = msgspec.json.Decoder(RuntimeKnown)


class Wanted(NamedTuple):
    """What `noetl worker start` was asked for."""

    server: str
    token: str | None
    nats: str | None
    name: str
    pool: str
    slots: int
    grace: float
    folder: Path
    shared: Mapping[str, object]
    """What its tools share, as far as it is there before them."""


class WokenControl(HttpControl):
    """Waits for work on the bus instead of at the server; at the server while the bus is down."""

    def __init__(self, connection: Connection, bus: Bus | None) -> None:
        super().__init__(connection, Leased)
        self._bus = bus
        self.is_draining = False

    async def claim(self, claim: Claim) -> tuple[AnyCommand, ...]:
        loop = asyncio.get_running_loop()
        until = loop.time() + claim.wait_seconds
        while not self.is_draining:
            bus = self._bus if self._bus is not None and self._bus.is_up else None
            seconds = 0.0 if bus is not None else max(0.0, min(until - loop.time(), POLL_SECONDS))
            asked_at = time.monotonic()
            try:
                found = await super().claim(msgspec.structs.replace(claim, wait_seconds=seconds))
                found = await self._still_held(claim.worker_id, found, asked_at)
            except NotWrittenError as error:  # nobody answers, or the store is away
                log.warning("%s", error.message)
                await asyncio.sleep(AWAY_SECONDS)
                continue
            left = until - loop.time()
            if found or left <= 0:
                return found
            if bus is not None:
                await bus.wait(claim.pool, left, claim.limit)
        return ()

    async def _send_report(self, report: Report) -> ReportReply:
        asked_at = time.monotonic()
        reply = await super()._send_report(report)
        try:
            commands = await self._still_held(report.worker_id, reply.commands, asked_at)
        except NoetlError:
            commands = ()  # others get them when the leases run out
        return msgspec.structs.replace(reply, commands=commands)

    async def _still_held(
        self, worker_id: str, commands: tuple[AnyCommand, ...], asked_at: float
    ) -> tuple[AnyCommand, ...]:
        """Leases are counted from when they were asked for: after a slow answer they may be over."""
        took = time.monotonic() - asked_at
        if all(took < each.lease_seconds / 3 for each in commands):
            return commands
        reply = await self.beat(Beat(worker_id=worker_id, leases=tuple(each.lease for each in commands)))
        return tuple(each for each in commands if each.lease.command_id not in reply.lost)


def run_worker(wanted: Wanted) -> None:
    """Works until it is told to stop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(wanted))


async def _work(wanted: Wanted) -> None:
    remove_abandoned_once()
    async with _source(wanted) as (control, bus, bodies):
        worker = Worker(
            control,
            builtin_kinds(),
            runnable,
            results=bodies,
            folder=wanted.folder,
            clock=SystemClock(),
            worker_id=wanted.name,
            pool=wanted.pool,
            slots=wanted.slots,
            beats=True,
            shared=wanted.shared,
        )
        collect_seldom()
        working = asyncio.create_task(worker.run())
        presence = asyncio.create_task(_be_present(control.connection, wanted))
        told, hurried = _on_signals()
        try:
            await _until(working, told)
            if not working.done():
                _say(f"draining: {len(worker.held)} under way, at most {wanted.grace:g} seconds")
                control.is_draining = True
                worker.drain()
                if bus is not None:
                    await bus.close()
                await _until(working, hurried, wanted.grace)
        finally:
            left = len(worker.held)
            presence.cancel()
            working.cancel()
            await asyncio.gather(working, presence, return_exceptions=True)
            await _leave(control.connection, wanted)
    if not working.cancelled() and (error := working.exception()) is not None:
        raise error
    _say("ended" if not left else f"ended with {left} command{'s' if left > 1 else ''} left to others")


@contextlib.asynccontextmanager
async def _source(wanted: Wanted) -> AsyncIterator[tuple[WokenControl, Bus | None, ResultBodies]]:
    files = FileBodies(wanted.folder)
    async with contextlib.AsyncExitStack() as closing:
        bus: Bus | None = None
        bodies: ResultBodies = ChosenBodies({"file": files})
        if wanted.nats is not None:
            connection = NatsConnection(wanted.nats, name=wanted.name)
            closing.push_async_callback(connection.close)
            await connection.open()
            bus = NatsBus(connection)
            closing.push_async_callback(bus.close)
            objects = NatsObjectBodies(connection.jetstream)
            bodies = ChosenBodies({"nats_object": objects, "file": files})
        control = WokenControl(Connection(wanted.server, token=wanted.token), bus)
        closing.push_async_callback(control.close)
        yield control, bus, bodies


def _on_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Set by the first signal and by the second."""
    told, hurried = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurried if told.is_set() else told).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return told, hurried


async def _until(working: asyncio.Task[None], event: asyncio.Event, seconds: float | None = None) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((working, waiting), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


# --- being known to the server -----------------------------------------------------------------------------


async def _be_present(connection: Connection, wanted: Wanted) -> None:
    """Registers, and beats until it is cancelled; a server that has forgotten it is told again."""
    registration = Registration(
        kind="worker",
        name=wanted.name,
        pool=wanted.pool,
        slots=wanted.slots,
        protocol=PROTOCOL,
        version=__version__,
    )
    beat = RuntimeBeat(kind="worker", name=wanted.name)
    while True:
        try:
            await connection.call("POST", path_of("runtime"), _RUNTIME, body=registration)
            _say(f"ready: pool {wanted.pool}, {wanted.slots} slots, server {connection.url}")
            known = True
            while known:
                await asyncio.sleep(BEAT_SECONDS)
                path = path_of("runtime", "heartbeat")
                known = (await connection.call("POST", path, _KNOWN, body=beat)).known
        except NoetlError as error:
            # Nothing depends on it but what is shown: leases have beats of their own.
            log.warning("the server does not know of this worker: %s", error.message)
            await asyncio.sleep(BEAT_SECONDS)


async def _leave(connection: Connection, wanted: Wanted) -> None:
    with contextlib.suppress(NoetlError, TimeoutError):
        async with asyncio.timeout(2.0):
            await connection.call("DELETE", path_of("runtime", "worker", wanted.name), _KNOWN)


def _say(text: str) -> None:
    # `noetl up` waits for the word that the worker is ready: see `worker_processes`.
    print(f"worker {text}", file=sys.stderr, flush=True)
