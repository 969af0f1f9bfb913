"""What an append costs as a loop grows: SQL statements, rows, and bytes of the state, through the real store.

One loop is run to its end on SQLite. Its iterations are cut into spans, each ending at a length on the
list, and for each span the averages are printed; what counts is that the last span costs what the first
one does. Statements are counted by SQLite's own trace, rows by its change counter. Exits with 1 where the
last span needs more than a quarter more of anything.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from _runs import checked

from noetl.embedded import Embedded
from noetl.store.protocol import Append
from noetl.store.sqlite import SqliteStore, open_store

LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: long, path: benchmarks/long}}
workload: {{numbers: []}}
workflow:
  - step: start
    loop: {{in: "{{{{ workload.numbers }}}}", iterator: number, spec: {{mode: parallel, max_in_flight: 16}}}}
    tool: {tool}
"""
TOLERANCE = 1.25


class Span(msgspec.Struct):
    """What the appends cost until a number of iterations was done."""

    until: int
    appends: int = 0
    events: int = 0
    iterations: int = 0
    statements: int = 0
    rows: int = 0
    largest_state: int = 0
    seconds: float = 0.0


class Watched:
    """Passes everything on to a store, and counts what its appends do."""

    def __init__(self, store: SqliteStore, lengths: list[int]) -> None:
        self._store = store
        self._statements = 0
        self._done = 0
        self._engine: Embedded | None = None
        self._since = time.perf_counter()
        self.spans = [Span(length) for length in lengths]
        store._connection.set_trace_callback(self._count)

    def watch(self, engine: Embedded) -> None:
        self._engine = engine

    def _count(self, _statement: str) -> None:
        self._statements += 1

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, change: Append) -> None:
        connection = self._store._connection
        statements, rows = self._statements, connection.total_changes
        await self._store.append(change)
        span = next((each for each in self.spans if self._done < each.until), self.spans[-1])
        ended = sum(event.event_type == "loop.iteration.done" for event in change.events)
        span.appends += 1
        span.events += len(change.events)
        span.iterations += ended
        span.statements += self._statements - statements
        span.rows += connection.total_changes - rows
        self._done += ended
        if span.appends % 20 == 1 and self._engine is not None:
            state = self._engine.control.opened(change.execution_id).state
            span.largest_state = max(span.largest_state, len(msgspec.msgpack.encode(state)))
        now = time.perf_counter()
        span.seconds += now - self._since
        self._since = now


async def measure(folder: Path, lengths: list[int], tool: str) -> list[Span]:
    store = open_store(f"sqlite:///{folder}/store.db")
    watched = Watched(store, lengths)
    try:
        async with Embedded(watched, folder / "files") as engine:  # type: ignore[arg-type]
            watched.watch(engine)
            numbers = {"numbers": list(range(lengths[-1]))}
            state = await engine.finished(await engine.start(checked(LOOP.format(tool=tool)), numbers))
            assert state.status == "completed", state.error
    finally:
        await store.close()
    return watched.spans


def show(spans: list[Span]) -> bool:
    """Prints the spans; whether the last costs no more than the first."""
    print(f"{'until':>10}{'events/append':>15}{'statements/append':>19}{'rows/iteration':>16}", end="")
    print(f"{'largest state':>15}{'us/iteration':>14}")
    for span in spans:
        print(f"{span.until:>10,}{span.events / span.appends:>15.1f}", end="")
        print(f"{span.statements / span.appends:>19.2f}{span.rows / span.iterations:>16.3f}", end="")
        print(f"{span.largest_state:>13,} B{span.seconds / span.iterations * 1e6:>14.0f}")
    first, last = spans[0], spans[-1]
    statements = last.statements / last.appends <= first.statements / first.appends * TOLERANCE
    rows = last.rows / last.iterations <= first.rows / first.iterations * TOLERANCE
    largest = max(span.largest_state for span in spans[:-1])
    return statements and rows and last.largest_state <= largest * TOLERANCE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="where the database is made")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument(
        "--tool", default="{kind: noop}", help="what each iteration does, as YAML in one line"
    )
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        kept = show(asyncio.run(measure(Path(folder), list(given.lengths), given.tool)))
    print("the cost of an append " + ("stays what it is" if kept else "GROWS with the loop"))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
