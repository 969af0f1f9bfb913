"""The protocols between the parts: control plane and worker, worker and tool, tool and stored results.

Each has more than one implementation (in the same process, over HTTP, in memory for tests), and one
suite of tests runs over all of them. Nothing here has behaviour of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from noetl.errors import NoetlError
from noetl.records.command import HeldLease
from noetl.records.outcome import Outcome
from noetl.records.report import (
    AnyCommand,
    Beat,
    BeatReply,
    ChildCall,
    ChildState,
    Claim,
    Heard,
    LoopSoFar,
    Report,
    ReportReply,
    TakenSignal,
)
from noetl.records.result_ref import ResultRef
from noetl.records.tool import ToolDescription

Shared = TypeVar("Shared")


class LeaseLostError(NoetlError):
    """The lease is over: whatever was done under it no longer counts."""

    code = "lease.lost"


class NotWrittenError(NoetlError):
    """The store refused what was decided: it has not happened, and a later process may go on."""

    code = "store.error"


class ExecutionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A playbook by path (and version, by default the latest), and the data it is to run on."""

    path: str
    version: int | None = None
    payload: dict[str, Any] = {}
    idempotency_key: str | None = None
    """A second request with the same key is answered with the execution of the first."""
    parent_execution_id: str | None = None
    trace: str | None = None
    """The W3C trace context of whoever asks."""
    secrets: dict[str, str] = {}
    """Values of whoever asks for variables that the playbook's keychain names. They go into no event."""

    def __repr__(self) -> str:
        """Without the values: a request must not bring them into a log by accident."""
        return f"ExecutionRequest(path={self.path!r}, secrets of {sorted(self.secrets)})"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool: every template in it is rendered, every knob layered."""

    kind: str
    config: dict[str, Any]
    args: Any
    spec: dict[str, Any]
    execution_id: str
    step: str
    task_label: str
    task_run_id: str
    attempt: int
    action_id: str
    """The same for all attempts of this call: what makes it idempotent where the other side allows it."""


class WorkSource(Protocol):
    """The control plane as a worker sees it: where work comes from and where reports go.

    Everything but `claim` and `playbook_source` is asked under a lease, and answered with
    LeaseLostError once that is over.
    """

    async def claim(self, claim: Claim) -> tuple[AnyCommand, ...]:
        """Leases work to a worker; empty where there was none in the time it was ready to wait."""
        ...

    async def beat(self, beat: Beat) -> BeatReply: ...

    async def report(self, report: Report) -> ReportReply:
        """Answers once what was reported is in the log."""
        ...

    async def playbook_source(self, digest: str) -> bytes:
        """The text of a playbook that a command names."""
        ...

    async def keychain(self, lease: HeldLease) -> dict[str, Any]:
        """The resolved keychain of the execution's playbook."""
        ...

    async def load_body(self, lease: HeldLease, ref: dict[str, Any]) -> Any:  # noqa: ANN401 - plain data
        """The value a reference stands for, checked against its checksum."""
        ...

    async def keep_body(self, lease: HeldLease, key: str, checksum: str, body: bytes) -> None:
        """Stores a body before the event that refers to it is reported."""
        ...

    async def loop_so_far(self, lease: HeldLease) -> LoopSoFar: ...

    async def heard(self, lease: HeldLease, after: int, limit: int | None = None) -> tuple[Heard, ...]:
        """What a waiting step can hear of that was committed after a place in the log."""
        ...

    async def take_signal(self, lease: HeldLease, name: str, wait_seconds: float) -> TakenSignal | None:
        """The oldest signal of that name that nobody has; None where none came in time."""
        ...

    async def child(self, lease: HeldLease, call: ChildCall, wait_seconds: float) -> ChildState:
        """Starts a child execution, or finds the one this call began, and waits a while for its end."""
        ...

    async def stop_child(self, lease: HeldLease, call_id: str) -> None:
        """Cancels the child of a call that nobody waits for any more."""
        ...


class ControlPlane(WorkSource, Protocol):
    """Starts and steers executions, and hands out their work. The only writer of the queue."""

    async def start(self, request: ExecutionRequest) -> str:
        """The id of the execution that was started."""
        ...

    async def cancel(self, execution_id: str, reason: str | None = None) -> None: ...

    async def pause(self, execution_id: str) -> None: ...

    async def resume(self, execution_id: str) -> None: ...

    async def signal(self, execution_id: str, name: str, data: Any) -> None:  # noqa: ANN401 - plain data
        """Delivers an event from outside; it is kept until something waits for it."""
        ...


class ResultBodies(Protocol):
    """Stores the bodies of large results and gives them back, checked against their checksum."""

    async def put(
        self, execution_id: str, body: bytes | AsyncIterator[bytes], *, media_type: str, store: object
    ) -> ResultRef:
        """Stores a body where `store` (the value of `spec.result.store`) says."""
        ...

    async def get(self, ref: ResultRef) -> bytes: ...

    def stream(self, ref: ResultRef) -> AsyncIterator[bytes]:
        """The body in pieces, for bodies that should not be in memory at once."""
        ...


class ChildEnd(NamedTuple):
    """How a child execution ended."""

    execution_id: str
    status: str
    result: Any
    error: dict[str, Any] | None


class ToolContext(Protocol):
    """What a running tool may use of the world around it."""

    @property
    def results(self) -> ResultBodies: ...

    @property
    def folder(self) -> Path:
        """The execution's own folder; relative paths in a playbook lie under it."""
        ...

    @property
    def process_key(self) -> str:
        """What code processes are kept apart by: the playbook's version and its isolation profile."""
        ...

    @property
    def began(self) -> float:
        """When this call began, in seconds since 1970; one that a crash broke off keeps its beginning."""
        ...

    async def free_name(self, name: str) -> object:
        """What a name stands for that code uses without defining it; KeyError where it is nothing."""
        ...

    def source_line(self, field: str) -> tuple[str, int] | None:
        """The playbook file, and the line in it where the text of a field begins; None if it has none."""
        ...

    async def credential(self, name: str) -> Mapping[str, Any]: ...

    async def shared(self, key: str, make: Callable[[], Awaitable[Shared]]) -> Shared:
        """A client or pool: made by the first call with this key, given to later ones, closed at the end."""
        ...

    async def sleep_until(self, moment: float) -> None:
        """Waits for a moment in seconds since 1970; no worker need be held meanwhile."""
        ...

    async def wait_for_signal(self, name: str, question: str | None = None) -> Any:  # noqa: ANN401 - plain data
        """The data of the next signal of that name to this execution, one kept from before included.

        `question` is what a person is asked meanwhile; it is shown to whoever looks at the execution.
        """
        ...

    def add_secret(self, value: object) -> None:
        """Makes a value a secret of the execution; in a mapping or list, each text in it."""
        ...

    async def run_playbook(self, path: str, version: int | None, payload: dict[str, Any]) -> ChildEnd:
        """Runs another playbook as a child execution and waits for its end."""
        ...

    def log(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Adds to the task's log; secrets are taken out on the way."""
        ...


class ToolKind(Protocol):
    """A tool kind: a module (or an object) with its description and the function that runs it.

    `run` gives an outcome for everything that can go wrong with the call itself; an exception that
    leaves it is a bug of the tool, and is recorded as one.
    """

    @property
    def DESCRIPTION(self) -> ToolDescription: ...  # noqa: N802 - a constant of the module

    async def run(self, call: ToolCall, context: ToolContext) -> Outcome: ...
