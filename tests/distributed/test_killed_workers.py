"""Workers that are killed: what they had is taken back, and what they had finished is not done again."""

from __future__ import annotations

import time

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.stack import OWN_PLAYBOOKS
from tests.distributed.verdict import assert_sound


def test_what_a_killed_worker_had_under_way_begins_again_within_two_leases(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(workers=1, lease_seconds=4.0)
    stack.register("gated", folder=OWN_PLAYBOOKS)
    execution_id = stack.begin("distributed/gated", {"api": outside.url})
    outside.wait_for_calls(1)
    other = stack.add_worker()
    other.start()
    other.wait_ready()
    killed_at = time.time()
    stack.workers[0].kill()
    outside.wait_for_calls(2)
    assert outside.calls[1].at - killed_at < 2 * stack.lease_seconds
    outside.gate.set()
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id])
    # The call that was under way once more, with the same key; the one after it once.
    assert sorted(outside.counts().values()) == [1, 2]
