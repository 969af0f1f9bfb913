"""How fast the SQLite store appends: one change at a time, and many at once through group commit.

A change is what a trivial step costs: three small events with a key each, one command put into the queue,
leased, and the one before removed under its lease, and the projection. `queued` is how many callers append at
the same time, each to an execution of its own; `busy` gives the event loop other work meanwhile, as an
engine would. The database lies in the folder that is given, on the disk that is to be measured; `synchronous`
is read back from the open connection.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from noetl.records.event import Event
from noetl.store.protocol import Append, CommandRow, ExecutionRow, Fence
from noetl.store.sqlite import SqliteStore, open_store

TIMESTAMP = "2025-01-01T00:00:00.000000Z"


def change(execution_id: str, version: int) -> Append:
    run_id, before = f"{int(execution_id) + version}", f"{int(execution_id) + version - 3}"
    events = tuple(
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
        for place, event_type in enumerate(("step.started", "task.done", "step.done"))
    )
    return Append(
        execution_id=execution_id,
        version=version,
        events=events,
        idem_keys=tuple(f"{run_id}:1:{place}" for place in range(3)),
        execution=ExecutionRow(
            execution_id=execution_id,
            status="running",
            name="benchmark",
            path="benchmarks/store",
            version=1,
            dialect="canonical",
            requested_at=TIMESTAMP,
        ),
        add_commands=(
            CommandRow(
                command_id=run_id,
                execution_id=execution_id,
                step="transform",
                step_run_id=run_id,
                created_at=TIMESTAMP,
                worker_id="worker",
            ),
        ),
        remove_commands=(before,),
        fences=(Fence(command_id=before, epoch=1),) if version else (),
    )


async def append_in_turn(store: SqliteStore, execution_id: str, count: int) -> None:
    for number in range(count):
        await store.append(change(execution_id, number * 3))


async def keep_busy() -> None:
    """Work on the event loop that never ends by itself, in slices of about a tenth of a millisecond."""
    while True:
        sum(range(5000))
        await asyncio.sleep(0)


async def measure(folder: Path, queued: int, total: int, *, busy: bool) -> str:
    store = open_store(f"sqlite:///{folder}/append-{queued}-{busy}.db")
    first = 358_000_000_000_000_000
    each = max(total // queued, 1)
    other_work = asyncio.create_task(keep_busy()) if busy else None
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(
        *(append_in_turn(store, str(first + place * 10_000_000), each) for place in range(queued))
    )
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if other_work is not None:
        other_work.cancel()
    synchronous = store.synchronous
    await store.close()
    appends = each * queued
    return (
        f"{queued:>6} queued{', busy loop' if busy else '':<11} {appends / seconds:>8.0f} appends/s "
        f"{appends * 3 / seconds:>8.0f} events/s {seconds / appends * queued * 1000:>8.3f} ms latency "
        f"{cpu / appends * 1e6:>6.0f} us CPU each   synchronous={synchronous}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=None, help="where the database is made")
    parser.add_argument("--appends", type=int, default=8000, help="how many changes each line appends")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for queued in (1, 16, 256):
            total = given.appends // 4 if queued == 1 else given.appends
            print(asyncio.run(measure(Path(folder), queued, total, busy=False)))
        print(asyncio.run(measure(Path(folder), 16, given.appends // 4, busy=True)))


if __name__ == "__main__":
    main()
