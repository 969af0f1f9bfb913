"""A worker that a test plays itself: it claims and reports by the client, and tells what it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from noetl.client.connection import Connection
from noetl.client.control import HttpControl
from noetl.engine.leases import Leased
from noetl.ids import SystemClock, timestamp
from noetl.records.report import AnyCommand, Claim, LeaseReport, Report, ReportedEvent, ReportReply
from noetl.worker.narration import Narrator
from tests.distributed.stack import Stack

Given = TypeVar("Given")
CLOCK = SystemClock()


def played(stack: Stack, scenario: Callable[[list[HttpControl]], Awaitable[Given]]) -> Given:
    """Plays a scenario on a client for each server."""

    async def play() -> Given:
        urls = [stack.url(number) for number in range(len(stack.servers))]
        controls = [HttpControl(Connection(url, retry_seconds=0.0), Leased) for url in urls]
        try:
            async with asyncio.timeout(60):
                return await scenario(controls)
        finally:
            for control in controls:
                await control.close()

    return asyncio.run(play())


async def claimed(control: HttpControl, execution_id: str, worker_id: str = "by-hand") -> AnyCommand:
    """The next command of an execution, waited for."""
    while True:
        for found in await control.claim(Claim(worker_id=worker_id, limit=1, wait_seconds=5.0)):
            if found.lease.execution_id == execution_id:
                return found


def step_done(command: AnyCommand, result: object) -> tuple[ReportedEvent, ...]:
    """The events of a step whose body is left out: the step itself, begun and done."""
    narrator, at = Narrator(command.step_run_id), timestamp(CLOCK.now())
    return (
        narrator.step("step.started", at, "in_progress", args={}),
        narrator.step("step.done", at, "success", result=result),
    )


async def reported(
    control: HttpControl,
    command: AnyCommand,
    events: tuple[ReportedEvent, ...],
    worker_id: str = "by-hand",
    free_slots: int = 0,
) -> ReportReply:
    lease = LeaseReport(lease=command.lease, events=events)
    return await control.report(Report(worker_id=worker_id, leases=(lease,), free_slots=free_slots))
