"""What a running tool may use: the implementation of `ToolContext` for one call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from noetl.errors import NoetlError
from noetl.playbook.model import Task
from noetl.records.protocols import ChildEnd, ResultBodies, ToolCall
from noetl.worker.redacted_results import RedactedResults

if TYPE_CHECKING:
    from noetl.worker.lease import StepLease

Shared = TypeVar("Shared")

LOG_CHARACTERS: Final = 8 * 1024
"""How much of a task's log is kept with its outcome; more is cut at the front."""


class CredentialUnknownError(NoetlError):
    code = "credential.unknown"


class TaskContext:
    def __init__(self, lease: StepLease, task: Task, call: ToolCall, began: float) -> None:
        self._lease = lease
        self._task = task
        self._call = call
        self._began = began
        self.signal: int | None = None
        """The signal this call took, by its place in the log."""
        self._log: list[str] = []
        self._log_size = 0

    @property
    def results(self) -> ResultBodies:
        results = self._lease.worker.results
        redactor = self._lease.redactor
        return RedactedResults(results, redactor) if redactor.knows_secrets else results

    @property
    def folder(self) -> Path:
        return self._lease.worker.folder(self._lease.execution_id)

    @property
    def process_key(self) -> str:
        """Code of one playbook version never runs in a process of another's."""
        isolation = self._call.spec.get("isolation", "process")
        return f"{self._lease.live.entry.digest}/{isolation}"

    @property
    def began(self) -> float:
        """When this call began, in seconds since 1970; one that a crash broke off keeps its beginning."""
        return self._began

    async def credential(self, name: str) -> Mapping[str, Any]:
        keychain = self._lease.live.keychain
        if name not in keychain:
            raise CredentialUnknownError(f"there is no credential `{name}` in the playbook's keychain")
        found = keychain[name]
        return found if isinstance(found, Mapping) else {"value": found}

    async def shared(self, key: str, make: Callable[[], Awaitable[Shared]]) -> Shared:
        return await self._lease.worker.shared(key, make)

    def free_name(self, name: str) -> object:
        """The value of a name that code uses without binding it: the step's args, then the workload."""
        around = self._lease.around
        for layer in (around.args, around.workload):
            if name in layer:
                return layer[name]
        raise KeyError(name)

    def source_line(self, field: str) -> tuple[str, int] | None:
        """The file of the playbook and the line where the text of a field begins."""
        at = self._task.config_at.get(field)
        if at is None:
            return None
        worker, live = self._lease.worker, self._lease.live
        return worker.source_name(live), worker.text_line(live, self._task, field)

    async def run_playbook(self, path: str, version: int | None, payload: dict[str, Any]) -> ChildEnd:
        """Runs another playbook as a child execution; each attempt has its own, also after a crash."""
        attempt = f"{self._call.action_id}/{self._call.attempt}"
        state = await self._lease.worker.run_child(self._lease.execution_id, attempt, path, version, payload)
        return ChildEnd(state.execution_id, state.status, state.result, state.error)

    async def wait_for_signal(self, name: str) -> Any:  # noqa: ANN401 - plain data
        self.signal, data = await self._lease.live.next_signal(name)
        return data

    def add_secret(self, value: object) -> None:
        """Keeps a value out of everything that is written from now on."""
        self._lease.redactor.register(value, f"a secret of task `{self._task.label}`")

    def log(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        text = self._lease.redactor.text(text)
        self._log.append(text)
        self._log_size += len(text)
        while self._log_size > 2 * LOG_CHARACTERS and len(self._log) > 1:
            self._log_size -= len(self._log.pop(0))
        self._lease.worker.show_log(self._lease, self._task.label, stream, text)

    def taken_log(self) -> str:
        return "".join(self._log)[-LOG_CHARACTERS:]
