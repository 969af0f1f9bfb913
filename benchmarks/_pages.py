"""The paginated API that the pagination rows read, and a loop over it that no engine runs.

    python benchmarks/_pages.py PORT

serves it until it is killed. `PORT` 0 takes a free one; the port is the first line it prints.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp import web

ENDPOINTS, PAGES, ITEMS = 20, 25, 20
AT_ONCE = 8


async def page(request: web.Request) -> web.Response:
    endpoint, number = int(request.match_info["endpoint"]), int(request.query.get("page", "1"))
    first = (endpoint * PAGES + number) * ITEMS
    items = [{"id": first + place, "name": f"item {endpoint}-{number}-{place}"} for place in range(ITEMS)]
    return web.json_response({"items": items, "next": number + 1 if number < PAGES else None})


async def serve(port: int) -> None:
    application = web.Application()
    application.router.add_get("/{endpoint}", page)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)  # type: ignore[union-attr]
    await asyncio.Event().wait()


@contextmanager
def page_server() -> Iterator[str]:
    """The address of a server in a process of its own."""
    server = subprocess.Popen([sys.executable, __file__, "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    finally:
        server.kill()
        server.wait()


async def read_without_engine(address: str) -> float:
    """Seconds that a hand-written loop takes for all pages, as many endpoints at once as the engine."""
    free = asyncio.Semaphore(AT_ONCE)

    async def read_endpoint(session: aiohttp.ClientSession, endpoint: int) -> int:
        found, following = 0, 1
        async with free:
            while following is not None:
                async with session.get(f"{address}/{endpoint}", params={"page": following}) as response:
                    body = await response.json()
                found += len(body["items"])
                following = body["next"]
        return found

    begun = time.perf_counter()
    async with aiohttp.ClientSession() as session:
        counts = await asyncio.gather(*(read_endpoint(session, number) for number in range(ENDPOINTS)))
    assert sum(counts) == ENDPOINTS * PAGES * ITEMS, counts
    return time.perf_counter() - begun


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
