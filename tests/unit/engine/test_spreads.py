# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""Loops of v1 that send a token for each item through the following steps, and what joins them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.testing import Answer, Run, after, fails, play

HEAD = "apiVersion: noetl.io/v1\nkind: Playbook\nname: p\npath: tests/p\nworkload: {items: [3, 1, 2], none: []}\n"
BOOK = "workbook:\n" + "".join(
    f"  - {{task: {name}, type: python, code: pass}}\n" for name in ("one", "two", "show")
)


def played(workflow: str, tools: Mapping[str, Answer] | None = None) -> Run:
    run = play(f"{HEAD}workflow:\n{workflow}{BOOK}", tools={"python": echo, **(tools or {})})
    state = State(execution_id=run.state.execution_id)
    for event in run.events:
        fold(state, event)
    assert msgspec.msgpack.encode(state) == msgspec.msgpack.encode(run.state)
    return run


def echo(call: Any) -> Answer:
    """Gives back what it was given, the sooner the smaller it is."""
    value = call.args.get("v")
    return after(value if isinstance(value, int) else 0, {"v": value})


def spread(items: str = "workload.items", loop: str = "", gather: str = "join: many, ") -> str:
    return f"""
  - {{step: start, next: [{{step: many}}]}}
  - {{step: many, loop: {{in: "{{{{ {items} }}}}", iterator: item{loop}}}, next: [{{step: work, with: {{item: "{{{{ item }}}}"}}}}]}}
  - {{step: work, call: {{task: one, with: {{v: "{{{{ item }}}}"}}}}, next: [{{step: gather}}]}}
  - {{step: gather, {gather}call: {{task: show, with: {{v: "{{{{ join_results | map(attribute='v') | list }}}}"}}}}, next: [{{step: end}}]}}
  - {{step: end}}
"""


def gathered(run: Run) -> object:
    assert run.status == "completed", run.error
    (call,) = run.calls_of("gather")
    return call.args["v"]


def test_the_joining_step_sees_what_each_item_came_to_in_item_order() -> None:
    run = played(spread())
    assert gathered(run) == [3, 1, 2]
    assert run.elapsed == 3


def test_the_loop_may_name_the_step_that_joins_it() -> None:
    assert gathered(played(spread(loop=", join: gather", gather=""))) == [3, 1, 2]


def test_an_empty_list_goes_straight_to_the_join() -> None:
    run = played(spread(items="workload.none"))
    assert gathered(run) == []
    assert not run.calls_of("work")


def test_a_scalar_is_a_list_of_one() -> None:
    assert gathered(played(spread(items="7"))) == [7]


def test_no_more_tokens_are_under_way_than_allowed() -> None:
    run = played(spread(loop=", spec: {max_in_flight: 1}"))
    assert gathered(run) == [3, 1, 2]
    assert run.elapsed == 6


def test_an_item_that_ended_elsewhere_is_left_out() -> None:
    run = played(
        spread().replace(
            "next: [{step: gather}]}",
            """next: [{when: "{{ item == 1 }}", then: [{step: lost}]}, {else: [{step: gather}]}]}
  - {step: lost, call: {task: two, with: {v: 50}}}""",
        )
    )
    assert gathered(run) == [3, 2]
    assert run.elapsed == 51


def test_nobody_joins_a_loop_that_says_so() -> None:
    run = played(
        """
  - {step: start, next: [{step: many}]}
  - {step: many, loop: {in: "{{ workload.items }}", iterator: item, join: end}, next: [{step: work, with: {item: "{{ item }}"}}]}
  - {step: work, call: {task: one, with: {v: "{{ item }}"}}}
  - {step: end}
"""
    )
    assert run.status == "completed", run.error
    assert sorted(call.args["v"] for call in run.calls) == [1, 2, 3]


def test_the_looping_step_may_have_a_call_of_its_own() -> None:
    run = played(
        """
  - {step: start, next: [{step: many}]}
  - step: many
    loop: {in: "{{ workload.items }}", iterator: item}
    call: {task: one, with: {v: "{{ item }}"}}
    next: [{step: work, with: {got: "{{ many.v * 10 }}"}}]
  - {step: work, call: {task: two, with: {v: "{{ got }}"}}, next: [{step: gather}]}
  - {step: gather, join: many, call: {task: show, with: {v: "{{ join_results | map(attribute='v') | list }}"}}, next: [{step: end}]}
  - {step: end}
"""
    )
    assert gathered(run) == [30, 10, 20]


def test_spreads_can_be_nested() -> None:
    run = played(
        """
  - {step: start, next: [{step: outer}]}
  - {step: outer, loop: {in: "{{ [1, 2] }}", iterator: a}, next: [{step: inner, with: {a: "{{ a }}"}}]}
  - {step: inner, loop: {in: "{{ [10, 20] }}", iterator: b}, next: [{step: work, with: {s: "{{ a + b }}"}}]}
  - {step: work, call: {task: one, with: {v: "{{ s }}"}}, next: [{step: half}]}
  - {step: half, join: inner, call: {task: two, with: {v: "{{ join_results | map(attribute='v') | list }}"}}, next: [{step: gather}]}
  - {step: gather, join: outer, call: {task: show, with: {v: "{{ join_results | map(attribute='v') | list }}"}}, next: [{step: end}]}
  - {step: end}
"""
    )
    assert gathered(run) == [[11, 21], [12, 22]]


def test_a_failed_item_fails_the_execution() -> None:
    run = played(spread(), {"work": fails("broken")})
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["kind"] == "broken"
    assert not run.calls_of("gather")


