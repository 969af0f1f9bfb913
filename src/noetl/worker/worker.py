"""The worker of one process: claims work, runs each lease as a task of the event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from noetl.control.live import Live
from noetl.control.plane import ControlPlane, NotWrittenError, Prepare, Work
from noetl.engine.state import Data, State
from noetl.engine.turn import error_data
from noetl.errors import NoetlError
from noetl.ids import timestamp
from noetl.playbook.model import Task
from noetl.records.protocols import ResultBodies, ToolKind
from noetl.records.report import LeaseReport
from noetl.records.tool import ToolDescription
from noetl.secrets.redaction import Redactor
from noetl.worker.calls import Shortened
from noetl.worker.lease import StepLease
from noetl.worker.narration import Narrator

Shared = TypeVar("Shared")


class Worker:
    def __init__(
        self,
        control: ControlPlane,
        descriptions: Mapping[str, ToolDescription],
        tool: Callable[[str], ToolKind],
        *,
        results: ResultBodies,
        folder: Path,
        on_log: Callable[[str, str, str, str], None] | None = None,
        on_crash: Callable[[str, BaseException], None] | None = None,
        prepare: Prepare,
    ) -> None:
        self.control = control
        self.results = results
        self._descriptions = descriptions
        self._tool = tool
        self._folder = folder
        self._folders: dict[str, Path] = {}
        self._on_log = on_log
        self._on_crash = on_crash
        self._prepare = prepare
        self._leases: dict[str, asyncio.Task[None]] = {}
        control.on_revoked = self._revoke
        self._firing: set[asyncio.Task[None]] = set()
        self._shared: dict[str, asyncio.Future[Any]] = {}
        self._redactors: dict[str, Redactor] = {}
        self._random = random.Random()

    async def run(self) -> None:
        """Takes work until it is cancelled."""
        try:
            while True:
                work = await self.control.claim()
                task = asyncio.create_task(self._lease(work))
                self._leases[work.run_id] = task
                task.add_done_callback(partial(self._ended, work.run_id))
        finally:
            running = list(self._leases.values())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._close_shared()

    def _ended(self, run_id: str, task: asyncio.Task[None]) -> None:
        if self._leases.get(run_id) is task:
            del self._leases[run_id]

    def _revoke(self, run_id: str) -> None:
        """Stops what still runs for a step run that is over, tools included."""
        task = self._leases.get(run_id)
        if task is not None:
            task.cancel()

    async def _lease(self, work: Work) -> None:
        try:
            await StepLease(self, work).run()
        except NotWrittenError:
            return  # not the step's failure: the control plane has told whoever waits, who may resume
        except NoetlError as error:
            await self._fail(work, error.code, error.message)
        except Exception as error:  # noqa: BLE001 - a crash becomes the step's recorded failure
            await self._fail(work, "worker.crashed", f"{type(error).__name__}: {error}")

    async def _fail(self, work: Work, kind: str, message: str) -> None:
        """Fails the step of a lease that broke; if even that cannot be written, whoever waits hears of it."""
        state = work.live.state
        run = state.runs.get(work.run_id)
        if run is None:
            return
        at = timestamp(self.control.clock.now())
        problem = error_data(kind, message, step=run.step)
        event = Narrator(work.run_id).step("step.failed", at, "error", error=problem)
        report = LeaseReport(
            command_id=work.run_id, execution_id=state.execution_id, epoch=work.epoch, events=(event,)
        )
        try:
            await self.control.report(report, work.run_id)
            lost = None if self.control.is_current(work.live) else NoetlError(message)
        except NoetlError as error:
            lost = error
        if lost is not None and self._on_crash is not None:
            self._on_crash(state.execution_id, lost)

    async def _close_shared(self) -> None:
        for future in self._shared.values():
            if future.done() and not future.cancelled() and future.exception() is None:
                close = getattr(future.result(), "aclose", None) or getattr(future.result(), "close", None)
                if close is not None:
                    closing = close()
                    if asyncio.iscoroutine(closing):
                        await closing
        self._shared.clear()

    # --- what leases need --------------------------------------------------------------------------------

    def redactor(self, live: Live) -> Redactor:
        """What keeps the secrets of an execution out of its log; raises if one is too short for that."""
        if self._redactors.get(live.state.execution_id) is not live.redactor:
            live.redactor.register_keychain(live.keychain)
            self._redactors[live.state.execution_id] = live.redactor
        return live.redactor

    def chance(self) -> float:
        return self._random.random()

    def kind(self, name: str) -> ToolKind:
        return self._tool(name)

    @property
    def kind_names(self) -> Collection[str]:
        return self._descriptions

    def default_spec(self, kind: str) -> dict[str, Any]:
        description = self._descriptions.get(kind)
        return {} if description is None else description.default_spec

    def sql_fields(self, kind: str) -> tuple[str, ...]:
        description = self._descriptions.get(kind)
        return () if description is None else description.sql_fields

    def folder(self, execution_id: str) -> Path:
        known = self._folders.get(execution_id)
        if known is None:
            known = self._folders[execution_id] = self._folder / execution_id
            known.mkdir(parents=True, exist_ok=True)
        return known

    async def keep_body(self, execution_id: str, short: Shortened) -> None:
        assert short.key is not None
        await self.control.keep_body(execution_id, short.key, short.checksum, short.body)

    async def shared(self, key: str, make: Callable[[], Awaitable[Shared]]) -> Shared:
        future = self._shared.get(key)
        if future is None:
            future = self._shared[key] = asyncio.ensure_future(_made(make))
        found: Shared = await asyncio.shield(future)
        return found

    async def run_child(
        self, parent_id: str, action_id: str, path: str, version: int | None, payload: Data
    ) -> State:
        return await self.control.run_child(parent_id, action_id, path, version, payload, self._prepare)

    def fire_timer(self, lease: StepLease, name: str) -> None:
        """Records that a timer of a waiting step has gone off."""
        task = asyncio.create_task(self.control.fire_timer(lease.live, lease.run_id, name))
        self._firing.add(task)
        task.add_done_callback(self._firing.discard)

    def source_name(self, live: Live) -> str:
        return f"{live.entry.path}.yaml"

    def text_line(self, live: Live, task: Task, field: str) -> int:
        """The line of the file where a field's text begins: the next one for a block scalar."""
        at = task.config_at[field]
        lines = _lines(live.entry.source)
        line = lines[at.line - 1] if at.line <= len(lines) else ""
        return at.line + line.rstrip().endswith(("|", ">", "|-", ">-", "|+", ">+"))

    def show_log(self, lease: StepLease, label: str, stream: str, text: str) -> None:
        if self._on_log is not None:
            self._on_log(lease.execution_id, f"{lease.step.name}/{label}", stream, text)


@lru_cache(maxsize=8)
def _lines(source: bytes) -> list[str]:
    return source.decode("utf-8", "replace").splitlines()


async def _made(make: Callable[[], Awaitable[Shared]]) -> Shared:
    return await make()
