"""The workloads on DBOS Transact, with its SQLite system database.

The loop runs its items as steps of one asynchronous workflow, which is faster there than a queue; the
pages of an endpoint are steps of a child workflow each, started from a queue that is polled every 50 ms.
"""

from __future__ import annotations

import asyncio
import os

from dbos import DBOS
from workload import (
    ALL_ITEMS,
    ENDPOINTS,
    ENDPOINTS_AT_ONCE,
    IN_FLIGHT,
    ITEMS,
    STEPS,
    SUM_OF_ITEMS,
    read_page,
    tell,
    timed,
    wanted,
)

POLLING_SECONDS = 0.05


def plus_one(number: int) -> int:
    return number + 1


@DBOS.step()
def increment(number: int) -> int:
    return number + 1


@DBOS.workflow()
def chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = increment(number)
    return number


@DBOS.workflow()
async def loop(items: int) -> int:
    free = asyncio.Semaphore(IN_FLIGHT)

    async def one(item: int) -> int:
        async with free:
            return await DBOS.run_step_async({}, plus_one, item)

    return sum(await asyncio.gather(*(one(item) for item in range(items))))


@DBOS.step()
def page(endpoint: int, number: int) -> list[int | None]:
    return list(read_page(endpoint, number))


@DBOS.workflow()
def read_endpoint(endpoint: int) -> int:
    found, following = 0, 1
    while following is not None:
        count, following = page(endpoint, following)
        found += count
    return found


@DBOS.workflow()
def read_all() -> int:
    endpoints = DBOS.retrieve_queue("endpoints")
    handles = [endpoints.enqueue(read_endpoint, number) for number in range(ENDPOINTS)]
    return sum(handle.get_result() for handle in handles)


def main() -> None:
    database = f"sqlite:///{os.environ['PEER_FOLDER']}/dbos.sqlite"
    config = {
        "name": "measured",
        "system_database_url": database,
        "log_level": "ERROR",
        "run_admin_server": False,
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(
        "endpoints", worker_concurrency=ENDPOINTS_AT_ONCE, polling_interval_sec=POLLING_SECONDS
    )
    try:
        chain(3)
        match wanted():
            case "chain":
                tell(timed(lambda: chain(STEPS), STEPS), store="sqlite")
            case "loop":
                tell(
                    timed(lambda: asyncio.run(loop(ITEMS)), SUM_OF_ITEMS),
                    store="sqlite",
                    steps="asynchronous",
                )
            case "pages":
                tell(timed(read_all, ALL_ITEMS), store="sqlite", polling_seconds=POLLING_SECONDS)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main()
