"""What the engine does in one process, on SQLite: start, chain, loop, pagination, and the size of its log.

Every step and item is a task of kind `python` in a killable process, with a `task.done` of its own that
is committed before the next begins; `synchronous` is read back from the open connection. What a figure is
compared with (a bare interpreter, a loop without an engine) is measured in turns with it. Prints a table
with the budgets, writes the same as JSON with `--json FILE`, and exits with 1 if a budget is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from _machine import Memory, bare_python_seconds, commits_per_second, seconds_of
from _pages import ENDPOINTS, PAGES, page_server, read_without_engine
from _runs import ONE_TASK, PAGINATION, Engine, chain, engine, loop

import noetl

STEPS = 200


class Row(NamedTuple):
    name: str
    measured: float
    unit: str
    budget: float
    at_most: bool
    note: str = ""

    @property
    def kept(self) -> bool:
        return self.measured <= self.budget if self.at_most else self.measured >= self.budget


def cold_start(folder: Path, rounds: int) -> list[Row]:
    """The whole process of `noetl run`, over that of a bare interpreter."""
    compileall.compile_dir(str(Path(noetl.__file__).parent), quiet=2)
    file = folder / "one_task.yaml"
    file.write_text(ONE_TASK, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("noetl")), "run", str(file)]
    seconds_of(command, folder)
    bare, ours = [], []
    for _ in range(rounds):
        bare.append(bare_python_seconds(1))
        ours.append(seconds_of(command, folder))
    median = statistics.median(ours)
    ratio, note = median / statistics.median(bare), f"{median * 1000:.0f} ms"
    return [Row("noetl run, one task, whole process", ratio, "× python", 14, True, note)]


async def chain_rows(run: Engine, rounds: int) -> list[Row]:
    taken = []
    for _ in range(rounds):
        ran = await run.run(chain(STEPS))
        assert ran.state.result == STEPS, ran.state.result
        taken.append(ran.seconds)
    events, size = run.log_size(ran.execution_id)
    # What a step adds: the events of the execution itself are in a chain of one step too.
    shortest, _ = run.log_size((await run.run(chain(1))).execution_id)
    milliseconds, best = (each / STEPS * 1000 for each in (statistics.median(taken), min(taken)))
    return [
        Row(f"chain of {STEPS} steps", milliseconds, "ms/step", 0.7, True, f"best {best:.2f}"),
        Row("events of a trivial step", (events - shortest) / (STEPS - 1), "events", 6, True),
        Row("bytes of an event, as stored", size / events, "bytes", 600, True),
    ]


async def loop_rows(run: Engine, items: int, rounds: int) -> list[Row]:
    taken = []
    with Memory() as memory:
        for _ in range(rounds):
            ran = await run.run(loop(items))
            taken.append(ran.seconds)
    rate = items / statistics.median(taken)
    rows = [Row(f"loop over {items:,} items", rate, "items/s", 4000, False, f"best {items / min(taken):.0f}")]
    if items >= 10_000:
        note = f"{memory.growth_mib:+.1f} MiB from the second quarter to the last"
        rows.append(Row("  memory of all processes", memory.peak_mib, "MiB", 250, True, note))
        rows.append(Row("  growth of it", memory.growth_mib, "MiB", 16, True))
    return rows


async def pagination_rows(run: Engine, address: str, rounds: int) -> list[Row]:
    pages = ENDPOINTS * PAGES
    ours, bare = [], []
    for _ in range(rounds):
        bare.append(await read_without_engine(address))
        ours.append((await run.run(PAGINATION, {"api": address})).seconds)
    rate, bare_rate = pages / statistics.median(ours), pages / statistics.median(bare)
    part, best = rate / bare_rate * 100, pages / min(ours)
    return [
        Row("HTTP pagination, 8 endpoints at once", rate, "pages/s", 800, False, f"best {best:.0f}"),
        Row("  of a loop without an engine", part, "%", 50, False, f"{bare_rate:.0f} pages/s"),
    ]


async def measure(folder: Path, items: list[int], rounds: int) -> list[Row]:
    rows: list[Row] = []
    async with engine(folder) as run:
        print(f"{'SQLite synchronous, read back':<40}{run.store.synchronous:>10}")
        rows += await chain_rows(run, rounds)
        for count in items:
            rows += await loop_rows(run, count, rounds if count < 10_000 else 1)
        with page_server() as address:
            rows += await pagination_rows(run, address, rounds)
    return rows


def show(rows: list[Row]) -> None:
    print(f"\n{'':<40}{'measured':>10} {'unit':<10}{'budget':>8}")
    for row in rows:
        limit = f"{'≤' if row.at_most else '≥'} {row.budget:g}"
        verdict = "kept" if row.kept else "EXCEEDED"
        print(f"{row.name:<40}{row.measured:>10.2f} {row.unit:<10}{limit:>8}  {verdict:<9}{row.note}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="where the databases are made")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, nargs="*", default=[1000, 100_000], help="lengths of the loop")
    parser.add_argument("--json", type=Path, help="also write the rows to a file")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.folder.absolute()) as name:
        folder = Path(name)
        commits, bare = commits_per_second(folder), bare_python_seconds()
        print(f"{'SQLite commits of one row, FULL':<40}{commits:>10.0f} /s")
        print(f"{'a bare `python -c pass`':<40}{bare * 1000:>10.1f} ms")
        rows = cold_start(folder, max(given.rounds, 9))
        rows += asyncio.run(measure(folder, given.items, given.rounds))
    show(rows)
    if given.json is not None:
        figures = {"commits_per_second": commits, "bare_python_ms": bare * 1000}
        found = [row._asdict() | {"kept": row.kept} for row in rows]
        given.json.write_text(json.dumps(figures | {"rows": found}, indent=1))
    return 0 if all(row.kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
