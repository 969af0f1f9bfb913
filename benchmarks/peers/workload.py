"""What every peer is asked to do, and how its script says what came of it.

A peer's script runs in an environment that has the peer and nothing of NoETL, so only the standard library
is used here. It is called with the name of a workload and prints one line of JSON: seconds, and the
settings that were used. Work that gives a wrong result is an error, never a figure.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

STEPS, ITEMS = 200, 1000
IN_FLIGHT, ENDPOINTS_AT_ONCE = 16, 8
ENDPOINTS, PAGES, ITEMS_OF_PAGE = 20, 25, 20
ALL_ITEMS = ENDPOINTS * PAGES * ITEMS_OF_PAGE
SUM_OF_ITEMS = ITEMS * (ITEMS + 1) // 2


def wanted() -> str:
    """The workload this process is to run."""
    return sys.argv[1]


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


def tell(seconds: float, **settings: object) -> None:
    print(json.dumps({"seconds": seconds, "settings": settings}), flush=True)
