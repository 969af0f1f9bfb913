"""What every control plane does, wherever it is."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable
from pathlib import Path

import msgspec
import pytest

from noetl.engine.leases import Leased
from noetl.errors import NoetlError
from noetl.ids import COUNTER_BITS, NODE_BITS, SystemClock
from noetl.records.command import HeldLease
from noetl.records.protocols import ExecutionRequest, LeaseLostError
from noetl.records.report import AnyCommand, Beat, ChildCall, Claim, LeaseReport, Report, ReportedEvent
from noetl.results.bodies import FileBodies
from noetl.tools.registry import runnable
from noetl.worker.worker import Worker
from tests.contract.control.conftest import Play, World
from tests.contract.control.replicas import KINDS

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: tests/p}\n"
ONE_STEP = HEAD + "workflow: [{step: start, tool: {kind: noop}}]\n"
TWO_STEPS = HEAD + (
    "workload: {who: nobody}\n"
    "workflow:\n"
    "  - step: start\n"
    "    tool: {kind: noop}\n"
    "    next: {arcs: [{step: end}]}\n"
    "  - {step: end, tool: {kind: noop}}\n"
)
LOOP = HEAD + (
    "workflow:\n"
    "  - step: start\n"
    "    loop: {in: '{{ [1, 2, 3] }}', iterator: each}\n"
    "    tool: {kind: noop, args: {each: '{{ each }}'}}\n"
)
CALLING = HEAD + "workflow: [{step: start, tool: {kind: playbook, path: tests/p}}]\n"
WITH_KEYCHAIN = ONE_STEP + "keychain: [{name: door, kind: env}]\n"
AT = "2025-06-15T12:00:00.000000Z"


def claim_of(worker_id: str = "w", **about: object) -> Claim:
    return msgspec.convert({"worker_id": worker_id, **about}, Claim)


def task_done(command: AnyCommand, key: str = "k") -> ReportedEvent:
    return ReportedEvent(
        idem_key=key,
        event_type="task.done",
        timestamp=AT,
        entity_type="tool",
        entity_id="t",
        status="success",
        task_run_id=f"{command.step_run_id}:1",
        task_label="noop",
        attempt=1,
        payload={"outcome": {"status": "ok", "result": 1}, "then": {"do": "continue", "next": 1}},
    )


def report_of(lease: HeldLease, *events: ReportedEvent, worker_id: str = "w", free_slots: int = 0) -> Report:
    told = LeaseReport(lease=lease, events=events)
    return Report(worker_id=worker_id, leases=(told,), free_slots=free_slots)


async def started(world: World, text: str = ONE_STEP, **payload: object) -> tuple[str, AnyCommand]:
    """An execution whose first step is leased to the worker `w`."""
    await world.replica.register(text)
    execution_id = await world.control.start(ExecutionRequest(path="tests/p", payload=dict(payload)))
    (command,) = await world.control.claim(claim_of())
    return execution_id, command


async def code_of(asked: Awaitable[object]) -> str:
    with pytest.raises(NoetlError) as caught:
        await asked
    return caught.value.code


# --- executions ------------------------------------------------------------------------------------------


def test_a_worker_brings_an_execution_to_its_end(play: Play, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.replica.register(TWO_STEPS)
        execution_id = await world.control.start(ExecutionRequest(path="tests/p", payload={"who": "you"}))
        worker = Worker(
            world.control,
            KINDS,
            runnable,
            results=FileBodies(tmp_path),
            folder=tmp_path,
            clock=SystemClock(),
            slots=2,
        )
        running = asyncio.create_task(worker.run())
        while not (state := await world.replica.control.state(execution_id)).is_over:
            await asyncio.sleep(0)
        assert state.status == "completed"
        assert {name: step.status for name, step in state.steps.items()} == {"start": "done", "end": "done"}
        assert state.workload == {"who": "you"}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    play(scenario)


def test_a_start_with_the_same_key_is_the_same_execution(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.replica.register(ONE_STEP)
        request = ExecutionRequest(path="tests/p", idempotency_key="order 7")
        first = await world.control.start(request)
        assert await world.control.start(request) == first
        assert await world.control.start(ExecutionRequest(path="tests/p")) != first

    play(scenario)


def test_an_execution_with_a_key_has_an_id_that_tells_its_time(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.replica.register(ONE_STEP)
        started = [
            await world.control.start(ExecutionRequest(path="tests/p", idempotency_key=key))
            for key in (None, "order 8", None)
        ]
        before, keyed, after = (int(each) >> NODE_BITS + COUNTER_BITS for each in started)
        assert before <= keyed <= after

    play(scenario)


def test_a_playbook_that_is_not_there_cannot_be_started(play: Play) -> None:
    async def scenario(world: World) -> None:
        assert await code_of(world.control.start(ExecutionRequest(path="nowhere"))) == "playbook.unknown"
        await world.replica.register(ONE_STEP)
        wanted = ExecutionRequest(path="tests/p", version=9)
        assert await code_of(world.control.start(wanted)) == "playbook.unknown"

    play(scenario)


def test_an_execution_that_is_not_there_cannot_be_steered(play: Play) -> None:
    async def scenario(world: World) -> None:
        control = world.control
        assert await code_of(control.cancel("1")) == "execution.unknown"
        assert await code_of(control.pause("1")) == "execution.unknown"
        assert await code_of(control.resume("1")) == "execution.unknown"
        assert await code_of(control.signal("1", "go", None)) == "execution.unknown"

    play(scenario)


def test_the_trace_of_whoever_asks_reaches_the_worker(play: Play) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def scenario(world: World) -> None:
        await world.replica.register(ONE_STEP)
        await world.control.start(ExecutionRequest(path="tests/p", trace=trace))
        (command,) = await world.control.claim(claim_of())
        assert command.trace == trace

    play(scenario)


# --- claims, beats, reports ------------------------------------------------------------------------------


def test_a_claim_leases_a_command_with_all_that_is_needed_to_run_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        execution_id, command = await started(world, TWO_STEPS, who="you")
        assert command.lease.execution_id == execution_id
        assert command.lease.epoch == 1
        assert command.lease_seconds == world.replica.control.lease_seconds
        assert (command.playbook.path, command.playbook.version, command.step) == ("tests/p", 1, "start")
        assert isinstance(command.context, Leased)
        assert command.context.workload == {"who": "you"}
        source = await world.control.playbook_source(command.playbook.digest)
        assert source == TWO_STEPS.encode()

    play(scenario)


def test_what_is_leased_is_not_leased_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await started(world)
        assert await world.control.claim(claim_of("other")) == ()

    play(scenario)


def test_a_claim_waits_for_work_to_come(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.replica.register(ONE_STEP)
        waiting = asyncio.create_task(world.control.claim(claim_of(wait_seconds=20.0)))
        await asyncio.sleep(0)
        await world.control.start(ExecutionRequest(path="tests/p"))
        (command,) = await waiting
        assert command.step == "start"

    play(scenario)


def test_a_claim_for_another_pool_finds_nothing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.replica.register(ONE_STEP)
        await world.control.start(ExecutionRequest(path="tests/p"))
        assert await world.control.claim(claim_of(pool="gpu")) == ()

    play(scenario)


def test_a_worker_two_protocols_away_is_refused(play: Play) -> None:
    async def scenario(world: World) -> None:
        assert await code_of(world.control.claim(claim_of(protocol=99))) == "worker.protocol"

    play(scenario)


def test_a_beat_names_the_leases_that_are_lost(play: Play) -> None:
    async def scenario(world: World) -> None:
        _, command = await started(world)
        stale = msgspec.structs.replace(command.lease, epoch=7)
        kept = await world.control.beat(Beat(worker_id="w", leases=(command.lease,)))
        assert kept.lost == ()
        assert kept.lease_seconds == command.lease_seconds
        lost = await world.control.beat(Beat(worker_id="w", leases=(stale,)))
        assert lost.lost == (command.lease.command_id,)

    play(scenario)


def test_a_report_is_in_the_log_when_it_is_answered(play: Play) -> None:
    async def scenario(world: World) -> None:
        execution_id, command = await started(world)
        reply = await world.control.report(report_of(command.lease, task_done(command)))
        assert [each.verdict for each in reply.verdicts] == ["accepted"]
        log = await world.replica.store.events(execution_id)
        assert "task.done" in [event.event_type for event in log]

    play(scenario)


def test_a_report_of_a_lease_that_is_over_is_refused(play: Play) -> None:
    async def scenario(world: World) -> None:
        execution_id, command = await started(world)
        stale = msgspec.structs.replace(command.lease, epoch=0)
        reply = await world.control.report(report_of(stale, task_done(command)))
        assert [(each.command_id, each.verdict) for each in reply.verdicts] == [
            (command.lease.command_id, "refused")
        ]
        log = await world.replica.store.events(execution_id)
        assert "task.done" not in [event.event_type for event in log]

    play(scenario)


def test_each_of_many_concurrent_reports_has_its_own_verdict(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.replica.register(ONE_STEP)
        for _ in range(6):
            await world.control.start(ExecutionRequest(path="tests/p"))
        commands = await world.control.claim(claim_of(limit=10))
        assert len(commands) == 6
        leases = [command.lease for command in commands]
        leases[2] = msgspec.structs.replace(leases[2], epoch=5)
        replies = await asyncio.gather(
            *(
                world.control.report(report_of(lease, task_done(command)))
                for lease, command in zip(leases, commands, strict=True)
            )
        )
        verdicts = [reply.verdicts[0] for reply in replies]
        assert [each.command_id for each in verdicts] == [each.lease.command_id for each in commands]
        assert [each.verdict == "accepted" for each in verdicts] == [True, True, False, True, True, True]

    play(scenario)


def test_the_next_work_comes_with_the_answer_to_a_report(play: Play) -> None:
    async def scenario(world: World) -> None:
        _, command = await started(world, TWO_STEPS)
        ended = ReportedEvent(
            idem_key="end",
            event_type="step.done",
            timestamp=AT,
            entity_type="step",
            entity_id=command.step_run_id,
            status="success",
            payload={"result": 1},
        )
        told = report_of(command.lease, task_done(command), ended, free_slots=1)
        reply = await world.control.report(told)
        (following,) = reply.commands
        assert following.step == "end"
        assert isinstance(following.context, Leased)
        assert (await world.control.beat(Beat(worker_id="w", leases=(following.lease,)))).lost == ()

    play(scenario)


def test_a_cancelled_execution_takes_its_leases_with_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        execution_id, command = await started(world)
        await world.control.cancel(execution_id, "enough")
        assert (await world.replica.control.state(execution_id)).status == "cancelled"
        lost = await world.control.beat(Beat(worker_id="w", leases=(command.lease,)))
        assert lost.lost == (command.lease.command_id,)
        reply = await world.control.report(report_of(command.lease, task_done(command)))
        assert reply.verdicts[0].verdict == "refused"

    play(scenario)


def test_a_paused_execution_hands_out_nothing_until_it_is_resumed(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.replica.register(ONE_STEP)
        execution_id = await world.control.start(ExecutionRequest(path="tests/p"))
        await world.control.pause(execution_id)
        assert await world.control.claim(claim_of()) == ()
        await world.control.resume(execution_id)
        assert len(await world.control.claim(claim_of())) == 1

    play(scenario)


# --- what a lease may ask for ----------------------------------------------------------------------------


def test_the_keychain_is_given_under_a_lease_only(play: Play) -> None:
    async def scenario(world: World) -> None:
        _, command = await started(world, WITH_KEYCHAIN)
        assert command.has_secrets
        assert await world.control.keychain(command.lease) == {"door": "value of door"}
        with pytest.raises(LeaseLostError):
            await world.control.keychain(msgspec.structs.replace(command.lease, epoch=9))

    play(scenario)


def test_a_body_is_loaded_as_it_was_kept(play: Play) -> None:
    async def scenario(world: World) -> None:
        execution_id, command = await started(world)
        body = msgspec.json.encode({"rows": [1, 2, 3]})
        checksum = hashlib.sha256(body).hexdigest()
        key = f"noetl://{execution_id}/{checksum[:32]}"
        await world.control.keep_body(command.lease, key, checksum, body)
        ref = {
            "kind": "result_ref",
            "ref": key,
            "store": "database",
            "key": key,
            "checksum": checksum,
            "size": len(body),
        }
        assert await world.control.load_body(command.lease, ref) == {"rows": [1, 2, 3]}

    play(scenario)


def test_a_signal_is_kept_until_it_is_taken(play: Play) -> None:
    async def scenario(world: World) -> None:
        execution_id, command = await started(world)
        assert await world.control.take_signal(command.lease, "go", 0.01) is None
        await world.control.signal(execution_id, "go", {"by": "me"})
        taken = await world.control.take_signal(command.lease, "go", 5.0)
        assert taken is not None
        assert taken.data == {"by": "me"}

    play(scenario)


def test_a_waiting_step_hears_of_what_was_committed(play: Play) -> None:
    async def scenario(world: World) -> None:
        execution_id, command = await started(world)
        await world.control.signal(execution_id, "go", 7)
        heard = await world.control.heard(command.lease, 0)
        assert [each.event_type for each in heard][-1] == "signal.received"
        assert await world.control.heard(command.lease, heard[-1].place) == ()

    play(scenario)


def test_a_loop_tells_what_it_has_come_to(play: Play) -> None:
    async def scenario(world: World) -> None:
        _, command = await started(world, LOOP)
        so_far = await world.control.loop_so_far(command.lease)
        assert so_far.collected == {}

    play(scenario)


def test_a_call_of_a_child_that_is_made_again_finds_its_child(play: Play) -> None:
    async def scenario(world: World) -> None:
        _, command = await started(world, CALLING)
        call = ChildCall(call_id="c", path="tests/p", payload={"n": 1})
        child = await world.control.child(command.lease, call, 0.0)
        assert not child.is_over
        again = await world.control.child(command.lease, call, 0.0)
        assert again.execution_id == child.execution_id
        await world.control.stop_child(command.lease, "c")
        ended = await world.control.child(command.lease, call, 5.0)
        assert ended.status == "cancelled"

    play(scenario)


def test_the_text_of_a_playbook_nobody_registered_is_not_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        assert await code_of(world.control.playbook_source("0" * 64)) == "playbook.unknown"

    play(scenario)
