"""Control planes over one store in memory, on a clock that jumps; reports as a worker would send them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from noetl.control.plane import ControlPlane
from noetl.playbook.load import load
from noetl.records.report import AnyCommand, Claim, LeaseReport, Report, ReportedEvent, ReportReply
from noetl.store.memory import MemoryStore
from noetl.store.protocol import CatalogEntry
from noetl.testing import FakeClock
from noetl.tools.registry import builtin_kinds

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
ONE_STEP = HEAD + "workflow: [{step: start, tool: {kind: noop}}]\n"
FORK = HEAD + (
    "workflow:\n"
    "  - step: start\n"
    "    tool: {kind: noop}\n"
    "    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}]}\n"
    "  - {step: a, tool: {kind: noop}}\n"
    "  - {step: b, tool: {kind: noop}}\n"
    "  - {step: c, spec: {pool: large}, tool: {kind: noop}}\n"
)
LEASE_SECONDS = 30.0


class Planes:
    """As many control planes as a test asks for, over one store."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.clock = FakeClock()
        self.store = store or MemoryStore(self.clock)

    def plane(self, **options: Any) -> ControlPlane:
        given = {"clock": self.clock, "lease_seconds": LEASE_SECONDS, **options}
        return ControlPlane(self.store, builtin_kinds(), **given)

    async def register(self, text: str = ONE_STEP) -> CatalogEntry:
        playbook = load(text.encode(), builtin_kinds()).playbook
        assert playbook is not None
        return await self.store.register(playbook.path, playbook.name, "canonical", text.encode(), "")

    def play(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def whole() -> None:
            await scenario()

        self.clock.run(whole())

    async def events(self, execution_id: str = "1") -> list[str]:
        return [event.event_type for event in await self.store.events(execution_id)]


async def claimed(control: ControlPlane, worker_id: str = "w", **about: Any) -> AnyCommand:
    (command,) = await control.claim(Claim(worker_id=worker_id, **about))
    return command


def done(command: AnyCommand) -> LeaseReport:
    """What a worker says that has run the only task of a step, and with it the step."""
    run_id = command.step_run_id
    about: dict[str, Any] = {"timestamp": "2025-06-15T15:06:40.000000Z", "status": "success"}
    task = ReportedEvent(
        idem_key=f"{run_id} task",
        event_type="task.done",
        entity_type="tool",
        entity_id="t",
        task_run_id=f"{run_id}:1",
        task_label="noop",
        attempt=1,
        payload={"outcome": {"status": "ok", "result": 1}, "then": {"do": "continue", "next": 1}},
        **about,
    )
    step = ReportedEvent(
        idem_key=f"{run_id} step",
        event_type="step.done",
        entity_type="step",
        entity_id=run_id,
        payload={"result": 1},
        **about,
    )
    return LeaseReport(lease=command.lease, events=(task, step))


async def report(
    control: ControlPlane, *leases: LeaseReport, worker_id: str = "w", free_slots: int = 0
) -> ReportReply:
    return await control.report(Report(worker_id=worker_id, leases=leases, free_slots=free_slots))
