"""Workers that are killed: what they had is taken back, and what they had finished is not done again."""

from __future__ import annotations

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.shapes import Under, register, undisturbed

MIXED = ("chain", "parallel", "pages", "nested", "branches", "large", "parent")


def test_executions_come_to_the_same_end_when_workers_are_killed_again_and_again(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(workers=3)
    register(stack, *MIXED)
    expected = undisturbed(stack, outside, *MIXED)
    under = Under(stack, outside)
    for name in MIXED:
        under.begin(name)
    for number in range(6):
        outside.wait_for_calls(8 * (number + 1))
        victim = stack.workers[number % 3]
        victim.kill()
        victim.start()
        # A step that loses its worker three times in a row is given up, and so it should not here.
        victim.wait_ready()
    assert under.outcomes() == {name: [expected[name]] for name in MIXED}
    assert stack.count("command.expired") > 0
