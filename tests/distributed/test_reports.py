"""Reports that come twice, late, from strangers or by two servers at once: each counts once or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from noetl.client.connection import ServerError
from noetl.client.control import HttpControl
from noetl.errors import NoetlError
from noetl.records.protocols import ExecutionRequest
from noetl.records.report import PROTOCOL, Beat, Claim, Report
from tests.distributed.by_hand import claimed, played, reported, step_done
from tests.distributed.outside import Outside
from tests.distributed.processes import Ledger, wait_until
from tests.distributed.services import Services
from tests.distributed.stack import OWN_PLAYBOOKS, Stack, stack_on
from tests.distributed.verdict import assert_sound


@pytest.fixture(scope="module")
def stack(services: Services, ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two servers without workers: those are played."""
    with stack_on(services, ledger, tmp_path_factory.mktemp("played"), servers=2, workers=0) as made:
        made.register("gated", "items", folder=OWN_PLAYBOOKS)
        made.register("waiting")
        yield made


def test_a_report_that_comes_twice_by_two_servers_counts_once(stack: Stack, outside: Outside) -> None:
    execution_id = stack.begin("distributed/gated", {"api": outside.url})

    async def scenario(controls: list[HttpControl]) -> None:
        command = await claimed(controls[0], execution_id)
        events = step_done(command, {"name": "once"})
        replies = await asyncio.gather(
            *(reported(control, command, events) for control in (*controls, *controls))
        )
        verdicts = [reply.verdicts[0].verdict for reply in replies]
        assert verdicts.count("accepted") >= 1
        # The step is over: nothing more is heard under this lease.
        late = await reported(controls[1], command, events)
        assert (late.verdicts[0].verdict, late.verdicts[0].stop) == ("refused", True)
        last = await claimed(controls[1], execution_id)
        await reported(controls[0], last, step_done(last, {}))

    played(stack, scenario)
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id])
    types = [each.event.event_type for each in stack.log(execution_id)]
    assert types.count("step.done") == 2


def test_after_the_lease_a_report_a_beat_and_a_question_are_refused(stack: Stack, outside: Outside) -> None:
    execution_id = stack.begin("distributed/gated", {"api": outside.url})

    async def scenario(controls: list[HttpControl]) -> None:
        first = await claimed(controls[0], execution_id, "silent")
        await asyncio.to_thread(
            wait_until, lambda: stack.count("command.expired", execution_id) == 1, 20.0, "it runs out"
        )
        second = await claimed(controls[1], execution_id, "other")
        assert second.lease == msgspec.structs.replace(first.lease, epoch=first.lease.epoch + 1)
        for control in controls:
            late = await reported(control, first, step_done(first, {"name": "late"}), "silent")
            assert late.verdicts[0].verdict == "refused"
            beat = await control.beat(Beat(worker_id="silent", leases=(first.lease,)))
            assert beat.lost == (first.lease.command_id,)
            with pytest.raises(NoetlError) as refused:
                await control.loop_so_far(first.lease)
            assert refused.value.code == "lease.lost"
        reply = await reported(controls[0], second, step_done(second, {"name": "in time"}), "other", 1)
        (last,) = reply.commands
        await reported(controls[1], last, step_done(last, {}), "other")

    played(stack, scenario)
    stack.wait_ended([execution_id])
    (outcome,) = assert_sound(stack, outside, [execution_id]).outcomes.values()
    assert outcome["steps"]["start"]["result"] == {"name": "in time"}


def test_a_question_under_a_lease_that_is_over_is_answered_with_409(stack: Stack, outside: Outside) -> None:
    execution_id = stack.begin("distributed/items", {"api": outside.url, "count": 3})

    async def scenario(controls: list[HttpControl]) -> None:
        command = await claimed(controls[0], execution_id)
        await controls[1].cancel(execution_id)
        with pytest.raises(NoetlError) as refused:
            await controls[0].loop_so_far(command.lease)
        assert refused.value.code == "lease.lost"
        late = await reported(controls[0], command, step_done(command, {}))
        assert late.verdicts[0].verdict == "refused"

    played(stack, scenario)
    assert_sound(stack, outside, [execution_id])


def test_two_servers_that_race_on_one_execution_write_one_log(stack: Stack, outside: Outside) -> None:
    """Signals, reports and at last cancels, all from both sides at once."""
    execution_id = stack.begin("durability/waiting", {"api": outside.url})

    async def scenario(controls: list[HttpControl]) -> None:
        command = await claimed(controls[0], execution_id)
        events = step_done(command, {"name": "x"})[:1]
        signals = (
            control.signal(execution_id, "noise", {"n": number})
            for number in range(20)
            for control in controls
        )
        reports = (reported(control, command, events) for control in controls * 5)
        await asyncio.gather(*signals, *reports)
        await asyncio.gather(*(control.cancel(execution_id) for control in controls * 3))
        late = await reported(controls[1], command, step_done(command, {})[1:])
        assert late.verdicts[0].verdict == "refused"

    played(stack, scenario)
    assert_sound(stack, outside, [execution_id])
    types = [each.event.event_type for each in stack.log(execution_id)]
    assert types.count("signal.received") == 40
    assert types.count("step.started") == 1
    assert types.count("execution.cancelled") == 1


def test_a_start_with_one_key_at_two_servers_is_one_execution(stack: Stack, outside: Outside) -> None:
    async def scenario(controls: list[HttpControl]) -> set[str]:
        request = ExecutionRequest(
            path="distributed/gated", payload={"api": outside.url}, idempotency_key="the one"
        )
        return set(await asyncio.gather(*(control.start(request) for control in controls * 4)))

    before = len(stack.rows())
    started = played(stack, scenario)
    assert len(started) == 1
    assert len(stack.rows()) == before + 1


def test_a_worker_two_versions_of_the_protocol_away_is_refused(stack: Stack) -> None:
    async def scenario(controls: list[HttpControl]) -> None:
        control = controls[0]
        assert await control.claim(Claim(worker_id="next", pool="empty", protocol=PROTOCOL + 1)) == ()
        for distance in (-2, 2):
            with pytest.raises(ServerError) as refused:
                await control.claim(Claim(worker_id="far", protocol=PROTOCOL + distance))
            assert refused.value.code == "worker.protocol"
            with pytest.raises(ServerError) as refused:
                await control.report(Report(worker_id="far", leases=(), protocol=PROTOCOL + distance))
            assert refused.value.code == "worker.protocol"

    played(stack, scenario)
