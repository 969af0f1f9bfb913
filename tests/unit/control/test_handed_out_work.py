"""Work on its way to workers and back: who is given what, who hears that it is over, what is not written."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from noetl.records.command import HeldLease
from noetl.records.protocols import LeaseLostError, NotWrittenError
from noetl.records.report import PROTOCOL, Beat, ChildCall, Claim
from noetl.store.memory import MemoryStore
from noetl.store.protocol import Append, BodyRow, CommandRow, Fence, StoreError
from tests.unit.control.planes import FORK, LEASE_SECONDS, ONE_STEP, Planes, claimed, done, report


def test_a_worker_in_this_process_is_stopped_when_its_execution_is_cancelled() -> None:
    planes = Planes()

    async def scenario() -> None:
        control, revoked = planes.plane(), list[str]()
        control.on_revoked = revoked.append
        await control.begin(await planes.register(), {}, execution_id="1")
        work = await claimed(control)
        await control.cancel("1")
        assert revoked == [work.lease.command_id]
        assert control.opened("1").held == {}

    planes.play(scenario)


@pytest.mark.parametrize("shared", [False, True])
def test_who_reports_while_an_execution_is_cancelled_is_told_to_stop(shared: bool) -> None:
    planes = Planes()

    async def scenario() -> None:
        control, revoked = planes.plane(shared=shared), list[str]()
        control.on_revoked = revoked.append
        await control.begin(await planes.register(), {}, execution_id="1")
        work = await claimed(control)
        begun = msgspec.structs.replace(done(work), events=done(work).events[:1])
        reply, _ = await asyncio.gather(report(control, begun), control.cancel("1"))
        log = await planes.store.events("1")
        assert "task.done" in [event.event_type for event in log]
        assert [(each.verdict, each.stop) for each in reply.verdicts] == [("accepted", True)]
        assert revoked == []

    planes.play(scenario)


def test_work_that_is_on_its_way_to_a_worker_is_not_taken_back_by_a_resume() -> None:
    class SlowStore(MemoryStore):
        """A claim is in the store long before whoever asked hears of it."""

        async def claim(self, **asked: Any) -> list[CommandRow]:
            rows = await super().claim(**asked)
            await asyncio.sleep(1)
            return rows

    planes = Planes(store := SlowStore())

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        claiming = asyncio.create_task(claimed(control))
        await asyncio.sleep(0.5)
        await control.resume("1")
        work = await claiming
        (row,) = await store.commands(execution_id="1")
        assert (row.worker_id, row.epoch) == ("w", work.lease.epoch)
        assert control.opened("1").held == {work.lease.command_id: 1}

    planes.play(scenario)


def test_work_of_a_process_that_ended_is_handed_out_again_when_its_execution_is_resumed() -> None:
    planes = Planes()

    async def scenario() -> None:
        before = planes.plane()
        await before.begin(await planes.register(), {}, execution_id="1")
        lost = await claimed(before)
        after = planes.plane()
        assert await after.claim(Claim(worker_id="w")) == ()
        await after.resume("1")
        assert (await claimed(after)).lease.epoch == lost.lease.epoch + 1

    planes.play(scenario)


def test_whoever_ends_its_own_work_is_not_stopped_too() -> None:
    planes = Planes()

    async def scenario() -> None:
        control, revoked = planes.plane(), list[str]()
        control.on_revoked = revoked.append
        await control.begin(await planes.register(FORK), {}, execution_id="1")
        reply = await report(control, done(await claimed(control)))
        assert [verdict.stop for verdict in reply.verdicts] == [True]
        assert revoked == []
        assert control.opened("1").held == {}

    planes.play(scenario)


def test_the_answer_to_a_report_brings_as_much_work_of_the_workers_pool_as_it_has_slots_for() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        for number, (slots, brought) in enumerate([(0, []), (1, ["a"]), (2, ["a", "b"]), (3, ["a", "b"])]):
            await control.begin(await planes.register(FORK), {}, execution_id=str(number))
            reply = await report(control, done(await claimed(control)), free_slots=slots)
            assert [command.step for command in reply.commands] == brought
            assert {command.lease.epoch for command in reply.commands} <= {1}
            rest = await control.claim(Claim(worker_id="other", limit=5))
            assert [command.step for command in rest] == ["a", "b"][len(brought) :]
            assert (await claimed(control, pool="large")).step == "c"

    planes.play(scenario)


def test_reports_of_several_executions_bring_no_more_work_than_there_are_slots() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        entry = await planes.register(FORK)
        for number in range(3):
            await control.begin(entry, {}, execution_id=str(number))
        work = await control.claim(Claim(worker_id="w", limit=3))
        reply = await report(control, *map(done, work), free_slots=2)
        assert [verdict.verdict for verdict in reply.verdicts] == ["accepted"] * 3
        assert [(command.lease.execution_id, command.step) for command in reply.commands] == [
            ("0", "a"),
            ("1", "a"),
        ]

    planes.play(scenario)


def test_a_worker_one_protocol_away_is_served_and_one_further_away_is_not() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        assert await control.claim(Claim(worker_id="w", protocol=PROTOCOL + 1)) == ()
        with pytest.raises(Exception, match="upgrade the older"):
            await control.claim(Claim(worker_id="w", protocol=PROTOCOL - 2))

    planes.play(scenario)


def test_a_beat_says_how_long_the_leases_last_from_now_and_asks_nobody_about_none() -> None:
    class CountingStore(MemoryStore):
        renewed = 0

        async def renew(self, worker_id: str, leases: object, lease_seconds: float) -> tuple[str, ...]:
            self.renewed += 1
            return ()

    planes = Planes(store := CountingStore())

    async def scenario() -> None:
        control = planes.plane()
        assert (await control.beat(Beat(worker_id="w", leases=()))).lease_seconds == LEASE_SECONDS
        assert store.renewed == 0
        held = HeldLease(command_id="1.1", execution_id="1", epoch=1)
        assert (await control.beat(Beat(worker_id="w", leases=(held,)))).lost == ()
        assert store.renewed == 1

    planes.play(scenario)


def test_a_body_that_cannot_be_kept_is_told_to_the_worker_and_to_whoever_runs_the_execution() -> None:
    class FullStore(MemoryStore):
        async def put_body(self, row: BodyRow) -> None:
            raise StoreError("the disk is full")

    planes = Planes(FullStore())

    async def scenario() -> None:
        control, told = planes.plane(), list[str]()
        control.on_not_written = lambda execution_id, error: told.append(f"{execution_id}: {error}")
        await control.begin(await planes.register(), {}, execution_id="1")
        work = await claimed(control)
        with pytest.raises(NotWrittenError, match="the disk is full"):
            await control.keep_body(work.lease, "key", "0" * 64, b"1")
        assert told == ["1: the disk is full"]

    planes.play(scenario)


def test_nothing_is_given_under_a_lease_that_is_over() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        lease = (await claimed(control)).lease
        assert await control.heard(lease, 0) == ()
        stale = HeldLease(command_id=lease.command_id, execution_id="1", epoch=lease.epoch + 1)
        unknown = HeldLease(command_id=lease.command_id, execution_id="2", epoch=lease.epoch)
        for other in (stale, unknown):
            for asked in (
                control.heard(other, 0),
                control.load_body(other, {"store": "log"}),
                control.keychain(other),
                control.take_signal(other, "go", 0.0),
                control.loop_so_far(other),
                control.child(other, ChildCall(call_id="c", path="p"), 0.0),
            ):
                with pytest.raises(LeaseLostError):
                    await asked
        await control.cancel("1")
        with pytest.raises(LeaseLostError):
            await control.heard(lease, 0)

    planes.play(scenario)


def test_a_step_that_is_no_loop_has_come_to_nothing_so_far() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        with pytest.raises(LeaseLostError):
            await control.loop_so_far((await claimed(control)).lease)

    planes.play(scenario)


def test_a_lease_given_out_by_one_server_counts_with_another_until_it_is_taken_back() -> None:
    planes = Planes()

    async def scenario() -> None:
        first, second = (planes.plane(shared=True, node=node) for node in (1, 2))
        await first.begin(await planes.register(), {}, execution_id="1")
        lease = (await claimed(first)).lease
        assert await second.heard(lease, 0) == ()
        await planes.store.renew("w", [Fence(command_id=lease.command_id, epoch=lease.epoch)], -1.0)
        (row,) = await planes.store.expired()
        await second.lose(row)
        with pytest.raises(LeaseLostError):
            await second.heard(lease, 0)
        again = (await claimed(second)).lease
        assert again.epoch == lease.epoch + 1
        with pytest.raises(LeaseLostError):
            await second.heard(lease, 0)
        assert await first.heard(again, 0) == ()

    planes.play(scenario)


def test_a_lease_that_was_renewed_in_time_is_not_taken_back() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane(shared=True)
        await control.begin(await planes.register(), {}, execution_id="1")
        lease = (await claimed(control)).lease
        row = await planes.store.command("1", lease.command_id)
        assert isinstance(row, CommandRow)
        await control.lose(row)
        assert "command.expired" not in await planes.events()
        assert await control.heard(lease, 0) == ()

    planes.play(scenario)


def test_a_playbook_that_no_longer_loads_is_named_with_the_line() -> None:
    planes = Planes()

    async def scenario() -> None:
        text = ONE_STEP.replace("kind: noop", "kind: nothing_of_ours")
        entry = await planes.store.register("p", "p", "canonical", text.encode(), "")
        with pytest.raises(Exception, match=r"playbook `p`, line 4: "):
            await planes.plane().begin(entry, {})

    planes.play(scenario)


def test_whoever_waits_for_work_is_woken_by_what_is_begun_resumed_or_lost() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(claimed(control, wait_seconds=60.0))
        await asyncio.sleep(5)
        await control.begin(await planes.register(), {}, execution_id="1")
        lease = (await waiting).lease
        assert loop.time() == 5
        waiting = asyncio.create_task(claimed(control, wait_seconds=60.0))
        await asyncio.sleep(5)
        await planes.store.renew("w", [Fence(command_id=lease.command_id, epoch=lease.epoch)], -1.0)
        (row,) = await planes.store.expired()
        await control.lose(row)
        assert (await waiting).lease.epoch == lease.epoch + 1
        assert loop.time() == 10
        assert await control.claim(Claim(worker_id="w", wait_seconds=30.0)) == ()
        assert loop.time() == 40

    planes.play(scenario)


def test_the_reaper_takes_back_what_ran_out_whatever_becomes_of_the_others_and_tells_of_these(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane(shared=True)
        entry = await planes.register()
        for name in ("1", "2"):
            await control.begin(entry, {}, execution_id=name)
        await control.claim(Claim(worker_id="w", limit=2))
        lost = control.lose

        async def lose(row: CommandRow) -> None:
            if row.execution_id == "1":
                raise StoreError("this one cannot be written")
            await lost(row)

        control.lose = lose  # type: ignore[method-assign]
        reaping = asyncio.create_task(control.run_reaper())
        await asyncio.sleep(LEASE_SECONDS + 2)
        reaping.cancel()
        assert "command.expired" not in await planes.events("1")
        assert (await planes.events("2")).count("command.expired") == 1

    planes.play(scenario)
    (told,) = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert told == f"{StoreError.code}: this one cannot be written; it is tried again"


def test_timers_are_looked_at_again_and_again() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane(shared=True)
        text = ONE_STEP + "executor: {spec: {deadline: 60}}\n"
        await control.begin(await planes.register(text), {}, execution_id="1")
        control._alarms.stop()
        looking = asyncio.create_task(planes.plane(shared=True, node=2).run_timers())
        await asyncio.sleep(59)
        assert (await control.state("1")).status == "running"
        await asyncio.sleep(3)
        assert (await control.state("1")).status == "failed"
        looking.cancel()

    planes.play(scenario)


def test_an_execution_that_was_forgotten_is_read_again_when_it_is_asked_for() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        await control.cancel("1")
        assert control.is_open("1")
        control.forget("1")
        assert not control.is_open("1")
        assert (await control.finished("1")).status == "cancelled"

    planes.play(scenario)


def test_after_a_change_that_could_not_be_written_the_execution_is_read_again() -> None:
    class FullStore(MemoryStore):
        is_full = False

        async def append(self, change: Append) -> None:
            if self.is_full:
                raise StoreError("the disk is full")
            await super().append(change)

    planes = Planes(store := FullStore())

    async def scenario() -> None:
        control, told = planes.plane(), list[str]()
        control.on_not_written = lambda execution_id, error: told.append(f"{execution_id}: {error}")
        await control.begin(await planes.register(), {}, execution_id="1")
        store.is_full = True
        with pytest.raises(NotWrittenError, match="the disk is full"):
            await control.signal("1", "go", 1)
        assert told == ["1: the disk is full"]
        assert not control.is_open("1")
        store.is_full = False
        await control.signal("1", "go", 2)
        assert [found["data"] for found in (await control.state("1")).mailbox.values()] == [2]

    planes.play(scenario)


def test_a_report_under_a_lease_that_is_over_is_refused_and_its_work_is_to_stop() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        work = await claimed(control)
        await control.cancel("1")
        (verdict,) = (await report(control, done(work))).verdicts
        assert (verdict.verdict, verdict.stop, verdict.reason) == ("refused", True, "the lease is over")

    planes.play(scenario)
