"""Executions of three steps and a chain on DBOS Transact, with its system database on PostgreSQL.

Called with a workload and a number of executions. `queue` puts them into a queue that two worker processes
empty, as its documentation has it for work shared by several; `direct` has two processes start half of them
each without a queue. The chain is a workflow called in this process.
"""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier, Event

from dbos import DBOS, DBOSClient
from dbos_peer import chain, increment
from workload import (
    READY_SECONDS,
    WORKERS,
    executions,
    shared,
    sum_of_executions,
    tell,
    timed_chain,
    wanted,
)

QUEUE = "executions"
POLLING_SECONDS = 0.05
SUBMITTERS = 8
ASKED_EVERY_SECONDS = 0.2
WARMING = 20


@DBOS.workflow()
def three(number: int) -> int:
    return increment(increment(increment(number)))


def launch(executor: str) -> None:
    DBOS(
        config={
            "name": "measured",
            "application_version": "measured",
            # Workers are told apart by it.
            "executor_id": executor,
            "system_database_url": os.environ["PEER_DATABASE"],
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    DBOS.launch()


def serve(number: int, together: Barrier, over: Event) -> None:
    """A worker: takes executions from the queue until it is told that it is over."""
    launch(f"worker-{number}")
    together.wait(READY_SECONDS)
    over.wait()
    DBOS.destroy()


def through_queue(count: int) -> float:
    """Seconds from the first submission to the end of the last execution, as the database has it."""
    launch("prepares")
    # It has no limit of executions at a time, as it comes; it would look for work once a second.
    DBOS.register_queue(QUEUE, polling_interval_sec=POLLING_SECONDS)
    DBOS.destroy()
    context = multiprocessing.get_context("spawn")
    together, over = context.Barrier(WORKERS + 1), context.Event()
    workers = [context.Process(target=serve, args=(each, together, over)) for each in range(WORKERS)]
    for worker in workers:
        worker.start()
    try:
        together.wait(READY_SECONDS)
        submit(WARMING)
        return submit(count)
    finally:
        over.set()
        for worker in workers:
            worker.join()


def submit(count: int) -> float:
    client = DBOSClient(system_database_url=os.environ["PEER_DATABASE"])
    options = {"queue_name": QUEUE, "workflow_name": three.__qualname__}
    try:
        begun = time.time()
        with ThreadPoolExecutor(SUBMITTERS) as threads:
            handles = list(threads.map(lambda number: client.enqueue(options, number), range(count)))
        found = sum(handle.get_result(polling_interval_sec=ASKED_EVERY_SECONDS) for handle in handles)
        if found != sum_of_executions(count):
            raise SystemExit(f"the result is {found}, not {sum_of_executions(count)}")
        ids = [handle.get_workflow_id() for handle in handles]
        ended = max(each.completed_at for each in client.list_workflows(workflow_ids=ids, limit=count))
        return ended / 1000 - begun
    finally:
        client.destroy()


def start_directly(numbers: range, ready: Callable[[], object]) -> int:
    launch(f"worker-{numbers.start}")
    try:
        for handle in [DBOS.start_workflow(three, number) for number in range(WARMING)]:
            handle.get_result()
        ready()
        handles = [DBOS.start_workflow(three, number) for number in numbers]
        return sum(handle.get_result() for handle in handles)
    finally:
        DBOS.destroy()


def main() -> None:
    version = importlib.metadata.version("dbos")
    match wanted():
        case "queue":
            tell(
                through_queue(executions()),
                dbos=version,
                workers=WORKERS,
                limit="none",
                polling_seconds=POLLING_SECONDS,
            )
        case "direct":
            launch("prepares")
            DBOS.destroy()
            tell(shared(start_directly, executions()), dbos=version, processes=WORKERS, queue="none")
        case _:
            launch("worker")
            try:
                chain(3)
                tell(timed_chain(chain), dbos=version, processes=1)
            finally:
                DBOS.destroy()


if __name__ == "__main__":
    main()
