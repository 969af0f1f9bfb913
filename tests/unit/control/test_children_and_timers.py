"""Calls of other playbooks, and moments at which something is due, with several servers over one store."""

from __future__ import annotations

import asyncio

import pytest

from noetl.control import changes
from noetl.control.changes import DUE, ENDED
from noetl.control.leasing import derived_id
from noetl.control.plane import ControlPlane
from noetl.errors import NoetlError
from noetl.records.command import HeldLease
from noetl.records.protocols import ExecutionRequest
from noetl.records.report import ChildCall, LeaseReport, ReportedEvent
from noetl.store.protocol import CatalogEntry, Fence
from noetl.testing import START
from tests.unit.control.planes import HEAD, ONE_STEP, Planes, claimed, done, report

WITH_DEADLINE = ONE_STEP + "executor: {spec: {deadline: 60}}\n"
CALLER = HEAD.replace("name: p, path: p", "name: caller, path: caller") + (
    "workflow: [{step: start, tool: {kind: playbook, path: p}}]\n"
)
CALL = ChildCall(call_id="c", path="p", payload={"n": 1})


def test_a_playbook_without_such_a_task_calls_none() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        lease = (await claimed(control)).lease
        with pytest.raises(NoetlError, match="without a task of kind `playbook` calls no other one"):
            await control.child(lease, CALL, 0.0)
        assert len(await planes.store.executions()) == 1

    planes.play(scenario)


async def calling(planes: Planes, control: ControlPlane) -> HeldLease:
    """The lease of a step whose task may call a playbook."""
    await planes.register()
    await control.begin(await planes.register(CALLER), {}, execution_id="1")
    return (await claimed(control)).lease


def test_a_child_is_started_once_with_what_the_call_gives_and_knows_its_parent() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        lease = await calling(planes, control)
        first = await control.child(lease, CALL, 0.0)
        assert (first.execution_id, first.status) == (derived_id("1", "c"), "running")
        assert (await control.state(first.execution_id)).payload == {"n": 1}
        again = await control.child(lease, CALL, 0.0)
        assert again == first
        row = await planes.store.execution(first.execution_id)
        assert row is not None
        assert row.parent_execution_id == "1"
        assert len(await planes.store.executions()) == 2

    planes.play(scenario)


def test_whoever_calls_waits_for_the_end_of_the_child_and_not_longer_than_asked() -> None:
    for shared in (False, True):
        planes = Planes()

        async def scenario(planes: Planes = planes, shared: bool = shared) -> None:
            control = planes.plane(shared=shared)
            lease = await calling(planes, control)
            loop = asyncio.get_running_loop()
            assert (await control.child(lease, CALL, 20.0)).status == "running"
            assert loop.time() == 20
            waiting = asyncio.create_task(control.child(lease, CALL, 100.0))
            await asyncio.sleep(5)
            await report(control, done(await claimed(control)))
            ended = await waiting
            assert (ended.status, ended.result, ended.error) == ("completed", 1, None)
            assert loop.time() == 25

        planes.play(scenario)


def test_a_child_that_another_server_ends_is_seen_to_end() -> None:
    planes = Planes()

    async def scenario() -> None:
        first, second = (planes.plane(shared=True, node=node) for node in (1, 2))
        lease = await calling(planes, first)
        waiting = asyncio.create_task(first.child(lease, CALL, 100.0))
        await asyncio.sleep(5)
        await report(second, done(await claimed(second)))
        assert (await waiting).status == "completed"
        assert asyncio.get_running_loop().time() < 6

    planes.play(scenario)


def test_a_child_whose_caller_ended_meanwhile_is_ended_too() -> None:
    planes = Planes()

    async def scenario() -> None:
        first, second = (planes.plane(shared=True, node=node) for node in (1, 2))
        lease = await calling(planes, first)
        found = first.catalog_entry

        async def found_late(path: str, version: int | None = None) -> CatalogEntry:
            await second.cancel("1")
            return await found(path, version)

        first.catalog_entry = found_late  # type: ignore[method-assign]
        assert (await first.child(lease, CALL, 0.0)).status == "cancelled"

    planes.play(scenario)


