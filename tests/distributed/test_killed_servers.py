"""Servers that are killed, and servers that replace each other: workers and executions outlive them."""

from __future__ import annotations

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.shapes import Under, register, undisturbed

MIXED = ("chain", "parallel", "nested", "branches", "waiting", "resting")


def test_executions_come_to_the_same_end_when_each_of_two_servers_is_killed(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(servers=2, workers=3)
    register(stack, *MIXED)
    expected = undisturbed(stack, outside, *MIXED)
    under = Under(stack, outside)
    for number, name in enumerate(MIXED):
        under.begin(name, server=number % 2)
    for number in range(4):
        outside.wait_for_calls(8 * (number + 1))
        victim = stack.servers[number % 2]
        victim.kill()
        victim.start()
    under.send_signals()
    assert under.outcomes() == {name: [expected[name]] for name in MIXED}


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
        assert part.wait_end() == 0
        part.start()
        part.wait_ready()
    under.send_signals()
    assert under.outcomes() == {name: [expected[name]] * 4 for name in names}
    assert stack.count("command.expired") == 0
