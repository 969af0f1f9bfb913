"""What a call of the `http` tool costs, beside the same request by aiohttp alone.

Both read pages of the same local server (see `_pages.py`) over connections that are kept, in turns, in one
process; nothing is stored. The processor time of this process is what counts, since waiting costs nothing.

    python benchmarks/http_tool.py [--calls 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import aiohttp
from _pages import AT_ONCE, ITEMS, PAGES, page_server

from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools import http

TIMEOUT = {"timeout": {"connect": 10, "read": 60}}
"""As the kind's own default has it."""


class BareContext:
    """The least that an `http` call needs around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, Any] = {}

    async def shared(self, key: str, make: Callable[[], Awaitable[Any]]) -> object:
        if key not in self.made:
            self.made[key] = await make()
        return self.made[key]


async def by_the_tool(context: ToolContext, address: str, number: int) -> int:
    call = ToolCall(
        kind="http",
        config={"method": "GET", "url": f"{address}/1", "params": {"page": number % PAGES + 1}},
        args=None,
        spec=TIMEOUT,
        execution_id="1",
        step="fetch",
        task_label="page",
        task_run_id="2",
        attempt=1,
        action_id="1/fetch/page/1",
    )
    outcome = await http.run(call, context)
    assert outcome.status == "ok", outcome
    return len(outcome.result["items"])


async def by_aiohttp(session: aiohttp.ClientSession, address: str, number: int) -> int:
    async with session.get(f"{address}/1", params={"page": number % PAGES + 1}) as response:
        return len((await response.json())["items"])


async def timed(one: Callable[[int], Awaitable[int]], calls: int, at_once: int) -> tuple[float, float]:
    """Seconds that a call takes, and those of them that this process computes."""
    numbers = iter(range(calls))

    async def caller() -> None:
        for number in numbers:
            assert await one(number) == ITEMS

    begun, computed = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(at_once)))
    return (time.perf_counter() - begun) / calls, (time.process_time() - computed) / calls


async def compare(context: ToolContext, address: str, calls: int, rounds: int, at_once: int) -> None:
    bare, tool = [], []
    async with aiohttp.ClientSession() as session:
        for _ in range(rounds + 1):
            bare.append(await timed(lambda number: by_aiohttp(session, address, number), calls, at_once))
            tool.append(await timed(lambda number: by_the_tool(context, address, number), calls, at_once))
    for name, figures in (("aiohttp alone", bare), ("the http tool", tool)):
        taken, computed = (statistics.median(each) * 1e6 for each in zip(*figures[1:], strict=True))
        print(f"{at_once:2} at once, {name}: {taken:7.0f} µs a call, {computed:7.0f} µs of them computing")
    ratios = [mine[1] / theirs[1] for mine, theirs in zip(tool[1:], bare[1:], strict=True)]
    print(f"{at_once:2} at once, computing, tool / aiohttp: {statistics.median(ratios):.2f}")


async def measure(calls: int, rounds: int) -> None:
    with page_server() as address, TemporaryDirectory() as folder:
        context = BareContext(Path(folder))
        for at_once in (1, AT_ONCE):
            await compare(cast("ToolContext", context), address, calls, rounds, at_once)
        await context.made["http.session"].close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    asyncio.run(measure(given.calls, given.rounds))


if __name__ == "__main__":
    main()
