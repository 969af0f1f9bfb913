"""The worker: claims commands, runs each lease as a task of the event loop, reports what happened.

It knows the control plane only as a `WorkSource`, in the same process or over HTTP. It never touches a
store and decides nothing about the course of an execution.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar

from noetl.engine.bodies import Bodies
from noetl.engine.plan import Plan
from noetl.engine.turn import error_data
from noetl.errors import NoetlError
from noetl.ids import Clock, timestamp
from noetl.playbook.load import load
from noetl.private_folders import make_private
from noetl.records.command import HeldLease
from noetl.records.protocols import LeaseLostError, NotWrittenError, ResultBodies, ToolKind, WorkSource
from noetl.records.report import AnyCommand, Claim, LeaseReport, Report, ReportReply, Verdict
from noetl.records.result_ref import ref_from_data
from noetl.records.tool import ToolDescription
from noetl.results.bodies import decoded
from noetl.secrets.redaction import Redactor
from noetl.worker.beats import Beats
from noetl.worker.lease import StepLease
from noetl.worker.narration import Narrator
from noetl.worker.quiet import QuietTasks

Shared = TypeVar("Shared")

MOST_KNOWN: Final = 1_000
"""Of how many executions the worker remembers secrets."""
MOST_WITH_BODIES: Final = 16
"""Of how many it remembers stored results, which may be large; a lease keeps those it uses anyway."""
CLAIM_SECONDS: Final = 20.0
"""How long a claim may be held back while there is nothing to do."""
CLAIM_AT_ONCE: Final = 2
"""Commands claimed in one go: few, so that the workers that wake up for a loop share its leases. It doubles
while there is more than that to claim: a long queue is not shared out by twos."""
MOST_AT_ONCE: Final = 64


class KnownPlaybook:
    """A playbook version as a worker keeps it: parsed once."""

    def __init__(self, plan: Plan, path: str, source: bytes) -> None:
        self.plan = plan
        self.file_name = f"{path}.yaml"
        self._source = source

    @cached_property
    def _lines(self) -> list[str]:
        return self._source.decode("utf-8", "replace").splitlines()

    def text_line(self, line: int) -> int:
        """The line of the file where the text of a field begins: the next one for a block scalar."""
        written = self._lines[line - 1] if line <= len(self._lines) else ""
        return line + written.rstrip().endswith(("|", ">", "|-", ">-", "|+", ">+"))


class Worker:
    def __init__(
        self,
        source: WorkSource,
        descriptions: Mapping[str, ToolDescription],
        tool: Callable[[str], ToolKind],
        *,
        results: ResultBodies,
        folder: Path,
        clock: Clock,
        worker_id: str = "local",
        pool: str = "default",
        slots: int | None = None,
        claim_seconds: float = CLAIM_SECONDS,
        beats: bool = False,
        on_log: Callable[[str, str, str, str], None] | None = None,
        on_crash: Callable[[str, BaseException], None] | None = None,
        known_plan: Callable[[str], Plan | None] = lambda digest: None,
        shared: Mapping[str, object] | None = None,
    ) -> None:
        """`slots`: how many leases it holds at once. `beats`: they run out unless they are renewed.

        `known_plan`: playbooks that are parsed in this process already. `shared`: things that tools share
        and that are made already; the worker closes them.
        """
        self.source = source
        self.results = results
        self.clock = clock
        self.worker_id = worker_id
        self.pool = pool
        self._claim_seconds = claim_seconds
        self._slots = math.inf if slots is None else slots
        self._descriptions = descriptions
        self._tool = tool
        self._folder = folder
        self._folders: dict[str, Path] = {}
        self._on_log = on_log
        self._on_crash = on_crash
        self._known_plan = known_plan
        self._known: dict[str, KnownPlaybook] = {}
        self._leases: dict[str, asyncio.Task[None]] = {}
        self.held: dict[str, AnyCommand] = {}
        """The commands it has a lease on, by id."""
        self.given_up: set[HeldLease] = set()
        """Leases that are over, or may be, while their work is being stopped: others go on with it."""
        self._beats = Beats(self) if beats else None
        self._freed = asyncio.Event()
        self._claim_limit = CLAIM_AT_ONCE
        self._reporting: set[asyncio.Future[ReportReply]] = set()
        self._draining = False
        self.is_stopping = False
        self._abandoning: set[asyncio.Task[None]] = set()
        self._shared: dict[str, asyncio.Future[Any]] = {}
        for key, made in (shared or {}).items():
            self._shared[key] = asyncio.get_running_loop().create_future()
            self._shared[key].set_result(made)
        self._redactors: dict[str, Redactor] = {}
        self._bodies: dict[str, Bodies] = {}
        self._random = random.Random()
        self.quiet = QuietTasks()

    # --- claiming -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Takes work until it is cancelled, or drained and done."""
        if self._beats is not None:
            self._beats.start()
        try:
            while not self._draining:
                free = self.free_slots
                if free == 0:
                    self._freed.clear()
                    await self._freed.wait()
                    continue
                await self._claim(free)
            while self._leases:
                await asyncio.wait(self._leases.values())
        finally:
            await self._stop()

    async def _claim(self, free: int) -> None:
        claim = Claim(
            worker_id=self.worker_id,
            pool=self.pool,
            limit=min(free, self._claim_limit),
            wait_seconds=self._claim_seconds,
        )
        commands = await self.source.claim(claim)
        is_full = len(commands) == self._claim_limit
        self._claim_limit = min(2 * self._claim_limit, MOST_AT_ONCE) if is_full else CLAIM_AT_ONCE
        for command in commands:
            self.begin(command)

    def begin(self, command: AnyCommand) -> None:
        """Runs a command that was leased to this worker."""
        command_id = command.lease.command_id
        earlier = self._leases.get(command_id)
        if earlier is not None:  # the lease was lost and has come back
            earlier.cancel()
        task = asyncio.create_task(self._lease(command))
        self._leases[command_id] = task
        self.held[command_id] = command
        task.add_done_callback(partial(self._ended, command_id))
        task.add_done_callback(lambda _: self.given_up.discard(command.lease))

    def drain(self) -> None:
        """Claims nothing more; `run` returns when what is under way has ended."""
        self._draining = True
        self._freed.set()

    @property
    def free_slots(self) -> int:
        return MOST_KNOWN if self._slots == math.inf else max(0, int(self._slots) - len(self._leases))

    @property
    def is_draining(self) -> bool:
        return self._draining

    def _ended(self, command_id: str, task: asyncio.Task[None]) -> None:
        if self._leases.get(command_id) is task:
            del self._leases[command_id]
            del self.held[command_id]
            self._freed.set()

    def revoke(self, command_id: str) -> None:
        """Stops what still runs for a command that is over, tools included."""
        task = self._leases.get(command_id)
        if task is not None:
            task.cancel()

    def revoke_lease(self, command: AnyCommand) -> None:
        """Stops a lease that is over, unless the same command has been leased again."""
        if self.held.get(command.lease.command_id) is command:
            self.given_up.add(command.lease)
            self.revoke(command.lease.command_id)

    async def _stop(self) -> None:
        self.is_stopping = True
        running = list(self._leases.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for sending in self._reporting:
            sending.cancel()
        await asyncio.gather(*self._reporting, return_exceptions=True)
        await asyncio.gather(*self._abandoning, return_exceptions=True)
        if self._beats is not None:
            await self._beats.stop()
        await self._close_shared()

    # --- one lease ----------------------------------------------------------------------------------------

    async def _lease(self, command: AnyCommand) -> None:
        try:
            known = await self._playbook(command)
            keychain = await self.source.keychain(command.lease) if command.has_secrets else {}
            await StepLease(self, command, known, keychain).run()
        except (LeaseLostError, NotWrittenError):
            return  # not the step's failure: whoever has the lease next goes on
        except NoetlError as error:
            await self._fail(command, error.code, error.message)
        except Exception as error:  # noqa: BLE001 - a crash becomes the step's recorded failure
            await self._fail(command, "worker.crashed", f"{type(error).__name__}: {error}")

    async def _playbook(self, command: AnyCommand) -> KnownPlaybook:
        digest = command.playbook.digest
        known = self._known.get(digest)
        if known is None:
            source = await self.source.playbook_source(digest)
            plan = self._known_plan(digest)
            if plan is None:
                loaded = load(source, self._descriptions)
                if loaded.playbook is None:
                    first = next(found for found in loaded.diagnostics if found.severity == "error")
                    raise NoetlError(
                        f"this worker cannot read the playbook, line {first.line}: {first.message}"
                    )
                plan = Plan(loaded.playbook)
            known = self._known[digest] = KnownPlaybook(plan, command.playbook.path, source)
        return known

    async def _fail(self, command: AnyCommand, kind: str, message: str) -> None:
        """Fails the step of a lease that broke; if even that cannot be written, whoever waits hears of it."""
        at = timestamp(self.clock.now())
        problem = error_data(kind, message, step=command.step)
        event = Narrator(command.step_run_id).step("step.failed", at, "error", error=problem)
        try:
            await self.report(LeaseReport(lease=command.lease, events=(event,)))
        except NoetlError as error:
            if self._on_crash is not None:
                self._on_crash(command.lease.execution_id, error)

    async def report(self, report: LeaseReport) -> Verdict:
        """Reports under one lease, and takes up the work that comes along with the answer."""
        free = 0 if self._draining else self.free_slots
        asked = Report(worker_id=self.worker_id, leases=(report,), pool=self.pool, free_slots=free)
        if self._beats is None:  # nobody takes a lease away from a worker in the server's own process
            reply = await self.source.report(asked)
            for command in reply.commands:
                self.begin(command)
            return reply.verdicts[0]
        # Whoever reports may be stopped meanwhile, for a beat finds its lease ended by this very report. The
        # work in the answer is leased to this worker all the same, and nobody else would get it for long.
        sending = asyncio.ensure_future(self.source.report(asked))
        self._reporting.add(sending)
        sending.add_done_callback(self._take_up)
        return (await asyncio.shield(sending)).verdicts[0]

    def _take_up(self, sending: asyncio.Future[ReportReply]) -> None:
        self._reporting.discard(sending)
        if sending.cancelled() or sending.exception() is not None or self.is_stopping:
            return  # whoever reported hears of it
        for command in sending.result().commands:
            self.begin(command)

    def abandon_child(self, lease: StepLease, call_id: str) -> None:
        """Lets a child be cancelled whose caller was stopped."""
        task = asyncio.create_task(self._stop_child(lease, call_id))
        self._abandoning.add(task)
        task.add_done_callback(self._abandoning.discard)

    async def _stop_child(self, lease: StepLease, call_id: str) -> None:
        try:
            await self.source.stop_child(lease.held, call_id)
        except NoetlError:
            return  # its parent ends with its children, however it ends

    # --- what leases need --------------------------------------------------------------------------------

    def redactor(self, execution_id: str, keychain: Mapping[str, Any]) -> Redactor:
        """What keeps the secrets of an execution out of its log; raises if one is too short for that."""
        found = _remembered(self._redactors, execution_id, Redactor)
        if keychain:
            found.register_keychain(keychain)
        return found

    def bodies(self, execution_id: str) -> Bodies:
        """The stored results of an execution that are at hand."""
        return _remembered(self._bodies, execution_id, Bodies, MOST_WITH_BODIES)

    async def load_stored(self, ref: dict[str, Any]) -> Any:  # noqa: ANN401 - plain data
        """The value of a reference to a body that is kept outside the database."""
        found = ref_from_data(ref)
        if found is None:
            raise NoetlError(f"`{ref.get('ref')}` is no reference to a stored result")
        return decoded(await self.results.get(found), found)

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
            make_private(known)
        return known

    async def shared(self, key: str, make: Callable[[], Awaitable[Shared]]) -> Shared:
        future = self._shared.get(key)
        if future is None:
            future = self._shared[key] = asyncio.ensure_future(_made(make))
        found: Shared = await asyncio.shield(future)
        return found

    async def _close_shared(self) -> None:
        for future in self._shared.values():
            if future.done() and not future.cancelled() and future.exception() is None:
                close = getattr(future.result(), "aclose", None) or getattr(future.result(), "close", None)
                if close is not None:
                    closing = close()
                    if asyncio.iscoroutine(closing):
                        await closing
        self._shared.clear()

    def show_log(self, lease: StepLease, label: str, stream: str, text: str) -> None:
        if self._on_log is not None:
            self._on_log(lease.execution_id, f"{lease.step.name}/{label}", stream, text)


def _remembered(
    known: dict[str, Shared], execution_id: str, make: Callable[[], Shared], most: int = MOST_KNOWN
) -> Shared:
    """What belongs to an execution; that of the one used longest ago is forgotten."""
    found = known.pop(execution_id, None)
    if found is None:
        found = make()
        while len(known) >= most:
            del known[next(iter(known))]
    known[execution_id] = found
    return found


async def _made(make: Callable[[], Awaitable[Shared]]) -> Shared:
    return await make()
