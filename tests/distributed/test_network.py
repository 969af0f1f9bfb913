"""Answers that are lost, requests that come twice or late: asking again changes nothing that has happened."""

from __future__ import annotations

from tests.distributed.conftest import MakeStack
from tests.distributed.network import network_to
from tests.distributed.outside import Outside
from tests.distributed.shapes import Under, register, undisturbed

MIXED = ("chain", "parallel", "pages", "nested", "branches", "large", "parent")


def test_executions_come_to_the_same_end_over_a_network_that_loses_and_repeats(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(servers=1, workers=0)
    with network_to(stack.url(), seed=7) as network:
        for _ in range(2):
            stack.add_worker(network.url, "--slots", "8")
        stack.start()
        register(stack, *MIXED)
        expected = undisturbed(stack, outside, *MIXED)
        network.is_faulty = True
        under = Under(stack, outside)
        for name in MIXED * 2:
            under.begin(name)
        outcomes = under.outcomes()
        assert outcomes == {name: [expected[name]] * 2 for name in MIXED}
        assert min(network.told[fault] for fault in ("lost", "twice", "late")) > 0, network.told
