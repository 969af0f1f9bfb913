"""Workers that stand still for longer than their lease: others take over, nobody listens to the zombie."""

from __future__ import annotations

import time

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.processes import wait_until
from tests.distributed.stack import OWN_PLAYBOOKS
from tests.distributed.verdict import Resumed, assert_sound


def test_what_a_worker_reports_after_its_lease_does_not_count(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(workers=1)
    stack.register("gated", folder=OWN_PLAYBOOKS)
    (zombie,) = stack.workers
    execution_id = stack.begin("distributed/gated", {"api": outside.url})
    outside.wait_for_calls(1)
    zombie.pause()
    wait_until(lambda: stack.count("command.expired") == 1, 20, "its lease runs out")
    other = stack.add_worker()
    other.start()
    other.wait_ready()
    outside.wait_for_calls(2)
    # Both have the same call open. The zombie gets its answer first, and does not get through with it.
    outside.gate.set()
    zombie.go_on()
    resumed = Resumed(zombie.name, time.time())
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id], resumed=[resumed])
    first, second, *rest = outside.calls
    assert (first.action, first.attempt) == (second.action, second.attempt)
    assert [call.path for call in rest] == ["/call/after"]

    # It has heard that its lease is over, and works on.
    other.kill()
    last = stack.begin("distributed/gated", {"api": outside.url})
    stack.wait_ended([last])
    assert stack.count("command.expired") == 1


def test_a_worker_that_works_longer_than_its_lease_keeps_it(make_stack: MakeStack, outside: Outside) -> None:
    stack = make_stack(workers=2, lease_seconds=3.0)
    stack.register("items", folder=OWN_PLAYBOOKS)
    execution_id = stack.begin("distributed/items", {"api": outside.url, "count": 5, "ms": 6_500})
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id])
    assert stack.count("command.expired") == 0
    assert set(outside.counts().values()) == {1}
