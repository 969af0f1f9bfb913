"""Reading executions from a store that somebody else may be writing: rows, logs, states, results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

from noetl.cli.stores import Place
from noetl.control.plane import ControlPlane
from noetl.embedded import stored_loader
from noetl.engine.bodies import is_ref
from noetl.engine.state import Data
from noetl.errors import UsageError
from noetl.ids import SystemClock
from noetl.records.event import Event
from noetl.results.bodies import FileBodies, ResultBinaryError
from noetl.results.chosen import ChosenBodies
from noetl.store.protocol import CatalogEntry, ExecutionRow, Store
from noetl.tools.registry import builtin_kinds


class EventSource(Protocol):
    async def events(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]: ...


class ReadableStore(Protocol):
    """What the command line reads of a store, or of a server."""

    def owned_by_other(self) -> bool: ...

    async def close(self) -> None: ...

    async def execution(self, execution_id: str) -> ExecutionRow | None: ...

    async def events(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]: ...

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None: ...

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None: ...


PAGE: Final = 1_000
LOOK_SECONDS: Final = 0.1
LAST_EVENT: Final = "playbook.processed"


async def find_execution(store: ReadableStore, execution_id: str) -> ExecutionRow:
    row = await store.execution(execution_id)
    if row is None:
        raise UsageError(f"there is no execution {execution_id} in this store; `noetl list` shows them")
    return row


async def log_pages(store: EventSource, execution_id: str, after: int = 0) -> AsyncIterator[list[Event]]:
    """The log as it is now, a page at a time."""
    while page := await store.events(execution_id, after=after, limit=PAGE):
        yield page
        after = page[-1].seq


async def followed_log(store: ReadableStore, execution_id: str) -> AsyncIterator[list[Event]]:
    """The log, and what is added to it, until the execution is over or nobody runs it any more."""
    after = 0
    while True:
        owned = store.owned_by_other()
        async for page in log_pages(store, execution_id, after):
            yield page
            after = page[-1].seq
            if page[-1].event_type == LAST_EVENT:
                return
        if not owned:
            return
        await asyncio.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def reading_plane(store: Store, place: Place) -> Iterator[tuple[ControlPlane, ChosenBodies]]:
    """A control plane that replays and loads, and is never asked to decide; and the bodies it loads.

    A body that is neither text nor JSON stays a reference.
    """
    with place.files() as folder:
        bodies = ChosenBodies({"file": FileBodies(folder)})
        loader = _readable(bodies)
        yield ControlPlane(store, builtin_kinds(), clock=SystemClock(), load_stored=loader), bodies


def _readable(bodies: ChosenBodies) -> Callable[[Data], Awaitable[Any]]:
    load = stored_loader(bodies)

    async def load_stored(ref: Data) -> Any:  # noqa: ANN401 - plain data
        try:
            return await load(ref)
        except ResultBinaryError:
            return ref

    return load_stored


async def with_bodies_loaded(control: ControlPlane, value: Any) -> Any:  # noqa: ANN401 - plain data
    """The value with every reference in it replaced by what it stands for, if that is a value."""
    if is_ref(value):
        found = await control.stored_value(value)
        return value if found == value else await with_bodies_loaded(control, found)
    if isinstance(value, dict):
        return {name: await with_bodies_loaded(control, item) for name, item in value.items()}
    if isinstance(value, list):
        return [await with_bodies_loaded(control, item) for item in value]
    return value
