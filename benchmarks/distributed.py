"""What a deployment does on PostgreSQL and NATS: executions a second, a shared loop, a chain, and latencies.

The deployment is that of `noetl up` in a folder of its own: real PostgreSQL, as durable as it comes, NATS,
one server, workers as asked. Every step and item is a task of kind `python` in a killable process with a
`task.done` of its own. A second table has what each of them cost: processor time per step, by kind of
process, which depends less than rates on what else the machine does. Prints the budgets, writes all as JSON
with `--json FILE`, and exits with 1 if a budget is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import psycopg
from _processor_time import since, used
from _runs import chain, loop

from noetl.cli.stack.cluster import Cluster
from noetl.cli.stack.nats_server import free_port
from noetl.cli.stack.worker_processes import WorkerOptions, scale
from noetl.client.api import Api
from noetl.client.connection import Connection
from noetl.client.control import HttpControl
from noetl.ids import seconds_of
from noetl.records.protocols import ExecutionRequest

PATH = "benchmarks/measured"
AT_ONCE = 32
"""Requests of whoever submits that are under way at the same time."""
STEPS = 200
LATENCIES = 200
LOOP_IN_FLIGHT = 64
LOOKED_AT_OFTEN = 10
"""More executions than this are asked about seldom: asking costs the database as much as some of them."""


class Row(NamedTuple):
    name: str
    measured: float
    unit: str
    budget: float | None = None
    at_most: bool = False
    note: str = ""
    spent: Mapping[str, float] = MappingProxyType({})
    """Seconds of processor time per step, by kind of process."""

    @property
    def kept(self) -> bool:
        if self.budget is None:
            return True
        return self.measured <= self.budget if self.at_most else self.measured >= self.budget


class Deployment:
    """A cluster that runs, and questions to its database."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder / "cluster")
        self.cluster.choose(free_port())
        self.cluster.start(lambda text: print(f"{text} …", file=sys.stderr, flush=True))
        self._database = psycopg.connect(self.cluster.postgres().url, autocommit=True)

    def workers(self, number: int) -> None:
        scale(self.cluster.folder, number, WorkerOptions(environment=self.cluster.environment()))

    def stop(self) -> None:
        self._database.close()
        self.cluster.stop(lambda text: None)

    def query(self, sql: str, *parameters: Any) -> list[Any]:
        return self._database.execute(sql, parameters).fetchall()  # type: ignore[call-overload]

    def run(self, text: str, number: int = 1, at_once: int = AT_ONCE) -> Measured:
        """Submits executions of a playbook as fast as the server takes them, and waits for all their ends."""
        before = used(self.cluster)
        execution_ids = asyncio.run(self._submit(text, number, at_once))
        ids = [int(each) for each in execution_ids]
        sql = "SELECT count(*) FROM noetl.execution WHERE execution_id = ANY(%s) AND finished_at IS NULL"
        while self.query(sql, ids)[0][0]:
            time.sleep(0.2 if number > LOOKED_AT_OFTEN else 0.01)
        sql = "SELECT status, requested_at, finished_at FROM noetl.execution WHERE execution_id = ANY(%s)"
        rows = self.query(sql, ids)
        spent = since(before, used(self.cluster))
        failed = [row for row in rows if row[0] != "completed"]
        if failed:
            raise SystemExit(f"{len(failed)} of the measured executions are {failed[0][0]}")
        began = min(seconds_of(row[1]) for row in rows)
        return Measured(execution_ids, max(seconds_of(row[2]) for row in rows) - began, spent)

    async def _submit(self, text: str, number: int, at_once: int) -> list[str]:
        connection = Connection(self.cluster.url)
        control = HttpControl(connection)
        try:
            await Api(connection).register(text)
            left = iter(range(number))
            found: list[str] = []

            async def lane() -> None:
                for _ in left:
                    found.append(await control.start(ExecutionRequest(path=PATH)))

            await asyncio.gather(*(lane() for _ in range(min(at_once, number))))
        finally:
            await control.close()
        return found

    def moments(self, execution_ids: Sequence[str], event_type: str) -> dict[str, list[float]]:
        """When such events happened in each execution, in the order of its log."""
        sql = (
            "SELECT execution_id, convert_from(body, 'utf8')::jsonb ->> 'timestamp' FROM noetl.event "
            "WHERE execution_id = ANY(%s) AND event_type = %s ORDER BY execution_id, seq"
        )
        found: dict[str, list[float]] = {}
        for execution_id, moment in self.query(sql, [int(each) for each in execution_ids], event_type):
            found.setdefault(str(execution_id), []).append(seconds_of(moment))
        return found


class Measured(NamedTuple):
    execution_ids: list[str]
    seconds: float
    spent: dict[str, float]
    """Seconds of processor time, by kind of process."""


@contextlib.contextmanager
def deployment(folder: Path) -> Iterator[Deployment]:
    made = Deployment(folder)
    try:
        yield made
    finally:
        made.stop()


def warm(on: Deployment) -> None:
    """Starts the processes that run code: that takes long, and is not what is measured."""
    on.run(chain(3), 60)


def submitted(on: Deployment, number: int, workers: int) -> list[Row]:
    taken = [on.run(chain(3), number) for _ in range(2)]
    rate = max(number / each.seconds for each in taken)
    note = f"{number} at once, one server, {workers} workers; each step a python task"
    best = min(taken, key=lambda each: sum(each.spent.values()))
    return [Row("three-step executions", rate, "runs/s", 300, note=note, spent=_each(best, 3 * number))]


