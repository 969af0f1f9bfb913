"""One execution in memory: what was not written has not happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from noetl.control.plane import ControlPlane
from noetl.engine import decide
from noetl.engine.turn import Turn
from noetl.errors import NoetlError
from noetl.playbook.load import load
from noetl.records.command import HeldLease
from noetl.records.report import AnyCommand, Claim, LeaseReport, Report, ReportedEvent, Verdict
from noetl.store.memory import MemoryStore
from noetl.store.protocol import Append, CatalogEntry, StoreError
from noetl.testing import FakeClock
from noetl.tools.registry import builtin_kinds

PLAYBOOK = b"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
workflow: [{step: start, tool: {kind: noop}}]
"""


class BrokenStore(MemoryStore):
    """Fails the append with this number, before or after it is written."""

    def __init__(self, broken: int, *, after: bool = False) -> None:
        super().__init__()
        self._left = broken
        self._after = after

    async def append(self, change: Append) -> None:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise StoreError("the disk is full")
        await super().append(change)
        if self._left == 0:
            raise StoreError("the answer was lost")


def play(scenario: Callable[[ControlPlane, CatalogEntry], Awaitable[None]], store: MemoryStore) -> None:
    assert load(PLAYBOOK, builtin_kinds()).valid
    clock = FakeClock()

    async def whole() -> None:
        control = ControlPlane(store, builtin_kinds(), clock=clock)
        entry = await store.register("p", "p", "canonical", PLAYBOOK, "")
        await scenario(control, entry)

    clock.run(whole())


async def claimed(control: ControlPlane) -> AnyCommand:
    (command,) = await control.claim(Claim(worker_id="w"))
    return command


def task_done(run_id: str) -> ReportedEvent:
    return ReportedEvent(
        idem_key="k",
        event_type="task.done",
        timestamp="2025-06-15T12:00:00.000000Z",
        entity_type="tool",
        entity_id="t",
        status="success",
        task_run_id=f"{run_id}:1",
        task_label="task_1",
        attempt=1,
        payload={"outcome": {"status": "ok", "result": 1}, "then": {"do": "continue", "next": 1}},
    )


@pytest.mark.parametrize("after", [False, True])
def test_after_a_failed_append_the_state_is_that_of_the_log(after: bool) -> None:
    store = BrokenStore(2, after=after)

    async def scenario(control: ControlPlane, entry: CatalogEntry) -> None:
        await control.begin(entry, {}, execution_id="1")
        with pytest.raises(NoetlError):
            await control.signal("1", "go", 5)
        state = await control.state("1")
        assert len(state.mailbox) == int(after)
        assert state.seq == len(await store.events("1"))

    play(scenario, store)


def test_half_a_turn_has_not_happened() -> None:
    store = MemoryStore()

    def breaks(turn: Turn) -> None:
        decide.signal(turn, "go", 5)
        raise ValueError("in the middle")

    async def scenario(control: ControlPlane, entry: CatalogEntry) -> None:
        await control.begin(entry, {}, execution_id="1")
        live = await control.open("1")
        with pytest.raises(ValueError, match="middle"):
            await live.change(breaks)
        await control.signal("1", "go", 6)
        assert [found["data"] for found in live.state.mailbox.values()] == [6]

    play(scenario, store)


def test_changes_that_come_while_one_is_written_go_together() -> None:
    appends: list[int] = []

    class CountingStore(MemoryStore):
        async def append(self, change: Append) -> None:
            appends.append(len(change.events))
            await super().append(change)

    async def scenario(control: ControlPlane, entry: CatalogEntry) -> None:
        await control.begin(entry, {}, execution_id="1")
        appends.clear()
        await asyncio.gather(*(control.signal("1", "go", number) for number in range(10)))
        assert appends in ([10], [1, 9])

    play(scenario, CountingStore())


def test_a_report_counts_once_and_only_under_its_lease() -> None:
    store = MemoryStore()

    async def scenario(control: ControlPlane, entry: CatalogEntry) -> None:
        await control.begin(entry, {}, execution_id="1")
        work = await claimed(control)

        async def told(epoch: int) -> Verdict:
            lease = HeldLease(command_id=work.lease.command_id, execution_id="1", epoch=epoch)
            report = LeaseReport(lease=lease, events=(task_done(work.step_run_id),))
            reply = await control.report(Report(worker_id="w", leases=(report,)))
            return reply.verdicts[0]

        assert (await told(work.lease.epoch - 1)).verdict == "refused"
        assert (await told(work.lease.epoch)).verdict == "accepted"
        before = len(await store.events("1"))
        assert (await told(work.lease.epoch)).verdict == "accepted"
        assert len(await store.events("1")) == before

    play(scenario, store)


def test_a_paused_execution_goes_on_without_giving_its_work_to_another() -> None:
    async def scenario(control: ControlPlane, entry: CatalogEntry) -> None:
        await control.begin(entry, {}, execution_id="1")
        work = await claimed(control)
        await control.pause("1")
        await control.resume("1")
        assert await control.claim(Claim(worker_id="other")) == ()
        assert control.opened("1").held == {work.lease.command_id: work.lease.epoch}

    play(scenario, MemoryStore())


def test_another_process_takes_up_what_the_last_one_left() -> None:
    store = MemoryStore()

    async def scenario(control: ControlPlane, entry: CatalogEntry) -> None:
        await control.begin(entry, {}, execution_id="1")
        other = ControlPlane(store, builtin_kinds(), clock=FakeClock())
        await other.resume("1")
        taken = await claimed(other)
        assert taken.step_run_id == "1.1"
        assert await control.claim(Claim(worker_id="w")) == ()

    play(scenario, store)
