"""A network between workers and a server that loses answers, delivers requests twice, and is late.

Requests that are late are overtaken by others, and so are answers. What is lost has reached the server all
the same: whoever asked cannot know. Everything follows from a seed, and from the order in which requests
come. Each worker has an address of its own, so that what it did not hear of is known: the leases in the
answers that were lost, and its beats.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import msgspec
from aiohttp import web

from noetl.records.command import HeldLease
from tests.distributed.losses import Held, Hit

FAULTS = {"lost": 0.06, "twice": 0.08, "late": 0.08, "answered late": 0.08}
"""How often each happens."""
LATE_SECONDS = 0.3
BEAT = "/api/commands/heartbeat"
GIVES_WORK = ("/api/commands/claim", "/api/events/batch")


class Network:
    def __init__(self, server: str, lease_seconds: float, seed: int) -> None:
        self._server = server
        self._lease_seconds = lease_seconds
        self._chance = random.Random(seed)
        self._session: aiohttp.ClientSession | None = None
        self.told: Counter[str] = Counter()
        self.hits: list[Hit] = []
        """What cost workers leases."""
        self.is_faulty = False
        self._url = ""

    def url(self, worker: str) -> str:
        """Where a worker reaches the server."""
        return f"{self._url}/{worker}"

    async def open(self) -> web.AppRunner:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60)
        )
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{worker}/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def close(self, runner: web.AppRunner) -> None:
        assert self._session is not None
        await runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fault, came = self._fault(), time.time()
        if fault == "late":
            await asyncio.sleep(self._chance.uniform(0.0, LATE_SECONDS))
        try:
            if fault == "twice":
                answers = list(await asyncio.gather(self._ask(request, body), self._ask(request, body)))
                answer = answers.pop(self._chance.randrange(2))
                self._note_lost(request, came, answers[0])
            else:
                answer = await self._ask(request, body)
        except (aiohttp.ClientError, TimeoutError):
            return web.Response(status=502)
        if fault == "answered late":
            await asyncio.sleep(self._chance.uniform(0.0, LATE_SECONDS))
        if fault == "lost" and request.transport is not None:
            if _path(request) == BEAT:
                at, worker = time.time(), request.match_info["worker"]
                self.hits.append(Hit("beat lost", at, at + self._lease_seconds, frozenset([worker])))
            self._note_lost(request, came, answer)
            request.transport.close()
        return answer

    def _note_lost(self, request: web.Request, came: float, answer: web.Response) -> None:
        """Whatever work stands in an answer that nobody hears is done by nobody, until its lease is over."""
        if _path(request) not in GIVES_WORK or answer.status >= 400:
            return
        assert isinstance(answer.body, bytes)
        given = msgspec.json.decode(answer.body, type=_Answer).commands
        if given:
            leases = frozenset(
                Held(each.lease.execution_id, each.lease.command_id, each.lease.epoch) for each in given
            )
            self.hits.append(Hit("work lost", came, time.time(), frozenset(), leases))

    async def _ask(self, request: web.Request, body: bytes) -> web.Response:
        assert self._session is not None
        headers = {
            name: value for name, value in request.headers.items() if name not in ("Host", "Content-Length")
        }
        url = self._server + request.path_qs.removeprefix(f"/{request.match_info['worker']}")
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            return web.Response(
                status=answer.status,
                body=await answer.read(),
                headers={"Content-Type": answer.headers.get("Content-Type", "application/json")},
            )

    def _fault(self) -> str:
        if not self.is_faulty:
            return ""
        place = self._chance.random()
        for name, share in FAULTS.items():
            if place < share:
                self.told[name] += 1
                return name
            place -= share
        return ""


def _path(request: web.Request) -> str:
    return f"/{request.match_info['path']}"


class _Leased(msgspec.Struct):
    lease: HeldLease


class _Answer(msgspec.Struct):
    commands: list[_Leased] = []


@contextmanager
def network_to(server: str, lease_seconds: float, seed: int) -> Iterator[Network]:
    """A network that lies in a thread of its own."""
    made = Network(server, lease_seconds, seed)
    ready, loop = threading.Event(), asyncio.new_event_loop()
    ending = asyncio.Event()

    async def run() -> None:
        runner = await made.open()
        ready.set()
        await ending.wait()
        await made.close(runner)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(10)
        loop.close()
