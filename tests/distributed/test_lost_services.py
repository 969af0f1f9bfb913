"""A NATS that goes away and comes back: it is not missed."""

from __future__ import annotations

from typing import Any

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.services import Services
from tests.distributed.shapes import Under, register, undisturbed
from tests.distributed.stack import Stack
from tests.distributed.verdict import seconds_between

FOUND_SECONDS = 10.0
"""Within so long a worker that polls has begun what there is, on a busy machine too."""
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
    # Found by workers that had nothing to do.
    assert max(_delay(stack, outside, expected) for _ in range(2)) < FOUND_SECONDS

    services.start_nats()
    for worker in stack.workers:
        worker.hear("is back")
    # Woken again, not found by looking: that would take longer.
    delays = [_delay(stack, outside, expected) for _ in range(3)]
    assert min(delays) < 0.5, delays


def _delay(stack: Stack, outside: Outside, expected: dict[str, dict[str, Any]]) -> float:
    """How long an execution waits for a worker."""
    under = Under(stack, outside)
    execution_id = under.begin("chain")
    assert under.outcomes()["chain"] == [expected["chain"]]
    return seconds_between(stack.log(execution_id), "workflow.started", "step.started")
