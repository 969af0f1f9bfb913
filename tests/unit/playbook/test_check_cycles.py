"""Cycles among named things."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetl.playbook.check.cycles import in_cycles

NODES = st.integers(0, 7)


def leads_to_itself(graph: dict[int, list[int]], node: int) -> bool:
    seen: set[int] = set()
    waiting = list(graph[node])
    while waiting:
        other = waiting.pop()
        if other == node:
            return True
        if other not in seen:
            seen.add(other)
            waiting.extend(graph.get(other, []))
    return False


@given(st.dictionaries(NODES, st.lists(NODES, max_size=4)))
def test_the_nodes_in_cycles_are_those_that_lead_to_themselves(graph: dict[int, list[int]]) -> None:
    assert in_cycles(graph) == {node for node in graph if leads_to_itself(graph, node)}


def test_a_node_that_names_itself_is_a_cycle() -> None:
    assert in_cycles({"a": ["a"], "b": ["a"]}) == {"a"}


def test_a_chain_longer_than_the_interpreter_nests_is_walked() -> None:
    chain = {number: [number + 1] for number in range(20_000)}
    assert in_cycles(chain) == set()
    assert in_cycles({**chain, 20_000: [0]}) == {*chain, 20_000}
