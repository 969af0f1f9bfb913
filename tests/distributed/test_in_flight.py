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
    # So long that what lies between two calls of a lane hardly counts, on a busy machine too.
    execution_id = stack.begin("distributed/items", {"api": outside.url, "count": 60, "ms": 250})
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id])
    assert set(outside.counts().values()) == {1}
    assert outside.peaks[execution_id] == MOST
    assert outside.share_of_time(execution_id, MOST - 1) >= 0.8


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
