"""What a running tool may use: the implementation of `ToolContext` for one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from noetl.engine.bodies import is_ref
from noetl.engine.state import Waits
from noetl.errors import NoetlError
from noetl.playbook.model import Task
from noetl.records.command import process_key
from noetl.records.protocols import ChildEnd, LeaseLostError, NotWrittenError, ResultBodies, ToolCall
from noetl.records.report import ChildCall, TakenSignal
from noetl.worker.calls import TimeIsUpError, time_limit, with_bodies
from noetl.worker.parking import PATIENCE_SECONDS
from noetl.worker.pipeline import Stopped
from noetl.worker.redacted_results import NotedResults, RedactedResults

if TYPE_CHECKING:
    from noetl.worker.lease import StepLease

Shared = TypeVar("Shared")
Given = TypeVar("Given")

CHILD_LOOK_SECONDS: Final = 900.0
"""How long the end of a child may go unnoticed at the worst."""
LONG_POLL_SECONDS: Final = 20.0
"""How long one question about something that is still to come may be held back."""
A_MOMENT: Final = 0.05
"""How long to wait before looking again for what another branch is about to take."""
LOG_CHARACTERS: Final = 8 * 1024
"""How much of a task's log is kept with its outcome; more is cut at the front."""


class CredentialUnknownError(NoetlError):
    code = "credential.unknown"


