"""Clocks that step: leases are the database's, so no clock of a server or worker ends one.

Delays and waits are moments by the clock of whoever decided them, so shapes without any are played.
"""

from __future__ import annotations

import signal

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.shapes import Under, register, undisturbed

MIXED = ("pages", "large", "parent")


def test_no_lease_is_lost_when_clocks_of_servers_and_workers_step_by_an_hour(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(servers=2, workers=2, lease_seconds=10.0, module="tests.distributed.stepping")
    register(stack, *MIXED)
    expected = undisturbed(stack, outside, *MIXED)
    under = Under(stack, outside)
    for number, part in enumerate((*stack.parts(), *stack.parts())):
        for name in MIXED[number % 2 :: 2]:
            under.begin(name, server=number % 2)
        part.send(signal.SIGUSR1)
        outside.wait_for_calls(8 * (number + 1))
    outcomes = under.outcomes()
    assert {name: set(map(repr, found)) for name, found in outcomes.items()} == {
        name: {repr(expected[name])} for name in MIXED
    }
    assert stack.count("command.expired") == 0
