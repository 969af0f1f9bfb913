"""Workers that stand still for longer than their lease: others take over, nobody listens to the zombie."""

from __future__ import annotations

from functools import partial

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.processes import Process, wait_until
from tests.distributed.shapes import Under, register, undisturbed
from tests.distributed.stack import OWN_PLAYBOOKS, Stack
from tests.distributed.verdict import assert_sound

MIXED = ("chain", "parallel", "nested", "parent")


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
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id], pauses=1)
    first, second, *rest = outside.calls
    assert (first.action, first.attempt) == (second.action, second.attempt)
    assert [call.path for call in rest] == ["/call/after"]

    # It has heard that its lease is over, and works on.
    other.kill()
    last = stack.begin("distributed/gated", {"api": outside.url})
    stack.wait_ended([last])
    assert stack.count("command.expired") == 1


def test_a_worker_that_works_longer_than_its_lease_keeps_it(make_stack: MakeStack, outside: Outside) -> None:
    stack = make_stack(workers=2)
    stack.register("items", folder=OWN_PLAYBOOKS)
    execution_id = stack.begin("distributed/items", {"api": outside.url, "count": 5, "ms": 5_000})
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id])
    assert stack.count("command.expired") == 0
    assert set(outside.counts().values()) == {1}


def test_executions_come_to_the_same_end_when_workers_stand_still_in_turn(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(workers=3)
    register(stack, *MIXED)
    expected = undisturbed(stack, outside, *MIXED)
    under = Under(stack, outside)
    for number in range(3):
        for name in MIXED:
            under.begin(name)
        outside.wait_for_calls(10)
        busy = _busiest(stack)
        busy.pause()
        losses = stack.count("command.expired") + 1
        wait_until(partial(_lost, stack, losses), 20, "leases run out")
        busy.go_on()
        outside.wait_for_calls(25 * (number + 1))
    assert under.outcomes(pauses=3) == {name: [expected[name]] * 3 for name in MIXED}


def _busiest(stack: Stack) -> Process:
    """The worker with the most leases; waits until one has some."""
    found: list[Process] = []

    def one_is_busy() -> bool:
        rows = stack.query(
            "SELECT worker_id FROM noetl.command WHERE worker_id IS NOT NULL "
            "GROUP BY 1 ORDER BY count(*) DESC"
        )
        names = [str(row[0]).rpartition(":")[2] for row in rows]
        found[:] = [part for name in names for part in stack.workers if part.name == name]
        return bool(found)

    wait_until(one_is_busy, 20, "a worker has a lease")
    return found[0]


def _lost(stack: Stack, number: int) -> bool:
    return stack.count("command.expired") >= number
