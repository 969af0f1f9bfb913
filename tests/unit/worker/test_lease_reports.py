"""What the lanes of a lease report side by side goes together, and each hears how it went."""

from __future__ import annotations

import asyncio

import pytest

from noetl.records.protocols import LeaseLostError
from noetl.records.report import ReportedEvent, Verdict
from noetl.worker.lease_reports import LeaseReports
from noetl.worker.narration import Narrator

ACCEPTED = Verdict(command_id="1.1", verdict="accepted")


def told(label: str) -> ReportedEvent:
    return Narrator("1.1").step("step.started", "2024-05-01T00:00:00.000000Z", "in_progress", label=label)


class Server:
    """Takes reports, each when it is let."""

    def __init__(self) -> None:
        self.taken: list[list[str]] = []
        self.asked: list[bool] = []
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, events: list[ReportedEvent], asks: bool) -> Verdict:
        self.taken.append([event.payload["label"] for event in events])
        self.asked.append(asks)
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return ACCEPTED


def test_what_is_put_at_the_same_time_goes_in_one_report_in_its_order() -> None:
    async def play() -> None:
        server = Server()
        reports = LeaseReports(server)
        verdicts = await asyncio.gather(
            reports.put([told("a"), told("b")]), reports.put([], asks=True), reports.put([told("c")])
        )
        assert list(verdicts) == [ACCEPTED] * 3
        assert server.taken == [["a", "b", "c"]]
        assert server.asked == [True]

    asyncio.run(play())


def test_what_comes_while_a_report_is_under_way_gathers_for_the_next() -> None:
    async def play() -> None:
        server = Server()
        server.open.clear()
        reports = LeaseReports(server)
        lanes = [asyncio.create_task(reports.put([told("a")]))]
        while not server.taken:
            await asyncio.sleep(0)
        lanes += [asyncio.create_task(reports.put([told(label)])) for label in "bc"]
        await asyncio.sleep(0)
        assert server.taken == [["a"]]
        server.open.set()
        await asyncio.gather(*lanes)
        assert server.taken == [["a"], ["b", "c"]]
        await reports.put([told("d")], asks=True)
        assert (server.taken[-1], server.asked) == (["d"], [False, False, True])

    asyncio.run(play())


def test_each_lane_of_a_refused_report_hears_of_it_and_the_next_report_is_made() -> None:
    async def play() -> None:
        server = Server()
        reports = LeaseReports(server)
        server.error = LeaseLostError("the lease is over")
        found = await asyncio.gather(
            reports.put([told("a")]), reports.put([told("b")]), return_exceptions=True
        )
        assert [str(each) for each in found] == ["the lease is over"] * 2
        server.error = None
        assert await reports.put([told("c")]) == ACCEPTED

    asyncio.run(play())


def test_a_lane_that_is_cancelled_leaves_the_others_their_answer() -> None:
    async def play() -> None:
        server = Server()
        server.open.clear()
        reports = LeaseReports(server)
        gone, stays = (asyncio.create_task(reports.put([told(label)])) for label in "ab")
        while not server.taken:
            await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        server.open.set()
        assert await stays == ACCEPTED

    asyncio.run(play())


def test_closing_gives_up_what_is_under_way() -> None:
    async def play() -> None:
        server = Server()
        server.open.clear()
        reports = LeaseReports(server)
        lane = asyncio.create_task(reports.put([told("a")]))
        while not server.taken:
            await asyncio.sleep(0)
        await reports.close()
        with pytest.raises(asyncio.CancelledError):
            await lane
        await reports.close()
        assert server.taken == [["a"]]

    asyncio.run(play())
