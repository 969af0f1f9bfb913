"""Runs an execution on the embedded engine, and watches it.

The verbs that run something (`run`, `exec`, `resume`, `retry`) differ only in how it begins.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.cli.credential_lookup import credential_lookup
from noetl.cli.environment import variables
from noetl.cli.outgoing import shared_policy, token_fetcher
from noetl.cli.stores import Place
from noetl.cli.summary import Source
from noetl.cli.watched import Ended, Watched, stopped
from noetl.engine.state import State
from noetl.errors import NoetlError
from noetl.ids import SystemClock
from noetl.secrets.keychain import Resolver
from noetl.settings import Settings
from noetl.store.protocol import Store

if TYPE_CHECKING:
    from noetl.embedded import Embedded

Begin = Callable[["Embedded"], Awaitable[str]]
"""Starts or resumes an execution, and gives its id."""


class Run(Watched):
    """One execution that this process carries out."""

    place: Place

    def __init__(
        self, options: argparse.Namespace, settings: Settings, place: Place, source_folder: Path
    ) -> None:
        super().__init__(options, settings, place)
        lookup = credential_lookup(place.url, settings)
        self._resolver = Resolver(
            variables(), source_folder, SystemClock(), token_fetcher(settings), credentials=lookup
        )
        self._policy = shared_policy(settings)
        self.code_key: str | None = None
        """Of the code processes that its first step needs, where that is known."""

    def to_the_end(self, begin: Begin, source_of: Callable[[Embedded, State], Source]) -> int:
        """Runs it, says how it ended, and gives the exit code."""
        with self.events_file(), self.place.files() as folder:
            ended, source = asyncio.run(self._drive(folder, begin, source_of))
        return self.tell_end(ended, source)

    def _log(self, execution_id: str, where: str, stream: str, text: str) -> None:
        if execution_id == self._execution_id:
            step, _, label = where.rpartition("/")
            self.watcher.log(step, label, text)

    async def _drive(
        self, folder: Path, begin: Begin, source_of: Callable[[Embedded, State], Source]
    ) -> tuple[Ended, Source]:
        stop = stopped()
        store = self.place.own()
        shared = self._policy | _shared(self.code_key)
        # Some forty milliseconds, in which the first code process starts.
        from noetl.embedded import Embedded  # noqa: PLC0415

        engine = Embedded(
            store,
            folder,
            on_event=self.event,
            on_log=self._log,
            resolver=self._resolver,
            inbox=True,
            shared=shared,
        )
        try:
            async with engine:
                ended = await self._until_the_end(engine, store, begin, stop)
                source = source_of(engine, ended.state)
        except NoetlError as error:
            if self._execution_id is None or not self.place.is_kept:
                raise
            hint = self.place.command("resume", self._execution_id)
            raise NoetlError(
                f"{error.message}\nhint: what was finished is kept; go on with `{hint}`"
            ) from error
        finally:
            await _closed(store, failed=sys.exc_info()[0] is not None)
        return ended, source

    async def _until_the_end(
        self, engine: Embedded, store: Store, begin: Begin, stop: asyncio.Event
    ) -> Ended:
        drawing = asyncio.create_task(self.redraw()) if self.watcher.is_drawn else None
        try:
            execution_id = await begin(engine)
            finished = asyncio.ensure_future(engine.finished(execution_id))
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait({finished, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if finished.done():
                state = finished.result()
            else:
                finished.cancel()
                await engine.stop()
                state = await engine.control.state(execution_id)
            row = await store.execution(execution_id)
        finally:
            if drawing is not None:
                drawing.cancel()
            self.watcher.close()
        assert row is not None
        return Ended(state, row, interrupted=not state.is_over)


def _shared(code_key: str | None) -> dict[str, object]:
    """What tools share, as far as it is made before they are there."""
    if code_key is None:
        return {}
    # Only code needs it.
    from noetl.tools.processes.python_call import POOL_KEY, warm_pool  # noqa: PLC0415

    return {POOL_KEY: warm_pool(code_key)}


async def _closed(store: Store, *, failed: bool) -> None:
    """Closes the store; what goes wrong then must not hide the failure that came before."""
    try:
        await store.close()
    except NoetlError:
        if not failed:
            raise
