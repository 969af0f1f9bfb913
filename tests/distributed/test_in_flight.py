"""The limit of a loop, counted by whoever is called, with many workers that share its iterations."""

from __future__ import annotations

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.stack import OWN_PLAYBOOKS
from tests.distributed.verdict import assert_sound

MOST = 5


def test_max_in_flight_is_never_exceeded_by_four_workers_and_nearly_always_used(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(servers=2, workers=4)
    stack.register("items", folder=OWN_PLAYBOOKS)
    payload = {"api": outside.url, "count": 200, "ms": 25}
    execution_id = stack.begin("distributed/items", payload)
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id])
    samples = outside.samples[execution_id]
    assert len(samples) == 200
    assert max(samples) <= MOST
    assert sum(1 for each in samples if each >= MOST - 1) >= 0.8 * len(samples), samples


def test_max_in_flight_holds_while_workers_are_killed(make_stack: MakeStack, outside: Outside) -> None:
    stack = make_stack(servers=2, workers=4)
    stack.register("items", folder=OWN_PLAYBOOKS)
    execution_id = stack.begin("distributed/items", {"api": outside.url, "count": 150, "ms": 25})
    for number in range(4):
        outside.wait_for_calls(25 * (number + 1))
        stack.workers[number].kill()
        stack.workers[number].start()
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id])
    assert outside.peaks[execution_id] <= MOST
    assert len(outside.counts()) == 151