def one_chain(on: Deployment) -> list[Row]:
    runs = [on.run(chain(STEPS)) for _ in range(3)]
    seconds = statistics.median(each.seconds for each in runs)
    waits: list[float] = []
    for each in runs:
        done = on.moments(each.execution_ids, "step.done")[each.execution_ids[0]]
        started = on.moments(each.execution_ids, "step.started")[each.execution_ids[0]]
        waits += [after - before for before, after in zip(done, started[1:], strict=False)]
    return [
        Row(
            f"one chain of {STEPS} steps",
            seconds / STEPS * 1_000,
            "ms/step",
            3.0,
            True,
            spent=_each(min(runs, key=lambda each: sum(each.spent.values())), STEPS),
        ),
        *_latency("report to next start", waits),
    ]


def starts(on: Deployment) -> list[Row]:
    waits = []
    for _ in range(LATENCIES):
        ran = on.run(chain(1))
        (execution_id,) = ran.execution_ids
        requested = on.moments(ran.execution_ids, "playbook.execution.requested")[execution_id][0]
        waits.append(on.moments(ran.execution_ids, "step.started")[execution_id][0] - requested)
    return _latency("submit to start", waits)


def _latency(name: str, seconds: list[float]) -> list[Row]:
    ordered = sorted(seconds)
    middle, late = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return [Row(f"{name}, p50", middle * 1_000, "ms"), Row(f"{name}, p99", late * 1_000, "ms")]


def one_loop(on: Deployment, items: int, workers: int) -> list[Row]:
    text = loop(items).replace("max_in_flight: 16", f"max_in_flight: {LOOP_IN_FLIGHT}")
    ran = on.run(text)
    note = f"{items} items, {LOOP_IN_FLIGHT} in flight, {workers} workers"
    spent = _each(ran, items)
    return [Row("one distributed loop", items / ran.seconds, "items/s", 3_000, note=note, spent=spent)]


def against_running(on: Deployment, numbers: Sequence[int]) -> list[Row]:
    rows = []
    for number in numbers:
        total = max(number, 30)
        runs = [on.run(chain(3), number, at_once=min(number, AT_ONCE)) for _ in range(0, total, number)]
        done = len(runs) * number
        seconds = sum(each.seconds for each in runs)
        spent = {kind: sum(each.spent.get(kind, 0.0) for each in runs) / (3 * done) for kind in runs[0].spent}
        rows.append(Row(f"three-step executions, {number} at a time", done / seconds, "runs/s", spent=spent))
    return rows


def against_workers(on: Deployment, number: int, counts: Sequence[int]) -> list[Row]:
    rows = []
    for count in counts:
        on.workers(count)
        warm(on)
        ran = on.run(chain(3), number)
        name = f"three-step executions, {count} workers"
        rows.append(Row(name, number / ran.seconds, "runs/s", spent=_each(ran, 3 * number)))
    return rows


def _each(ran: Measured, steps: int) -> dict[str, float]:
    """Seconds of processor time for each step."""
    return {kind: seconds / steps for kind, seconds in ran.spent.items()}


def show_spent(rows: Sequence[Row]) -> None:
    """Milliseconds of processor time per step or item, by kind of process."""
    counted = [row for row in rows if row.spent]
    kinds = sorted({kind for row in counted for kind in row.spent})
    width = max(len(row.name) for row in counted)
    print(f"\n{'processor time, ms a step':<{width}}" + "".join(f"  {kind:>9}" for kind in (*kinds, "all")))
    for row in counted:
        found = [row.spent.get(kind, 0.0) * 1_000 for kind in kinds]
        print(f"{row.name:<{width}}" + "".join(f"  {each:>9.2f}" for each in (*found, sum(found))))


def show(rows: Sequence[Row]) -> None:
    width = max(len(row.name) for row in rows)
    for row in rows:
        limit = ""
        if row.budget is not None:
            limit = f"{'≤' if row.at_most else '≥'} {row.budget:g} {'kept' if row.kept else 'MISSED'}"
        print(f"{row.name:<{width}}  {row.measured:>10.1f} {row.unit:<8} {limit:<16} {row.note}".rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000, help="how many are submitted at once")
    parser.add_argument("--items", type=int, default=20_000, help="of the loop")
    parser.add_argument("--running", default="1,10,100,1000,2000", help="numbers of executions at a time")
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="where the databases lie")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name, deployment(Path(name).resolve()) as on:
        (durable,) = on.query("SHOW synchronous_commit")
        (synced,) = on.query("SHOW fsync")
        print(f"PostgreSQL with synchronous_commit {durable[0]} and fsync {synced[0]}")
        on.workers(2)
        warm(on)
        rows += submitted(on, options.executions, 2)
        rows += one_chain(on)
        rows += starts(on)
        rows += against_running(on, [int(each) for each in options.running.split(",")])
        rows += against_workers(on, options.executions, (1, 2, 4))
        rows += one_loop(on, options.items, 4)
        show(rows)
        show_spent(rows)
    if options.json is not None:
        found = [{**row._asdict(), "spent": dict(row.spent), "kept": row.kept} for row in rows]
        options.json.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
