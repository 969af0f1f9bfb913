"""What every peer is asked to do, and how its script says what came of it.

A peer's script runs in an environment that has the peer and nothing of NoETL, so only the standard library
is used here. It is called with the name of a workload and prints one line of JSON: seconds, and the
settings that were used. Work that gives a wrong result is an error, never a figure.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

STEPS, ITEMS = 200, 1000
IN_FLIGHT, ENDPOINTS_AT_ONCE = 16, 8
ENDPOINTS, PAGES, ITEMS_OF_PAGE = 20, 25, 20
ALL_ITEMS = ENDPOINTS * PAGES * ITEMS_OF_PAGE
SUM_OF_ITEMS = ITEMS * (ITEMS + 1) // 2
POSTGRES_STEPS, CHAINS = 100, 3
WORKERS = 2
"""Processes that run the executions, where work is shared on PostgreSQL."""
READY_SECONDS, DONE_SECONDS = 60, 150

Part = Callable[[range, Callable[[], object]], int]
"""Prepares, calls what it is given when it is ready, runs an execution for each number, and adds them up."""


def wanted() -> str:
    """The workload this process is to run."""
    return sys.argv[1]


def executions() -> int:
    """How many executions of three steps this process is to have run."""
    return int(sys.argv[2])


def sum_of_executions(count: int) -> int:
    """What executions that add three to the numbers below `count` give together."""
    return sum(number + 3 for number in range(count))


def read_page(endpoint: int, number: int) -> tuple[int, int | None]:
    """How many items a page has, and the number of the next one."""
    address = f"{os.environ['PAGES_ADDRESS']}/{endpoint}?page={number}"
    with urllib.request.urlopen(address, timeout=30) as response:
        body = json.load(response)
    return len(body["items"]), body["next"]


def timed(work: Callable[[], Any], expected: object) -> float:
    begun = time.perf_counter()
    found = work()
    taken = time.perf_counter() - begun
    if found != expected:
        sys.exit(f"the result is {found!r}, not {expected!r}")
    return taken


def timed_chain(chain: Callable[[int], Any]) -> float:
    """Seconds of a chain on PostgreSQL, the median of some."""
    return statistics.median(timed(lambda: chain(POSTGRES_STEPS), POSTGRES_STEPS) for _ in range(CHAINS))


def shared(part: Part, count: int) -> float:
    """Seconds in which the workers run so many executions; they begin together, when all are prepared."""
    context = multiprocessing.get_context("spawn")
    together, sums = context.Barrier(WORKERS + 1), context.Queue()
    for first in range(WORKERS):
        numbers = range(first, count, WORKERS)
        context.Process(target=_run_part, args=(part, numbers, together, sums), daemon=True).start()
    together.wait(READY_SECONDS)
    return timed(
        lambda: sum(sums.get(timeout=DONE_SECONDS) for _ in range(WORKERS)), sum_of_executions(count)
    )


def _run_part(part: Part, numbers: range, together: Barrier, sums: Queue[int]) -> None:
    sums.put(part(numbers, lambda: together.wait(READY_SECONDS)))


def tell(seconds: float, **settings: object) -> None:
    print(json.dumps({"seconds": seconds, "settings": settings}), flush=True)