def test_a_child_is_stopped_by_the_lease_that_called_it_but_not_after_another_took_over() -> None:
    planes = Planes()

    async def scenario() -> None:
        first, second = (planes.plane(shared=True, node=node) for node in (1, 2))
        lease = await calling(planes, first)
        child = await first.child(lease, CALL, 0.0)
        await planes.store.renew("w", [Fence(command_id=lease.command_id, epoch=lease.epoch)], -1.0)
        (row,) = await planes.store.expired()
        await second.lose(row)
        await first.stop_child(lease, "c")
        assert (await first.state(child.execution_id)).status == "running"
        (again,) = [await claimed(second, limit=1, worker_id="other")]
        if again.lease.execution_id != "1":  # the child's own work may come first
            again = await claimed(second, worker_id="other")
        await second.stop_child(again.lease, "c")
        assert (await second.state(child.execution_id)).status == "cancelled"
        await second.stop_child(again.lease, "never called")

    planes.play(scenario)


def test_the_children_of_an_execution_that_is_over_are_ended() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        lease = await calling(planes, control)
        child = await control.child(lease, CALL, 0.0)
        await control.cancel("1", "enough")
        await control.settle()
        state = await control.state(child.execution_id)
        assert (state.status, state.error and state.error["message"]) == (
            "cancelled",
            "the execution that called it is over",
        )
        assert await planes.store.timers_due(START + 1e6) == []

    planes.play(scenario)


def test_an_end_that_nobody_looked_after_is_looked_after_by_the_next_server() -> None:
    planes = Planes()

    async def scenario() -> None:
        first = planes.plane(shared=True, node=1)
        lease = await calling(planes, first)
        child = await first.child(lease, CALL, 0.0)
        first._alarms.run = lambda work: work.close()  # type: ignore[method-assign, attr-defined]
        await first.cancel("1")
        (timer,) = await planes.store.timers_due(START)
        assert (timer.timer_id, timer.execution_id) == (ENDED, "1")
        second = planes.plane(shared=True, node=2)
        await second._handle_timers()
        assert (await second.state(child.execution_id)).status == "cancelled"
        await second._handle_timers()
        assert await planes.store.timers_due(START + 1e6) == []

    planes.play(scenario)


def test_an_execution_without_children_or_parent_leaves_nothing_to_be_looked_after() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        await control.cancel("1")
        assert await planes.store.timers_due(START + 1e6) == []

    planes.play(scenario)


def test_a_deadline_is_kept_in_the_store_and_ends_the_execution_on_whichever_server() -> None:
    for shared in (False, True):
        planes = Planes()

        async def scenario(planes: Planes = planes, shared: bool = shared) -> None:
            first = planes.plane(shared=shared, node=1)
            await first.begin(await planes.register(WITH_DEADLINE), {}, execution_id="1")
            assert await planes.store.timers_due(START + 59) == []
            (timer,) = await planes.store.timers_due(START + 61)
            assert (timer.timer_id, timer.execution_id, timer.due) == (DUE, "1", START + 60)
            if shared:
                first._alarms.stop()
                other = planes.plane(shared=True, node=2)
                await asyncio.sleep(61)
                await other._handle_timers()
                state = await other.state("1")
            else:
                state = await first.finished("1")
                assert asyncio.get_running_loop().time() == 60
            assert state.status == "failed"
            assert state.error is not None
            assert state.error["kind"] == "deadline"
            assert await planes.store.timers_due(START + 1e6) == []

        planes.play(scenario)


def test_a_timer_that_rings_too_early_stays() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane(shared=True)
        await control.begin(await planes.register(WITH_DEADLINE), {}, execution_id="1")
        await control._wake("1")
        (timer,) = await planes.store.timers_due(START + 61)
        assert timer.due == START + 60
        assert (await control.state("1")).status == "running"

    planes.play(scenario)


