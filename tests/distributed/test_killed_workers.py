"""Workers that are killed: what they had is taken back, and what they had finished is not done again."""

from __future__ import annotations

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.verdict import assert_sound

MIXED = ("chain", "parallel", "pages", "nested", "branches", "large")


def test_executions_come_to_the_same_end_when_workers_are_killed_again_and_again(
    make_stack: MakeStack, outside: Outside
) -> None:
    stack = make_stack(workers=3)
    stack.register(*MIXED)
    payload = {"api": outside.url}
    undisturbed = {name: stack.begin(f"durability/{name}", payload) for name in MIXED}
    stack.wait_ended(undisturbed.values())
    found = assert_sound(stack, outside, undisturbed.values())
    expected = {name: found[execution_id] for name, execution_id in undisturbed.items()}
    assert stack.count("command.expired") == 0

    outside.reset()
    began = {stack.begin(f"durability/{name}", payload): name for name in MIXED}
    for number in range(6):
        outside.wait_for_calls(8 * (number + 1))
        victim = stack.workers[number % 3]
        victim.kill()
        victim.start()
    stack.wait_ended(began)
    found = assert_sound(stack, outside, began)
    assert {name: found[execution_id] for execution_id, name in began.items()} == expected
    assert stack.count("command.expired") > 0