def test_large_results_of_the_items_stay_out_of_the_events() -> None:
    run = played(
        spread().replace("map(attribute='v') | list", "map(attribute='v') | map('length') | list"),
        {"work": lambda call: {"v": "v" * 40_000 + str(call.args["v"])}},
    )
    assert gathered(run) == [40_001] * 3
    assert all(len(msgspec.json.encode(event.payload)) <= 64 * 1024 for event in run.events)


# --- the iterator, and what comes to the join ---------------------------------------------------------------


def test_the_iterator_is_in_scope_in_the_steps_own_with() -> None:
    run = played(
        """
  - {step: start, loop: {in: "{{ workload.items }}", iterator: item}, with: {x: "{{ item * 10 }}"}, call: {task: show, with: {v: "{{ [x] }}"}}, next: [{step: gather}]}
  - {step: gather, join: start, call: {task: show, with: {v: "{{ join_results | map(attribute='v') | list }}"}}}
"""
    )
    assert gathered(run) == [[30], [10], [20]]


def test_what_of_with_does_not_read_the_iterator_is_there_for_the_collection() -> None:
    run = played(
        """
  - {step: start, loop: {in: "{{ few }}", iterator: item}, with: {few: "{{ workload.items[:2] }}", x: "{{ item * 10 }}"}, call: {task: show, with: {v: "{{ [x, few] }}"}}, next: [{step: gather}]}
  - {step: gather, join: start, call: {task: show, with: {v: "{{ join_results | map(attribute='v') | list }}"}}}
"""
    )
    assert gathered(run) == [[30, [3, 1]], [10, [3, 1]]]


def test_the_iterator_is_in_scope_in_the_steps_that_an_item_passes() -> None:
    run = played(
        """
  - {step: start, loop: {in: "{{ workload.items }}", iterator: item}, next: [{step: work}]}
  - {step: work, call: {task: one, with: {v: "{{ item }}"}}, next: [{when: "{{ item > 1 }}", then: [{step: more}]}]}
  - {step: more, with: {x: "{{ item + 1 }}"}, call: {task: two, with: {v: "{{ x }}"}}, next: [{step: gather}]}
  - {step: gather, join: start, call: {task: show, with: {v: "{{ [join_results | map(attribute='v') | list, item | default('out of scope')] }}"}}}
"""
    )
    assert gathered(run) == [[4, 3], "out of scope"]


def test_what_a_transition_binds_is_nearer_than_the_iterator() -> None:
    run = played(
        """
  - {step: start, loop: {in: "{{ workload.items }}", iterator: item}, next: [{step: work, with: {item: "{{ item * 2 }}"}}]}
  - {step: work, call: {task: show, with: {v: "{{ [item] }}"}}, next: [{step: gather}]}
  - {step: gather, join: start, call: {task: show, with: {v: "{{ join_results | map(attribute='v') | list }}"}}}
"""
    )
    assert gathered(run) == [[6], [2], [4]]


def test_of_nested_loops_both_iterators_are_in_scope() -> None:
    run = played(
        """
  - {step: start, loop: {in: [1, 2], iterator: outer}, next: [{step: inner}]}
  - {step: inner, loop: {in: "{{ [outer * 10, outer * 10 + 1] }}", iterator: item}, next: [{step: work}]}
  - {step: work, call: {task: show, with: {v: "{{ outer ~ '/' ~ item }}"}}, next: [{step: half}]}
  - {step: half, join: inner, call: {task: two, with: {v: "{{ join_results | map(attribute='v') | join(' ') }}"}}, next: [{step: gather}]}
  - {step: gather, join: start, call: {task: show, with: {v: "{{ join_results | map(attribute='v') | list }}"}}}
"""
    )
    assert gathered(run) == ["1/10 1/11", "2/20 2/21"]


def test_an_item_that_goes_straight_to_the_join_is_its_own_result() -> None:
    run = played(
        """
  - {step: start, loop: {in: "{{ workload.items }}", iterator: item}, next: [{step: gather}]}
  - {step: gather, join: start, call: {task: show, with: {v: "{{ join_results }}"}}}
"""
    )
    assert gathered(run) == [3, 1, 2]


def test_an_item_that_comes_by_two_ways_gives_two_results_in_the_order_of_the_steps() -> None:
    run = played(
        """
  - {step: start, loop: {in: "{{ [1, 2] }}", iterator: item}, next: [{step: slow}, {step: fast}]}
  - {step: slow, call: {task: one, with: {v: "{{ item + 5 }}"}}, next: [{step: gather}]}
  - {step: fast, call: {task: two, with: {v: "{{ item }}"}}, next: [{step: gather}]}
  - {step: gather, join: start, call: {task: show, with: {v: "{{ join_results | map(attribute='v') | list }}"}}}
"""
    )
    assert gathered(run) == [6, 1, 7, 2]


def test_large_elements_reach_the_steps_behind_the_loop_and_the_join() -> None:
    run = played(
        """
  - {step: start, loop: {in: "{{ ['x' * 50000, 'y' * 50000] }}", iterator: item}, next: [{when: "{{ item[0] == 'x' }}", then: [{step: gather}]}, {else: [{step: work}]}]}
  - {step: work, call: {task: one, with: {v: "{{ item }}"}}, next: [{step: gather}]}
  - {step: gather, join: start, call: {task: show, with: {v: "{{ [join_results[0] | length, join_results[1].v | length] }}"}}}
"""
    )
    assert gathered(run) == [50000, 50000]
