"""A network between workers and a server that loses answers, delivers requests twice, and is late.

Requests that are late are overtaken by others, and so are answers. What is lost has reached the server all
the same: whoever asked cannot know. Everything follows from a seed, and from the order in which requests
come.
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
from aiohttp import web

FAULTS = {"lost": 0.06, "twice": 0.08, "late": 0.08, "answered late": 0.08}
"""How often each happens."""
LATE_SECONDS = 0.3


class Network:
    def __init__(self, server: str, seed: int) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self._session: aiohttp.ClientSession | None = None
        self.told: Counter[str] = Counter()
        self.lost: list[float] = []
        """When answers were lost, in seconds since 1970."""
        self.is_faulty = False
        self.url = ""

    async def open(self) -> web.AppRunner:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60)
        )
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def close(self, runner: web.AppRunner) -> None:
        assert self._session is not None
        await runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fault = self._fault()
        if fault == "late":
            await asyncio.sleep(self._chance.uniform(0.0, LATE_SECONDS))
        try:
            if fault == "twice":
                first, answer = await asyncio.gather(self._ask(request, body), self._ask(request, body))
                answer = self._chance.choice((first, answer))
            else:
                answer = await self._ask(request, body)
        except (aiohttp.ClientError, TimeoutError):
            fault, answer = "lost", web.Response(status=502)
        if fault == "answered late":
            await asyncio.sleep(self._chance.uniform(0.0, LATE_SECONDS))
        if fault == "lost" and request.transport is not None:
            self.lost.append(time.time())
            request.transport.close()
        return answer

    async def _ask(self, request: web.Request, body: bytes) -> web.Response:
        assert self._session is not None
        headers = {
            name: value for name, value in request.headers.items() if name not in ("Host", "Content-Length")
        }
        url = self._server + request.path_qs
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


@contextmanager
def network_to(server: str, seed: int) -> Iterator[Network]:
    """A network that lies in a thread of its own."""
    made = Network(server, seed)
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
