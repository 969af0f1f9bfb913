"""Reports that share a call: who goes with whom, and who gets which answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from noetl.client.reports import MOST_EVENTS, Reports
from noetl.errors import NoetlError
from noetl.records.command import Command, HeldLease, PlaybookVersion
from noetl.records.report import AnyCommand, LeaseReport, Report, ReportedEvent, ReportReply, Verdict


def report(*names: str, worker_id: str = "w", free_slots: int = 0, events: int = 1) -> Report:
    event = ReportedEvent(
        idem_key="k",
        event_type="task.done",
        timestamp="",
        entity_type="tool",
        entity_id="t",
        status="success",
    )
    return Report(
        worker_id=worker_id,
        leases=tuple(LeaseReport(lease=lease(name), events=(event,) * events) for name in names),
        free_slots=free_slots,
    )


def lease(name: str) -> HeldLease:
    return HeldLease(command_id=name, execution_id="1", epoch=1)


def command(name: str) -> AnyCommand:
    return Command(
        lease=lease(name),
        lease_seconds=30.0,
        playbook=PlaybookVersion(path="p", version=1, digest="d"),
        step="s",
        step_run_id="r",
        context=None,
    )


class Server:
    """Answers when it is let go, and remembers what it was sent."""

    def __init__(self) -> None:
        self.calls: list[Report] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.refuses: str | None = None
        self.gives: tuple[AnyCommand, ...] = ()

    async def send(self, sent: Report) -> ReportReply:
        self.calls.append(sent)
        await self.gate.wait()
        names = self.names(sent)
        if self.refuses in names:
            raise NoetlError(f"{self.refuses} is refused")
        verdicts = tuple(Verdict(command_id=name, verdict="accepted", reason=name) for name in names)
        return ReportReply(verdicts=verdicts, commands=self.gives if sent.free_slots else ())

    @staticmethod
    def names(sent: Report) -> list[str]:
        return [each.lease.command_id for each in sent.leases]

    @property
    def sent(self) -> list[list[str]]:
        return [self.names(each) for each in self.calls]


def play(scenario: Callable[[Server, Reports], Awaitable[None]]) -> None:
    async def whole() -> None:
        server = Server()
        reports = Reports(server.send)
        async with asyncio.timeout(10):
            await scenario(server, reports)
            await reports.close()

    asyncio.run(whole())


async def queued(reports: Reports, *given: Report) -> list[asyncio.Task[ReportReply]]:
    """Reports that are all waiting."""
    tasks = [asyncio.create_task(reports.put(each)) for each in given]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_a_report_that_finds_no_call_under_way_goes_at_once() -> None:
    async def scenario(server: Server, reports: Reports) -> None:
        reply = await reports.put(report("a"))
        assert [each.reason for each in reply.verdicts] == ["a"]
        assert server.sent == [["a"]]

    play(scenario)


def test_what_is_queued_when_a_call_returns_goes_together() -> None:
    async def scenario(server: Server, reports: Reports) -> None:
        server.gate.clear()
        first = await queued(reports, report("a"))
        rest = await queued(reports, report("b"), report("c", "d"), report("e"))
        server.gate.set()
        replies = await asyncio.gather(*first, *rest)
        assert server.sent == [["a"], ["b", "c", "d", "e"]]
        assert [[each.reason for each in reply.verdicts] for reply in replies] == [
            ["a"],
            ["b"],
            ["c", "d"],
            ["e"],
        ]

    play(scenario)


def test_reports_about_one_lease_go_together_in_their_order() -> None:
    async def scenario(server: Server, reports: Reports) -> None:
        server.gate.clear()
        tasks = await queued(reports, report("x"))
        tasks += await queued(reports, report("a"), report("a"), report("b"), report("a"))
        server.gate.set()
        await asyncio.gather(*tasks)
        assert server.sent == [["x"], ["a", "a", "b", "a"]]

    play(scenario)


def test_reports_of_different_workers_do_not_share_a_call() -> None:
    async def scenario(server: Server, reports: Reports) -> None:
        server.gate.clear()
        tasks = await queued(reports, report("x"))
        tasks += await queued(reports, report("a"), report("b", worker_id="v"), report("c"))
        server.gate.set()
        await asyncio.gather(*tasks)
        assert server.sent == [["x"], ["a", "c"], ["b"]]
        assert [each.worker_id for each in server.calls] == ["w", "w", "v"]

    play(scenario)


def test_a_call_carries_no_more_events_than_a_server_takes() -> None:
    async def scenario(server: Server, reports: Reports) -> None:
        server.gate.clear()
        large = MOST_EVENTS // 2 + 1
        tasks = await queued(reports, report("x"))
        tasks += await queued(reports, report("a", events=large), report("b", events=large))
        server.gate.set()
        await asyncio.gather(*tasks)
        assert server.sent == [["x"], ["a"], ["b"]]

    play(scenario)


def test_new_work_goes_to_one_that_has_room_for_it() -> None:
    async def scenario(server: Server, reports: Reports) -> None:
        server.gate.clear()
        first = await queued(reports, report("x"))
        tasks = await queued(reports, report("a"), report("b", free_slots=2), report("c", free_slots=1))
        server.gives = (command("new"),)
        server.gate.set()
        await first[0]
        replies = await asyncio.gather(*tasks)
        assert server.calls[1].free_slots == 2
        assert [len(reply.commands) for reply in replies] == [0, 1, 0]

    play(scenario)


def test_new_work_does_not_go_to_one_that_has_given_up() -> None:
    async def scenario(server: Server, reports: Reports) -> None:
        server.gate.clear()
        first = await queued(reports, report("x"))
        gone, there = await queued(reports, report("a", free_slots=5), report("b", free_slots=1))
        server.gives = (command("new"),)
        gone.cancel()
        await asyncio.sleep(0)
        server.gate.set()
        await first[0]
        assert len((await there).commands) == 1

    play(scenario)


def test_a_report_the_server_refuses_does_not_fail_the_others() -> None:
    async def scenario(server: Server, reports: Reports) -> None:
        server.gate.clear()
        server.refuses = "bad"
        tasks = await queued(reports, report("x"))
        tasks += await queued(reports, report("a"), report("bad"), report("b"))
        server.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(each, NoetlError) for each in answers] == [False, False, True, False]
        assert server.sent == [["x"], ["a", "bad", "b"], ["a"], ["bad"], ["b"]]
        with pytest.raises(NoetlError, match="bad is refused"):
            await reports.put(report("bad"))

    play(scenario)


def test_whoever_was_just_answered_goes_along_with_those_that_wait() -> None:
    async def scenario(server: Server, reports: Reports) -> None:
        async def lane(name: str) -> None:
            await reports.put(report(name))
            await asyncio.sleep(0)  # as it does to make a report of what it has gathered
            await reports.put(report(name))

        server.gate.clear()
        lanes = [asyncio.create_task(lane("a"))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        lanes.append(asyncio.create_task(lane("b")))
        await asyncio.sleep(0)
        server.gate.set()
        await asyncio.gather(*lanes)
        assert [sorted(names) for names in server.sent] == [["a"], ["a", "b"], ["b"]]

    play(scenario)
