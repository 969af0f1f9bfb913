"""The workloads on Prefect, against a server of its own with its SQLite database.

Tasks of a flow run in a pool of threads as wide as the workload allows; logs are at warnings only.
The client tells the server of its tasks behind their back: how many of them the server knows to be
completed at the moment the flow returns is printed with the settings.
"""

from __future__ import annotations

import json
import os
import urllib.request

from prefect import flow, task
from prefect.task_runners import ThreadPoolTaskRunner
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


@task
def increment(number: int) -> int:
    return number + 1


@flow
def chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = increment(number)
    return number


@flow(task_runner=ThreadPoolTaskRunner(max_workers=IN_FLIGHT))
def loop(items: int) -> int:
    return sum(future.result() for future in increment.map(range(items)))


@task
def page(endpoint: int, number: int) -> tuple[int, int | None]:
    return read_page(endpoint, number)


@task
def read_endpoint(endpoint: int) -> int:
    found, following = 0, 1
    while following is not None:
        count, following = page(endpoint, following)
        found += count
    return found


@flow(task_runner=ThreadPoolTaskRunner(max_workers=ENDPOINTS_AT_ONCE))
def read_all() -> int:
    return sum(future.result() for future in read_endpoint.map(range(ENDPOINTS)))


def recorded(*flows: str) -> int:
    """How many task runs the server has as completed, of these flows or of all."""
    asked = {"task_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}}
    if flows:
        asked["flows"] = {"name": {"any_": list(flows)}}
    request = urllib.request.Request(
        f"{os.environ['PREFECT_API_URL']}/task_runs/count",
        json.dumps(asked).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return int(json.load(response))


def main() -> None:
    chain(1)
    match wanted():
        case "chain":
            taken, threads = timed(lambda: chain(STEPS), STEPS), 1
        case "loop":
            taken, threads = timed(lambda: loop(ITEMS), SUM_OF_ITEMS), IN_FLIGHT
        case _:
            taken, threads = timed(read_all, ALL_ITEMS), ENDPOINTS_AT_ONCE
    tell(taken, store="sqlite, server", threads=threads, recorded_at_the_end=recorded())


if __name__ == "__main__":
    main()
