"""The whole engine in one process: store, control plane and worker, for `noetl run`."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from noetl.control.executions import Origin, UnknownExecutionError
from noetl.control.plane import ControlPlane
from noetl.engine.reuse import reuse_from
from noetl.engine.state import Data, State
from noetl.engine.turn import error_data
from noetl.engine.workload import materialise
from noetl.errors import NoetlError
from noetl.ids import Clock, SystemClock, timestamp
from noetl.playbook.layering import merge
from noetl.playbook.load import Loaded
from noetl.playbook.model import Playbook
from noetl.records.event import Event
from noetl.records.protocols import ResultBodies, ToolKind
from noetl.records.result_ref import ref_from_data
from noetl.results.bodies import FileBodies, decoded
from noetl.results.chosen import ChosenBodies
from noetl.secrets.keychain import Resolver
from noetl.secrets.redaction import Redactor
from noetl.store.protocol import CatalogEntry, InboxRow, Store
from noetl.tools.registry import builtin_kinds, runnable
from noetl.worker.worker import Worker

INBOX_SECONDS: Final = 0.05
"""How often the inbox is looked at; a look that finds nothing costs one number read."""


class Embedded:
    """An engine over one store; use it as an asynchronous context manager."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        *,
        clock: Clock | None = None,
        on_event: Callable[[Event], None] | None = None,
        on_log: Callable[[str, str, str, str], None] | None = None,
        tool: Callable[[str], ToolKind] = runnable,
        resolver: Resolver | None = None,
        inbox: bool = False,
        shared: Mapping[str, object] | None = None,
    ) -> None:
        """`inbox`: carries out the requests that other processes leave in the store.

        `shared`: things that tools share and that are made already; they are closed with the engine.
        """
        self.clock = clock or SystemClock()
        self.store = store
        self._resolver = resolver
        self._crashed: asyncio.Future[None] | None = None
        kinds = builtin_kinds()
        bodies = ChosenBodies({"file": FileBodies(folder)})
        self.control = ControlPlane(
            store,
            kinds,
            clock=self.clock,
            prepare=self.prepare,
            on_event=on_event,
            load_stored=stored_loader(bodies),
        )
        self.control.on_not_written = self._crash
        self._worker = Worker(
            self.control,
            kinds,
            tool,
            results=bodies,
            folder=folder,
            clock=self.clock,
            claim_seconds=math.inf,
            on_log=on_log,
            on_crash=self._crash,
            known_plan=self.control.known_plan,
            shared=shared,
        )
        self.control.on_revoked = self._worker.revoke
        self._takes_requests = inbox
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Embedded:
        self._crashed = asyncio.get_running_loop().create_future()
        self._running.append(asyncio.create_task(self._work()))
        if self._takes_requests:
            self._running.append(asyncio.create_task(self._take_requests()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._crashed is not None and not self._crashed.cancel():
            self._crashed.exception()  # it was heard of where the end was awaited, or nobody waits any more

    async def stop(self) -> None:
        """Stops all work and waits until what was decided is in the log; an execution can be resumed."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.control.settle()

    async def _work(self) -> None:
        try:
            await self._worker.run()
        except NoetlError as error:
            self._crash("", error)

    def _crash(self, execution_id: str, error: BaseException) -> None:
        if self._crashed is not None and not self._crashed.done():
            self._crashed.set_exception(error)
            self._crashed.exception()  # whoever waits next raises it

    async def prepare(
        self, playbook: Playbook, payload: Data, origin: Origin
    ) -> tuple[dict[str, Any], Data | None]:
        """The resolved keychain of a playbook, or the problem that keeps it from being started.

        What was resolved until then is given as well: it must not stand in what is written about it.
        """
        if not playbook.keychain:
            return {}, None
        if self._resolver is None:
            return {}, error_data("keychain.unresolved", "nothing here can resolve the playbook's keychain")
        found: dict[str, Any] = {}
        try:
            workload = materialise(playbook.workload, payload, "")
            await self._resolver.resolve(playbook.keychain, workload, found=found)
            Redactor().register_keychain(found)  # raises for a secret that could not be kept out of the log
            return found, None
        except NoetlError as error:
            return found, error_data(error.code, error.message)

    async def _take_requests(self) -> None:
        try:
            while True:
                await take_requests(self.control, self.store)
                await asyncio.sleep(INBOX_SECONDS)
        except NoetlError as error:
            self._crash("", error)

    async def start(self, loaded: Loaded, payload: Data, *, execution_id: str | None = None) -> str:
        """Registers a checked playbook and starts an execution of it."""
        playbook = loaded.playbook
        assert playbook is not None
        now = timestamp(self.clock.now())
        entry = await self.store.register(
            playbook.path, playbook.name, playbook.dialect, loaded.text.encode(), now
        )
        self.control.keep_plan(entry, playbook)
        return await self.start_registered(entry, payload, execution_id=execution_id)

    async def start_registered(
        self, entry: CatalogEntry, payload: Data, *, execution_id: str | None = None
    ) -> str:
        return await self.control.begin(entry, payload, execution_id=execution_id)

    async def repeat(
        self,
        execution_id: str,
        loaded: Loaded | None,
        changes: Data,
        *,
        step: str | None = None,
        failed_items: bool = False,
        announce: Callable[[], str],
    ) -> str:
        """Runs again from a step of an earlier execution, on its playbook or on an edited one.

        `announce` gives the id of the execution that will do so, once it is sure that it can.
        """
        earlier = await self.control.open(execution_id)
        if not earlier.state.is_over:
            raise NoetlError(f"execution {execution_id} is not over; resume it instead")
        entry = earlier.entry
        if loaded is not None:
            playbook = loaded.playbook
            assert playbook is not None
            now = timestamp(self.clock.now())
            entry = await self.store.register(
                playbook.path, playbook.name, playbook.dialect, loaded.text.encode(), now
            )
        plan = self.control.plan(entry)
        log = await self.store.events(execution_id)
        reuse = reuse_from(plan, execution_id, log, step, failed_items=failed_items)
        payload = merge(await self.control.payload_of(earlier), changes)
        return await self.control.begin(entry, payload, execution_id=announce(), reuse=reuse)

    async def resume(self, execution_id: str) -> None:
        """Goes on with an execution that another process began."""
        await self.control.resume(execution_id)

    async def finished(self, execution_id: str) -> State:
        """The state of an execution once it is over; raises what broke the engine itself."""
        assert self._crashed is not None
        waiting = asyncio.ensure_future(self.control.finished(execution_id))
        either: set[asyncio.Future[Any]] = {waiting, self._crashed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self._crashed.result()
            return await waiting
        finally:
            waiting.cancel()


async def take_requests(control: ControlPlane, store: Store) -> None:
    """Carries out what other processes have asked for; a request that came too late has no effect."""
    if not await store.changed():
        return
    for row in await store.take_inbox():
        runs_here = control.is_open(row.execution_id)
        with contextlib.suppress(UnknownExecutionError):
            await carry_out(control, row)
        if not runs_here:
            control.forget(row.execution_id)


async def carry_out(control: ControlPlane, row: InboxRow) -> None:
    """Does what a request asks for."""
    match row.kind:
        case "signal":
            await control.signal(row.execution_id, row.payload["name"], row.payload.get("data"))
        case "cancel":
            await control.cancel(row.execution_id, row.payload.get("reason"))
        case "pause":
            await control.pause(row.execution_id)
        case "resume":
            # Only what is paused here goes on here: another would be left behind when this process ends.
            if control.is_open(row.execution_id):
                await control.resume(row.execution_id)


def stored_loader(bodies: ResultBodies) -> Callable[[Data], Any]:
    async def load_stored(ref: Data) -> Any:  # noqa: ANN401 - plain data
        found = ref_from_data(ref)
        assert found is not None
        return decoded(await bodies.get(found), found)

    return load_stored
