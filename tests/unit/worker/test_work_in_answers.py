"""Work that comes with the answer to a report belongs to the worker, whatever became of who reported."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from noetl.ids import SystemClock
from noetl.records.command import Command, HeldLease, PlaybookVersion
from noetl.records.protocols import LeaseLostError, ResultBodies, WorkSource
from noetl.records.report import AnyCommand, LeaseReport, Report, ReportReply, Verdict
from noetl.worker.worker import Worker

HELD = HeldLease(command_id="1.0", execution_id="1", epoch=1)
NEXT: AnyCommand = Command(
    lease=HeldLease(command_id="1.1", execution_id="1", epoch=1),
    lease_seconds=30.0,
    playbook=PlaybookVersion(path="p", version=1, digest="d"),
    step="b",
    step_run_id="1.1",
    context=None,
)


class SlowSource:
    """Answers a report once it is told to; everything else asked under a lease finds it over."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.asked: list[str] = []

    async def report(self, report: Report) -> ReportReply:
        await self.answers.wait()
        return ReportReply(
            verdicts=(Verdict(command_id=HELD.command_id, verdict="accepted", stop=True),), commands=(NEXT,)
        )

    async def playbook_source(self, digest: str) -> bytes:
        self.asked.append(digest)
        raise LeaseLostError("the lease is over")


def worker_on(source: SlowSource, folder: Path) -> Worker:
    return Worker(
        cast(WorkSource, source),
        {},
        cast(Any, None),
        results=cast(ResultBodies, None),
        folder=folder,
        clock=SystemClock(),
        slots=4,
        beats=True,
    )


def test_the_next_step_begins_though_the_lease_that_led_to_it_was_stopped_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = SlowSource()
        worker = worker_on(source, tmp_path)
        reporting = asyncio.create_task(worker.report(LeaseReport(lease=HELD, events=())))
        await asyncio.sleep(0)
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        assert reporting.cancelled()
        source.answers.set()
        async with asyncio.timeout(5):
            while not source.asked:
                await asyncio.sleep(0)
        assert source.asked == [NEXT.playbook.digest]

    asyncio.run(scenario())


def test_a_worker_that_ends_begins_nothing_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = SlowSource()
        worker = worker_on(source, tmp_path)
        reporting = asyncio.create_task(worker.report(LeaseReport(lease=HELD, events=())))
        await asyncio.sleep(0)
        reporting.cancel()
        worker.is_stopping = True
        source.answers.set()
        await asyncio.gather(reporting, return_exceptions=True)
        for _ in range(10):
            await asyncio.sleep(0)
        assert source.asked == []
        assert not worker.held

    asyncio.run(scenario())
