"""Executions in memory while others write the same log, while something fails, and when there are many."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from noetl.control import executions
from noetl.control.executions import Origin, UnknownExecutionError
from noetl.control.live import MOST_CONFLICTS, Asked
from noetl.control.repeating import repeat
from noetl.control.variables import ExecutionOverError, set_variable
from noetl.engine import decide
from noetl.engine.state import Data
from noetl.engine.turn import Turn
from noetl.playbook.model import Playbook
from noetl.records.event import Event
from noetl.records.protocols import LeaseLostError
from noetl.records.report import Claim
from noetl.secrets.keychain import KeychainError
from noetl.store.memory import MemoryStore
from noetl.store.protocol import Append, AppendConflict, Fence, StoreError
from tests.unit.control.planes import FORK, ONE_STEP, Planes, claimed, done, report


def test_a_change_that_was_overtaken_is_decided_again_on_what_others_wrote() -> None:
    planes = Planes()

    async def scenario() -> None:
        first, second = (planes.plane(shared=True, node=node) for node in (1, 2))
        await first.begin(await planes.register(), {}, execution_id="1")
        await second.signal("1", "go", 1)
        await first.signal("1", "go", 2)
        await second.signal("1", "go", 3)
        for plane in (first, second):
            state = await plane.state("1")
            assert [found["data"] for found in state.mailbox.values()] == [1, 2, 3]
            assert state == await plane.replay("1")
        assert [event.seq for event in await planes.store.events("1")] == list(range(1, state.seq + 1))

    planes.play(scenario)


def test_a_log_that_is_always_overtaken_is_given_up_after_so_many_tries() -> None:
    class BusyStore(MemoryStore):
        tries = 0

        async def append(self, change: Append) -> None:
            if change.version > 0:
                self.tries += 1
                raise AppendConflict("overtaken")
            await super().append(change)

    planes = Planes(store := BusyStore())

    async def scenario() -> None:
        control = planes.plane(shared=True)
        await control.begin(await planes.register(), {}, execution_id="1")
        with pytest.raises(AppendConflict, match="execution 1 is too busy"):
            await control.signal("1", "go", 1)
        assert store.tries == MOST_CONFLICTS

    planes.play(scenario)


def test_without_other_servers_a_conflict_is_a_fault_and_not_tried_again() -> None:
    class ForeignStore(MemoryStore):
        tries = 0

        async def append(self, change: Append) -> None:
            if change.version > 0:
                self.tries += 1
                raise AppendConflict("somebody else writes here")
            await super().append(change)

    planes = Planes(store := ForeignStore())

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        with pytest.raises(AppendConflict, match="somebody else"):
            await control.signal("1", "go", 1)
        assert store.tries == 1

    planes.play(scenario)


def test_a_change_that_fails_fails_for_whoever_asked_and_the_others_are_written() -> None:
    planes = Planes()

    def breaks(turn: Turn) -> None:
        decide.signal(turn, "broken", 0)
        raise ValueError("nonsense")

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        live = await control.open("1")
        given = await asyncio.gather(
            control.signal("1", "go", 1),
            live.change(breaks),
            control.signal("1", "go", 2),
            return_exceptions=True,
        )
        assert [type(each) for each in given] == [type(None), ValueError, type(None)]
        assert [found["data"] for found in live.state.mailbox.values()] == [1, 2]
        assert live.is_idle

    planes.play(scenario)


def test_a_report_that_makes_no_sense_any_more_is_one_of_a_lease_that_is_over() -> None:
    planes = Planes()

    def breaks(turn: Turn) -> None:
        raise ValueError("nonsense")

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        lease = (await claimed(control)).lease
        live = await control.open("1")
        with pytest.raises(ValueError, match="nonsense"):
            await live.change(breaks, fence=Fence(command_id=lease.command_id, epoch=lease.epoch))
        with pytest.raises(LeaseLostError):
            await live.change(breaks, fence=Fence(command_id=lease.command_id, epoch=lease.epoch + 1))
        with pytest.raises(LeaseLostError):
            await live.change(breaks, fence=Fence(command_id="1.9", epoch=1))

    planes.play(scenario)


def test_reports_under_two_leases_of_one_command_are_not_decided_together() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(FORK), {}, execution_id="1")
        lease = (await claimed(control)).lease
        live = await control.open("1")

        def noted(turn: Turn) -> None:
            decide.signal(turn, "go", 1)

        fences = [Fence(command_id=lease.command_id, epoch=lease.epoch + later) for later in (0, 1)]
        given = await asyncio.gather(
            *(live.change(noted, fence=fence) for fence in fences), return_exceptions=True
        )
        assert [type(each).__name__ for each in given] == ["Answer", "LeaseLostError"]
        assert len(live.state.mailbox) == 1
        assert await control.replay("1") == live.state

    planes.play(scenario)


def test_every_decision_is_measured() -> None:
    planes, measured = Planes(), list[float]()

    async def scenario() -> None:
        control = planes.plane(on_decided=measured.append)
        await control.begin(await planes.register(), {}, execution_id="1")
        await control.signal("1", "go", 1)

    planes.play(scenario)
    assert measured == [0, 0]


def test_every_event_is_told_once_it_is_written() -> None:
    planes, heard = Planes(), list[Event]()

    async def scenario() -> None:
        control = planes.plane(on_event=heard.append)
        await control.begin(await planes.register(), {}, execution_id="1")
        await report(control, done(await claimed(control)))
        assert heard == await planes.store.events("1")

    planes.play(scenario)


def test_an_execution_that_is_not_there_or_lost_its_playbook_cannot_be_opened() -> None:
    class ForgetfulStore(MemoryStore):
        async def catalog_by_digest(self, digest: str) -> None:
            return None

    planes = Planes(ForgetfulStore())

    async def scenario() -> None:
        control = planes.plane()
        with pytest.raises(UnknownExecutionError, match="no execution 7"):
            await control.open("7")
        await control.begin(await planes.register(), {}, execution_id="1")
        with pytest.raises(UnknownExecutionError, match="the playbook of execution 1"):
            await planes.plane().open("1")

    planes.play(scenario)


def test_an_execution_that_many_ask_for_at_once_is_read_once() -> None:
    class CountingStore(MemoryStore):
        reads = 0

        async def execution(self, execution_id: str) -> Any:
            self.reads += 1
            await asyncio.sleep(1)
            return await super().execution(execution_id)

    planes = Planes(store := CountingStore())

    async def scenario() -> None:
        await planes.plane().begin(await planes.register(), {}, execution_id="1")
        control = planes.plane()
        found = await asyncio.gather(*(control.open("1") for _ in range(5)))
        assert all(live is found[0] for live in found)
        assert store.reads == 1
        assert await control.open("1") is found[0]

    planes.play(scenario)


def test_of_many_executions_the_idle_one_used_longest_ago_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executions, "MOST_IN_MEMORY", 2)
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        entry = await planes.register()
        await control.begin(entry, {}, execution_id="busy")
        await claimed(control)
        for name in ("a", "b"):
            await control.begin(entry, {}, execution_id=name)
        assert [name for name in ("busy", "a", "b") if control.is_open(name)] == ["busy", "b"]
        assert (await control.state("a")).status == "running"
        assert [name for name in ("busy", "a", "b") if control.is_open(name)] == ["busy", "a"]

    planes.play(scenario)


def test_a_variable_is_set_in_an_execution_that_goes_on_and_in_no_other() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        await set_variable(control, "1", "city", "Oslo")
        assert (await control.state("1")).vars == await planes.store.vars("1") == {"city": "Oslo"}
        await control.cancel("1")
        with pytest.raises(ExecutionOverError):
            await set_variable(control, "1", "city", "Rome")
        assert await planes.store.vars("1") == {"city": "Oslo"}

    planes.play(scenario)


def test_the_keychain_is_resolved_where_work_is_claimed_and_missing_it_keeps_nobody_else_waiting() -> None:
    planes = Planes()
    asked: list[tuple[str, Data, str | None]] = []

    async def prepare(
        playbook: Playbook, payload: Data, origin: Origin
    ) -> tuple[dict[str, Any], Data | None]:
        asked.append((origin.execution_id, payload, origin.called_by))
        return (
            ({}, {"message": "no key here"}) if payload.get("locked") else ({"door": "the secret word"}, None)
        )

    async def scenario() -> None:
        entry = await planes.register(ONE_STEP + "keychain: [{name: door, kind: env}]\n")
        there = planes.plane(prepare=_all_fine, shared=True)
        for name, payload in (("1", {"locked": True}), ("2", {"n": 1})):
            await there.begin(entry, payload, execution_id=name)
        here = planes.plane(prepare=prepare, shared=True, node=2)
        work = await claimed(here, limit=5)
        assert (work.lease.execution_id, work.has_secrets) == ("2", True)
        assert await here.keychain(work.lease) == {"door": "the secret word"}
        assert asked == [("1", {"locked": True}, None), ("2", {"n": 1}, None)]
        with pytest.raises(KeychainError, match="no key here"):
            await here.resume("1")

    planes.play(scenario)


async def _all_fine(playbook: Playbook, payload: Data, origin: Origin) -> tuple[dict[str, Any], Data | None]:
    return {"door": "the secret word"}, None


def test_the_keychain_is_resolved_for_a_worker_of_another_server_too() -> None:
    planes = Planes()

    async def scenario() -> None:
        first, second = (planes.plane(prepare=_all_fine, shared=True, node=node) for node in (1, 2))
        entry = await planes.register(ONE_STEP + "keychain: [{name: door, kind: env}]\n")
        await first.begin(entry, {}, execution_id="1")
        lease = (await claimed(first)).lease
        await second.state("1")  # now it is in memory there, and nobody has needed its keychain
        assert await second.keychain(lease) == {"door": "the secret word"}

    planes.play(scenario)


def test_what_a_caller_sent_along_is_not_shown() -> None:
    shown = repr(Origin("1", None, {"door": "the secret word"}))
    assert "door" in shown
    assert "secret word" not in shown


def test_an_execution_that_is_over_is_repeated_with_changed_values_and_one_that_is_not_cannot_be() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        text = ONE_STEP + "workload: {n: 0, m: 0}\n"
        await control.begin(await planes.register(text), {"n": 1}, execution_id="1")
        with pytest.raises(Exception, match="is not over; resume it instead"):
            await repeat(control, "1", {})
        await report(control, done(await claimed(control)))
        again = await repeat(control, "1", {"m": 2}, step="start")
        state = await control.state(again)
        assert state.workload == {"n": 1, "m": 2}
        assert state.origin == {"execution_id": "1", "step": "start", "failed_items": False}

    planes.play(scenario)


def test_a_task_hears_of_a_signal_that_another_server_took_in() -> None:
    planes = Planes()

    async def scenario() -> None:
        first, second = (planes.plane(shared=True, node=node) for node in (1, 2))
        await first.begin(await planes.register(), {}, execution_id="1")
        lease = (await claimed(first)).lease
        assert await first.take_signal(lease, "go", 0.0) is None
        await second.signal("1", "go", 5)
        taken = await first.take_signal(lease, "go", 0.0)
        assert taken is not None
        assert taken.data == 5

    planes.play(scenario)


@pytest.mark.parametrize("is_paused", [True, False])
def test_what_another_server_gives_away_while_an_execution_is_being_resumed_is_not_taken_back(
    is_paused: bool,
) -> None:
    class RacingStore(MemoryStore):
        """While it says who has what, another server goes on with the execution."""

        races = 1
        other: Any = None

        async def commands(self, **asked: Any) -> Any:
            rows = await super().commands(**asked)
            if self.races and self.other is not None:
                self.races -= 1
                if is_paused:
                    await self.other.resume("1")
                await claimed(self.other)
            return rows

    planes = Planes(store := RacingStore())

    async def scenario() -> None:
        first, second = (planes.plane(shared=True, node=node) for node in (1, 2))
        await first.begin(await planes.register(), {}, execution_id="1")
        if is_paused:
            await first.pause("1")
        store.other = second
        await first.resume("1")
        assert store.races == 0
        (row,) = await store.commands(execution_id="1")
        assert (row.worker_id, row.epoch) == ("w", 1)
        assert (await planes.events()).count("execution.resumed") == 1 + is_paused

    planes.play(scenario)


def test_a_paused_execution_hands_out_nothing_until_it_is_resumed() -> None:
    for shared in (False, True):
        planes = Planes()

        async def scenario(planes: Planes = planes, shared: bool = shared) -> None:
            control = planes.plane(shared=shared)
            await control.begin(await planes.register(), {}, execution_id="1")
            await control.pause("1")
            assert await control.claim(Claim(worker_id="w")) == ()
            await control.resume("1")
            assert (await control.state("1")).status == "running"
            assert (await claimed(control)).step == "start"
            await control.cancel("1")
            await control.resume("1")
            assert (await control.state("1")).status == "cancelled"

        planes.play(scenario)


def test_an_execution_that_another_server_has_resumed_can_be_paused_here_again() -> None:
    planes = Planes()

    async def scenario() -> None:
        first, second = (planes.plane(shared=True, node=node) for node in (1, 2))
        await first.begin(await planes.register(), {}, execution_id="1")
        await first.pause("1")
        await second.resume("1")
        await first.pause("1")
        assert (await second.state("1")).status == "paused"

    planes.play(scenario)


def test_an_execution_that_another_server_brought_to_its_end_can_be_repeated_here() -> None:
    planes = Planes()

    async def scenario() -> None:
        first, second = (planes.plane(shared=True, node=node) for node in (1, 2))
        await first.begin(await planes.register(), {}, execution_id="1")
        await report(second, done(await claimed(second)))
        again = await repeat(first, "1", {}, step="start")
        assert (await first.state(again)).status == "running"

    planes.play(scenario)


def test_an_error_that_nobody_waits_for_any_more_is_not_told_by_the_garbage_collector() -> None:
    told: list[Any] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, about: told.append(about))
        asked = Asked(lambda turn: None, loop.create_future(), None, None, False, ())
        asked.refuse(ValueError("nobody's"))
        del asked
        gc.collect()

    asyncio.run(scenario())
    assert told == []


def test_after_a_change_that_could_not_be_written_those_that_waited_behind_it_are_decided() -> None:
    class StumblingStore(MemoryStore):
        stumbles = 0

        async def append(self, change: Append) -> None:
            if self.stumbles:
                self.stumbles -= 1
                raise StoreError("the disk is full")
            await super().append(change)

    planes = Planes(store := StumblingStore())

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        lease = (await claimed(control)).lease
        live = await control.open("1")
        store.stumbles = 1
        fences = [Fence(command_id=lease.command_id, epoch=lease.epoch - before) for before in (1, 0)]
        given = await asyncio.gather(
            *(live.change(lambda turn: decide.signal(turn, "go", 1), fence=fence) for fence in fences),
            return_exceptions=True,
        )
        assert [type(each).__name__ for each in given] == ["NotWrittenError", "Answer"]

    planes.play(scenario)
