"""Servers that are killed, and servers that replace each other: workers and executions outlive them."""

from __future__ import annotations

import time

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.shapes import Under, register, undisturbed
from tests.distributed.stack import OWN_PLAYBOOKS
from tests.distributed.verdict import Resumed, assert_sound


def test_a_rolling_restart_of_everything_loses_nothing(make_stack: MakeStack, outside: Outside) -> None:
    stack = make_stack(servers=2, workers=2, lease_seconds=30.0)
    names = ("chain", "parallel", "waiting")
    register(stack, *names)
    expected = undisturbed(stack, outside, *names)
    under = Under(stack, outside)
    for part in stack.parts():
        for number, name in enumerate(names):
            under.begin(name, server=number % 2)
        part.tell_to_end()
        assert part.wait_end() == 0, part.said()[-3000:]
        part.start()
        part.wait_ready()
    under.send_signals()
    assert under.outcomes() == {name: [expected[name]] * 4 for name in names}
    assert stack.count("command.expired") == 0


def test_a_worker_that_gives_up_a_lease_leaves_the_child_it_called_alone(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(servers=1, workers=1)
    stack.register("gated", "caller", folder=OWN_PLAYBOOKS)
    (server,), (worker,) = stack.servers, stack.workers
    execution_id = stack.begin("distributed/caller", {"api": outside.url})
    outside.wait_for_calls(1)
    # Before the caller is parked: it holds its lease, cannot renew it, and stops what it does.
    server.pause()
    worker.hear("does not hear that this worker is alive")
    time.sleep(stack.lease_seconds)  # how long the server stands still, not something to wait for
    server.go_on()
    resumed = Resumed(worker.name, time.time())
    outside.gate.set()
    stack.wait_ended([execution_id])
    outcomes = assert_sound(stack, outside, [execution_id], resumed=[resumed]).outcomes
    assert {outcome["status"] for outcome in outcomes.values()} == {"completed"}
