"""A NATS that goes away and comes back: it is not missed."""

from __future__ import annotations

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.services import Services
from tests.distributed.shapes import Under, register, undisturbed
from tests.distributed.verdict import seconds_between

MIXED = ("chain", "parallel", "nested", "waiting", "parent")


def test_without_nats_workers_poll_and_say_so_and_its_wiped_store_is_not_missed(
    make_stack: MakeStack, services: Services, outside: Outside
) -> None:
    stack = make_stack(workers=2)
    register(stack, *MIXED)
    expected = undisturbed(stack, outside, *MIXED)
    under = Under(stack, outside)
    for name in MIXED:
        under.begin(name)
    outside.wait_for_calls(10)
    services.kill_nats(wipe=True)
    for worker in stack.workers:
        worker.hear("NATS is down: workers poll")
    for name in MIXED:
        under.begin(name)
    under.send_signals()
    assert under.outcomes() == {name: [expected[name]] * 2 for name in MIXED}

    services.start_nats()
    for worker in stack.workers:
        worker.hear("is back")
    # Woken again, not found by looking: that would take longer.
    delays = []
    for _ in range(3):
        last = Under(stack, outside)
        execution_id = last.begin("chain")
        assert last.outcomes()["chain"] == [expected["chain"]]
        delays.append(seconds_between(stack.log(execution_id), "workflow.started", "step.started"))
    assert min(delays) < 0.5, delays
