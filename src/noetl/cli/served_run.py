"""Starts an execution on a server, or goes on with one there, and watches it from here.

Its log is followed; the state it leads to is folded from that, as everywhere. Interrupting this leaves the
execution alone: the server goes on with it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from noetl.cli.served import ServedStore, api_of, event_of
from noetl.cli.stores import ServedPlace
from noetl.cli.summary import Source
from noetl.cli.watched import Ended, Watched, stopped
from noetl.client.control import HttpControl
from noetl.client.wire import RetryRequest
from noetl.engine.fold import fold
from noetl.engine.state import Data, State
from noetl.errors import UsageError
from noetl.playbook.load import load
from noetl.records.event import Event
from noetl.records.protocols import ExecutionRequest
from noetl.settings import Settings
from noetl.tools.registry import builtin_kinds

Begin = Callable[[ServedStore], Awaitable[str]]


class ServedRun(Watched):
    """One execution that a server carries out."""

    place: ServedPlace

    def __init__(
        self, options: argparse.Namespace, settings: Settings, place: ServedPlace, trace: str | None = None
    ) -> None:
        super().__init__(options, settings, place)
        self._trace = trace

    def run_file(self, text: str, payload: Data, secrets: dict[str, str]) -> int:
        """Registers a playbook and runs that version."""

        async def begin(store: ServedStore) -> str:
            entry = await store.api.register(text)
            return await self._start(store, entry.path, entry.version, payload, secrets)

        return self._to_the_end(begin)

    def run_registered(self, path: str, version: int | None, payload: Data, secrets: dict[str, str]) -> int:
        return self._to_the_end(lambda store: self._start(store, path, version, payload, secrets))

    def resume(self, execution_id: str) -> int:
        async def begin(store: ServedStore) -> str:
            await HttpControl(store.api.connection).resume(execution_id)
            return execution_id

        return self._to_the_end(begin)

    def retry(self, execution_id: str, request: RetryRequest) -> int:
        return self._to_the_end(lambda store: store.api.retry(execution_id, request))

    async def _start(
        self, store: ServedStore, path: str, version: int | None, payload: Data, secrets: dict[str, str]
    ) -> str:
        request = ExecutionRequest(
            path=path, version=version, payload=payload, trace=self._trace, secrets=secrets
        )
        return await HttpControl(store.api.connection).start(request)

    def _to_the_end(self, begin: Begin) -> int:
        with self.events_file():
            ended, source = asyncio.run(self._drive(begin))
        return self.tell_end(ended, source)

    async def _drive(self, begin: Begin) -> tuple[Ended, Source]:
        stop = stopped()
        store = ServedStore(api_of(self.place.server, self._trace))
        try:
            execution_id = self.expect(await begin(store))
            state = State(execution_id=execution_id)
            drawing = asyncio.create_task(self.redraw()) if self.watcher.is_drawn else None
            following = asyncio.ensure_future(self._follow(store, state))
            stopping = asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()
            finally:
                for task in (following, stopping, *(() if drawing is None else (drawing,))):
                    task.cancel()
                self.watcher.close()
            row = await store.execution(execution_id)
            if row is None:
                raise UsageError(f"the server no longer has execution {execution_id}")
            entry = await store.catalog_entry(row.path, row.version)
            text = "" if entry is None else entry.source.decode()
        finally:
            await store.close()
        ended = Ended(state, row, interrupted=state.finished_at is None)
        playbook = load(text.encode(), builtin_kinds()).playbook
        assert playbook is not None
        return ended, Source(f"{row.path}@{row.version}", text, playbook)

    async def _follow(self, store: ServedStore, state: State) -> None:
        async for view in store.api.follow(state.execution_id):
            event = event_of(view)
            fold(state, event)
            self.event(event)
            self._show_log(event)

    def _show_log(self, event: Event) -> None:
        """What a task printed comes with its end."""
        text = event.payload.get("log")
        if event.event_type == "task.done" and isinstance(text, str) and event.step is not None:
            self.watcher.log(event.step, str(event.task_label), text)
