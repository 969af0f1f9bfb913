"""What the handlers work with: the control plane, the registry and the rest of one replica.

A state is seen through the protocols here, for the server knows nothing of the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from noetl.control.plane import ControlPlane
from noetl.ids import Clock
from noetl.records.command import HeldLease
from noetl.records.report import AnyCommand
from noetl.records.tool import ToolDescription
from noetl.registry.credentials import Credentials
from noetl.registry.runtime import Runtimes
from noetl.registry.sessions import Sessions
from noetl.registry.tokens import Tokens
from noetl.server.observer import Observer
from noetl.server.options import ServerOptions
from noetl.store.protocol import Store


class StepState(Protocol):
    """The last run of a step."""

    @property
    def status(self) -> str: ...
    @property
    def runs(self) -> int: ...
    @property
    def result(self) -> Any: ...  # noqa: ANN401 - plain data
    @property
    def error(self) -> Mapping[str, Any] | None: ...
    @property
    def duration_ms(self) -> float | None: ...
    @property
    def seq(self) -> int: ...


class LoopState(Protocol):
    """An open loop."""

    @property
    def total(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def open(self) -> Mapping[int, object]: ...


class WaitsState(Protocol):
    """What work that was given back waits for."""

    @property
    def until(self) -> float | None: ...
    @property
    def signals(self) -> Sequence[str]: ...
    @property
    def questions(self) -> Mapping[str, str]: ...
    @property
    def children(self) -> Sequence[str]: ...


class RunState(Protocol):
    """A step run that is open."""

    @property
    def step(self) -> str: ...
    @property
    def loop(self) -> LoopState | None: ...
    @property
    def parked(self) -> Mapping[int, WaitsState]: ...


class ExecutionState(Protocol):
    """An execution as it stands."""

    @property
    def execution_id(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def workload(self) -> Mapping[str, Any]: ...
    @property
    def ctx(self) -> Mapping[str, Any]: ...
    @property
    def vars(self) -> Mapping[str, Any]: ...
    @property
    def steps(self) -> Mapping[str, StepState]: ...
    @property
    def runs(self) -> Mapping[str, RunState]: ...
    @property
    def result(self) -> Any: ...  # noqa: ANN401 - plain data
    @property
    def is_over(self) -> bool: ...


class LeaseOwnership(Protocol):
    """Knows which worker was given a lease."""

    def note(self, worker_id: str, commands: Iterable[AnyCommand]) -> None: ...

    async def holds(self, parts: Parts, caller: Caller, lease: HeldLease) -> bool: ...


class Parts(NamedTuple):
    control: ControlPlane
    kinds: Mapping[str, ToolDescription]
    tokens: Tokens
    credentials: Credentials | None
    """None: this server has no master key, and so no credentials."""
    sessions: Sessions | None
    runtimes: Runtimes
    observer: Observer
    options: ServerOptions
    clock: Clock
    owners: LeaseOwnership
    stopping: asyncio.Event
    """Set when the server is told to stop: nothing is waited for from then on."""

    @property
    def store(self) -> Store:
        return self.control.store


class Caller(NamedTuple):
    """Who asks."""

    name: str
    role: str
    is_checked: bool = True
    """False on a server that does not ask who calls."""
    pools: tuple[str, ...] = ()
    """Those its token is bound to; none: any."""

    def may_take_from(self, pool: str) -> bool:
        return not self.pools or pool in self.pools

    def worker_id(self, given: str) -> str:
        """The name of one of the caller's workers, which no other token's worker has."""
        return f"{self.name}:{given}" if self.is_checked else given

    def owns(self, worker_id: str | None) -> bool:
        return not self.is_checked or (worker_id is not None and worker_id.startswith(f"{self.name}:"))


Given: TypeAlias = NamedDependency[SkipValidation[Parts]]
Asking: TypeAlias = NamedDependency[SkipValidation[Caller]]
