"""Executions of three tasks and a chain on Prefect, against a server with its database on PostgreSQL.

Called with a workload and a number of executions. Two processes call the flow in threads, half of the
executions each: its workers would start a process for every one, which takes longer than the flow. How
many tasks the server knows to be completed at the end, those of warming up among them, is printed.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from prefect import flow
from prefect_peer import chain, increment, recorded
from workload import CHAINS, POSTGRES_STEPS, WORKERS, executions, shared, tell, timed_chain, wanted

THREADS = 8


@flow
def three(number: int) -> int:
    return increment(increment(increment(number)))


def call_flows(numbers: range, ready: Callable[[], object]) -> int:
    three(0)
    ready()
    with ThreadPoolExecutor(THREADS) as threads:
        return sum(threads.map(three, numbers))


def main() -> None:
    version = importlib.metadata.version("prefect")
    if wanted() == "runs":
        taken = shared(call_flows, executions())
        known = f"{recorded(three.name)} of {3 * (executions() + WORKERS)}"
        tell(taken, prefect=version, processes=WORKERS, threads=f"{THREADS} each", tasks_recorded=known)
    else:
        chain(1)
        taken = timed_chain(chain)
        known = f"{recorded(chain.name)} of {CHAINS * POSTGRES_STEPS + 1}"
        tell(taken, prefect=version, processes=1, tasks_recorded=known)


if __name__ == "__main__":
    main()