def test_a_state_is_kept_each_time_the_log_has_grown_by_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SNAPSHOT_EVERY", 20)
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(), {}, execution_id="1")
        for number in range(len(await planes.store.events("1")), 19):
            await control.signal("1", "go", number)
        assert await planes.store.snapshot("1") is None
        for last in (20, 21):
            await control.signal("1", "go", last)
            kept = await planes.store.snapshot("1")
            assert kept is not None
            assert kept[0] == 20
        assert await planes.plane().state("1") == await control.state("1")

    planes.play(scenario)


def test_a_start_with_a_key_is_answered_with_the_execution_it_began() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await planes.register()
        request = ExecutionRequest(path="p", idempotency_key="order 7")
        first = await control.start(request)
        assert await planes.plane(node=3).start(request) == first
        assert await control.start(ExecutionRequest(path="p")) != first
        assert len(await planes.store.executions()) == 2

    planes.play(scenario)


def test_a_lease_that_is_parked_for_a_child_that_ended_before_is_brought_back_at_once() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        lease = await calling(planes, control)
        child = await control.child(lease, CALL, 0.0)
        await control.cancel(child.execution_id)
        await control.settle()
        parked = ReportedEvent(
            idem_key="parked",
            event_type="step.paused",
            timestamp="2025-06-15T15:06:40.000000Z",
            entity_type="step",
            entity_id="1.1",
            status="in_progress",
            payload={"lease": 0, "waits": {"children": [child.execution_id]}},
        )
        reply = await report(control, LeaseReport(lease=lease, events=(parked,)))
        assert reply.verdicts[0].stop
        await control.settle()
        assert (await planes.events())[-2:] == ["step.paused", "step.resumed"]
        assert (await claimed(control)).lease.execution_id == "1"

    planes.play(scenario)


def test_a_timer_stays_while_what_it_is_for_is_still_due() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(WITH_DEADLINE), {}, execution_id="1")
        for number in range(2):
            await control.signal("1", "go", number)
            (timer,) = await planes.store.timers_due(START + 61)
            assert timer.due == START + 60

    planes.play(scenario)


def test_the_id_of_a_child_follows_from_its_call_in_every_version() -> None:
    # A call that is made again after an upgrade has to find the child that the earlier version started.
    assert derived_id("1", "c") == "7590834077099110741"
    assert derived_id("1", "d") != derived_id("1", "c") != derived_id("2", "c")


def test_a_timer_is_gone_when_nothing_is_due_any_more() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        text = HEAD + (
            "workflow:\n"
            "  - {step: start, spec: {deadline: 20}, tool: {kind: noop}, next: {arcs: [{step: on}]}}\n"
            "  - {step: on, tool: {kind: noop}}\n"
        )
        await control.begin(await planes.register(text), {}, execution_id="1")
        assert [timer.due for timer in await planes.store.timers_due(START + 1e6)] == [START + 20]
        await report(control, done(await claimed(control)))
        assert (await control.state("1")).status == "running"
        assert await planes.store.timers_due(START + 1e6) == []

    planes.play(scenario)


def test_a_playbook_that_is_not_in_the_catalog_is_named_with_its_version() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await planes.register()
        with pytest.raises(NoetlError, match="no playbook `p@9` in the catalog"):
            await control.catalog_entry("p", 9)
        with pytest.raises(NoetlError, match="no playbook `q` in the catalog"):
            await control.catalog_entry("q")

    planes.play(scenario)


def test_playbooks_that_call_each_other_too_deep_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.control.leasing.MOST_CALLERS", 3)
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await planes.register()
        entry = await planes.register(CALLER)
        leases = []
        for number, parent in (("1", None), ("2", "1"), ("3", "2")):
            await control.begin(entry, {}, execution_id=number, parent_execution_id=parent)
            leases.append((await claimed(control)).lease)
        call = ChildCall(call_id="c", path="p", version=None, payload={})
        assert (await control.child(leases[1], call, 0.0)).status == "running"
        with pytest.raises(
            NoetlError, match="`p` is called by playbooks that call each other 3 deep"
        ) as deep:
            await control.child(leases[2], call, 0.0)
        assert deep.value.code == "playbook.too_deep"

    planes.play(scenario)