class TaskContext:
    def __init__(
        self,
        lease: StepLease,
        task: Task,
        call: ToolCall,
        began: float,
        commit: Callable[[], Awaitable[None]],
    ) -> None:
        self._lease = lease
        self._task = task
        self._call = call
        self._began = began
        self._commit = commit
        self.lease_over: Exception | None = None
        """How a question of this call found its lease over: then whatever the tool says is nobody's."""
        self.signal: int | None = None
        """The signal this call took, by its place in the log."""
        self.made: set[str] = set()
        """The references to what this call stored."""
        self._log: list[str] = []
        self._log_size = 0
        self._held: dict[Literal["stdout", "stderr"], str] = {}
        """The end of what was printed so far, where a secret may begin that goes on in the next piece."""

    @property
    def results(self) -> ResultBodies:
        results = self._lease.worker.results
        redactor = self._lease.redactor
        if redactor.knows_secrets:
            results = RedactedResults(results, redactor)
        return NotedResults(results, self.made)

    @property
    def folder(self) -> Path:
        return self._lease.worker.folder(self._lease.execution_id)

    @property
    def process_key(self) -> str:
        """Code of one playbook version never runs in a process of another's."""
        return process_key(self._lease.command.playbook.digest, self._call.spec.get("isolation", "process"))

    @property
    def began(self) -> float:
        """When this call began, in seconds since 1970; one that a crash broke off keeps its beginning."""
        return self._began

    async def credential(self, name: str) -> Mapping[str, Any]:
        keychain = self._lease.keychain
        if name not in keychain:
            raise CredentialUnknownError(f"there is no credential `{name}` in the playbook's keychain")
        found = keychain[name]
        return found if isinstance(found, Mapping) else {"value": found}

    async def shared(self, key: str, make: Callable[[], Awaitable[Shared]]) -> Shared:
        return await self._lease.worker.shared(key, make)

    async def free_name(self, name: str) -> object:
        """The value of a name that code uses without binding it: the step's args, then the workload."""
        for layer in (self._lease.around.args, self._lease.around.workload):
            values = await self._whole(layer)
            if name in values:
                return await self._whole(values[name])
        raise KeyError(name)

    async def _whole(self, value: Any) -> Any:  # noqa: ANN401 - plain data
        """The value, or what a reference stands for."""
        if not is_ref(value):
            return value
        return await self._asked(with_bodies(lambda: self._lease.bodies.get(value), self._lease))

    async def _asked(self, asking: Awaitable[Given]) -> Given:
        """The answer to a question under the lease; that it is over is noted, whatever the tool does."""
        try:
            return await asking
        except (LeaseLostError, NotWrittenError, Stopped) as error:
            self.lease_over = error
            raise

    def source_line(self, field: str) -> tuple[str, int] | None:
        """The file of the playbook and the line where the text of a field begins."""
        at = self._task.config_at.get(field)
        if at is None:
            return None
        return self._lease.known.file_name, self._lease.known.text_line(at.line)

    async def run_playbook(self, path: str, version: int | None, payload: dict[str, Any]) -> ChildEnd:
        """Runs another playbook as a child execution; each attempt has its own, also after a crash."""
        lease, source = self._lease, self._lease.worker.source
        call = ChildCall(
            call_id=f"{self._call.action_id}/{self._call.attempt}",
            path=path,
            version=version,
            payload=lease.redactor.data(payload),
        )
        try:
            child = await self._asked(source.child(lease.held, call, self._patience(PATIENCE_SECONDS)))
            if not child.is_over:
                self._require_time()
                await self._asked(self._commit())
                waits = Waits(children=[child.execution_id], until=self._next_look())
                async with lease.parking.waiting(waits, at_once=True):
                    while not child.is_over:
                        self._require_time()
                        patience = self._patience(LONG_POLL_SECONDS)
                        child = await self._asked(source.child(lease.held, call, patience))
        except (asyncio.CancelledError, TimeIsUpError):
            lease.abandon_child(call.call_id)
            raise
        return ChildEnd(child.execution_id, child.status, child.result, child.error)

    async def wait_for_signal(self, name: str, question: str | None = None) -> Any:  # noqa: ANN401 - plain data
        taken = await self._take_signal(name, 0.0)
        if taken is None:
            self._require_time()
            await self._asked(self._commit())
            asked = {} if question is None else {name: question}
            waits = Waits(signals=[name], questions=asked, until=self._time_is_up())
            async with self._lease.parking.waiting(waits, at_once=False):
                while taken is None:
                    self._require_time()
                    taken = await self._take_signal(name, self._patience(LONG_POLL_SECONDS))
        self.signal = taken.place
        return taken.data

    async def _take_signal(self, name: str, wait_seconds: float) -> TakenSignal | None:
        """A signal that is this call's alone: other branches of the lease may be given the same one."""
        lease, call_id = self._lease, self._call.action_id
        taken = await self._asked(lease.worker.source.take_signal(lease.held, name, wait_seconds))
        if taken is None or lease.signals.setdefault(taken.place, call_id) == call_id:
            return taken
        await asyncio.sleep(A_MOMENT)  # it leaves the mailbox with the report of the call that has it
        return None

    async def sleep_until(self, moment: float) -> None:
        if moment - self._lease.now() > PATIENCE_SECONDS:
            await self._asked(self._commit())
        limit = self._time_is_up()
        until = moment if limit is None else min(moment, limit)
        await self._lease.sleep_until(until)
        if until < moment:  # both may have passed while nobody ran this: it counts which came first
            raise TimeIsUpError

    def _next_look(self) -> float:
        """When to look after a child whose end nobody told of: whoever was to may have died."""
        look, limit = self._lease.now() + CHILD_LOOK_SECONDS, self._time_is_up()
        return look if limit is None else min(look, limit)

    def _time_is_up(self) -> float | None:
        """When the time of this call is over, in seconds since 1970."""
        limit = time_limit(self._call.spec)
        return None if limit is None else self._began + limit

    def _patience(self, most: float) -> float:
        """How long an answer may be waited for; what has come is looked for also when the time is over."""
        limit = self._time_is_up()
        return most if limit is None else max(0.0, min(most, limit - self._lease.now()))

    def _require_time(self) -> None:
        limit = self._time_is_up()
        if limit is not None and limit <= self._lease.now():
            raise TimeIsUpError

    def add_secret(self, value: object) -> None:
        """Keeps a value out of everything that is written from now on."""
        self._lease.redactor.register(value, f"a secret of task `{self._task.label}`")

    def log(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        redactor = self._lease.redactor
        if redactor.knows_secrets:
            text = redactor.text(self._held.pop(stream, "") + text)
            end = redactor.unfinished(text)
            if end < len(text):
                text, self._held[stream] = text[:end], text[end:]
        if text:
            self._show(stream, text)

    def _show(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        self._log.append(text)
        self._log_size += len(text)
        while self._log_size > 2 * LOG_CHARACTERS and len(self._log) > 1:
            self._log_size -= len(self._log.pop(0))
        self._lease.worker.show_log(self._lease, self._task.label, stream, text)

    def taken_log(self) -> str:
        """What was printed, when nothing more comes: its end may have been cut."""
        for stream, held in self._held.items():
            self._show(stream, self._lease.redactor.cut_text(held))
        self._held = {}
        return "".join(self._log)[-LOG_CHARACTERS:]
