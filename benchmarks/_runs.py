"""The playbooks that are measured, and one run of each on the embedded engine with its SQLite store."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _pages import AT_ONCE, ENDPOINTS

from noetl.embedded import Embedded
from noetl.engine.state import State
from noetl.playbook.load import Loaded, load
from noetl.store.sqlite import SqliteStore, open_store
from noetl.tools.registry import builtin_kinds

IN_FLIGHT = 16
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: measured, path: benchmarks/measured}\n"
ONE_TASK = HEAD + 'workflow:\n  - step: start\n    tool: {kind: python, code: "result = 1"}\n'


def chain(steps: int) -> str:
    """Steps in a row, each of which adds one to what the one before gave."""
    written = [HEAD, "workflow:\n"]
    for number in range(steps):
        name = "start" if number == 0 else f"step_{number}"
        before = "0" if number == 0 else '"{{ args.n }}"'
        written.append(
            f'  - step: {name}\n    tool: {{kind: python, args: {{n: {before}}}, code: "result = n + 1"}}\n'
        )
        if number < steps - 1:
            carried = f'{{n: "{{{{ {name}.result }}}}"}}'
            written.append(f"    next: {{arcs: [{{step: step_{number + 1}, args: {carried}}}]}}\n")
    return "".join(written)


def loop(items: int, tool: str = '{kind: python, args: {n: "{{ iter.n }}"}, code: "result = n + 1"}') -> str:
    return f"""{HEAD}workflow:
  - step: start
    loop:
      in: "{{{{ range({items}) | list }}}}"
      iterator: n
      spec: {{mode: parallel, max_in_flight: {IN_FLIGHT}}}
    tool: {tool}
"""


PAGINATION = f"""{HEAD}workload: {{api: ""}}
workflow:
  - step: start
    loop:
      in: "{{{{ range({ENDPOINTS}) | list }}}}"
      iterator: endpoint
      spec: {{mode: parallel, max_in_flight: {AT_ONCE}}}
    tool:
      - fetch:
          kind: http
          url: "{{{{ workload.api }}}}/{{{{ iter.endpoint }}}}"
          params: {{page: "{{{{ iter.page | default(1) }}}}"}}
          spec:
            policy:
              rules:
                - when: "{{{{ outcome.status == 'error' }}}}"
                  then: {{do: fail}}
                - when: "{{{{ outcome.result.next is not none }}}}"
                  then:
                    do: jump
                    to: fetch
                    set_iter:
                      page: "{{{{ outcome.result.next }}}}"
                      found: "{{{{ (iter.found | default(0)) + (outcome.result['items'] | length) }}}}"
                - else: {{then: {{do: break}}}}
"""


class Ran(NamedTuple):
    seconds: float
    state: State
    execution_id: str


class Engine:
    """An engine and its store in a folder of their own."""

    def __init__(self, embedded: Embedded, store: SqliteStore, database: Path) -> None:
        self.embedded = embedded
        self.store = store
        self.database = database

    async def run(self, text: str, payload: dict[str, Any] | None = None) -> Ran:
        loaded = checked(text)
        begun = time.perf_counter()
        execution_id = await self.embedded.start(loaded, payload or {})
        state = await self.embedded.finished(execution_id)
        taken = time.perf_counter() - begun
        if state.status != "completed":
            raise SystemExit(f"the measured playbook {state.status}: {state.error}")
        return Ran(taken, state, execution_id)

    def log_size(self, execution_id: str) -> tuple[int, int]:
        """How many events the log of an execution has, and how many bytes they are."""
        with sqlite3.connect(self.database) as connection:
            query = "SELECT count(*), sum(length(body)) FROM event WHERE execution_id = ?"
            found: tuple[int, int] = connection.execute(query, (execution_id,)).fetchone()
        connection.close()
        return found


def checked(text: str) -> Loaded:
    loaded = load(text.encode(), builtin_kinds())
    if loaded.playbook is None:
        raise SystemExit("\n".join(f"line {each.line}: {each.message}" for each in loaded.diagnostics))
    return loaded


@asynccontextmanager
async def engine(parent: Path) -> AsyncIterator[Engine]:
    """An engine whose code processes have started: that takes long, and is measured apart."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        store = open_store(f"sqlite:///{folder}/store.db")
        try:
            async with Embedded(store, folder / "files") as embedded:
                made = Engine(embedded, store, folder / "store.db")
                await made.run(ONE_TASK)
                yield made
        finally:
            await store.close()
