"""Workers that stand still for longer than their lease: others take over, nobody listens to the zombie."""

from __future__ import annotations

import time

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.processes import wait_until
from tests.distributed.stack import OWN_PLAYBOOKS, Stack
from tests.distributed.verdict import Resumed, assert_sound


def test_what_a_worker_reports_after_its_lease_does_not_count(
    make_stack: MakeStack, outside: Outside
) -> None:
    # Long leases, for a worker that beats soon after it went on hears of it before it has reported.
    stack = make_stack(workers=1, lease_seconds=300.0)
    stack.register("gated", "items", folder=OWN_PLAYBOOKS)
    (zombie,) = stack.workers
    execution_id = stack.begin("distributed/gated", {"api": outside.url})
    outside.wait_for_calls(1)
    wait_until(lambda: has_beaten(stack, execution_id), 20, "its first beat comes")
    zombie.pause()
    stack.query(
        "UPDATE noetl.command SET lease_until = 0 WHERE execution_id = %s RETURNING 1", (execution_id,)
    )
    wait_until(lambda: stack.count("command.expired") == 1, 20, "its lease is taken back")
    other = stack.add_worker(None, "--slots", "1")
    other.start()
    other.wait_ready()
    outside.wait_for_calls(2)
    # Both have the same call open. The zombie alone gets its answer, and does not get through with it.
    outside.gate.let_one_through()
    wait_until(lambda: outside.under_way["gate"] == 1, 20, "the zombie is answered")
    zombie.go_on()
    resumed = Resumed(zombie.name, time.time())
    # What it does next, for the other one has no room, it reports after that.
    between = stack.begin("distributed/items", {"api": outside.url, "count": 1})
    stack.wait_ended([between])
    assert stack.count("task.done", execution_id) == 0
    outside.gate.set()
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id, between], resumed=[resumed])
    first, second = (call for call in outside.calls if call.path == "/gate/first")
    assert (first.action, first.attempt) == (second.action, second.attempt)
    assert [call.path for call in outside.calls].count("/call/after") == 1

    # It has heard that its lease is over, and works on.
    other.kill()
    last = stack.begin("distributed/gated", {"api": outside.url})
    stack.wait_ended([last])
    assert stack.count("command.expired") == 1


def has_beaten(stack: Stack, execution_id: str) -> bool:
    """Whether the only lease of an execution was prolonged since it was given."""
    sql = (
        "SELECT row.lease_until > given.at + %s FROM noetl.command AS row "
        "JOIN witness.lease AS given USING (execution_id, command_id) WHERE execution_id = %s"
    )
    (row,) = stack.query(sql, (stack.lease_seconds, execution_id))
    return bool(row[0])


def test_a_worker_that_works_longer_than_its_lease_keeps_it(make_stack: MakeStack, outside: Outside) -> None:
    stack = make_stack(workers=2, lease_seconds=3.0)
    stack.register("items", folder=OWN_PLAYBOOKS)
    execution_id = stack.begin("distributed/items", {"api": outside.url, "count": 5, "ms": 6_500})
    stack.wait_ended([execution_id])
    assert_sound(stack, outside, [execution_id])
    assert stack.count("command.expired") == 0
    assert set(outside.counts().values()) == {1}
