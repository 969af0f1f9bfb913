"""Which nodes of a graph lead back to themselves, in time that grows with the graph and not its square."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

Name = TypeVar("Name")


def in_cycles(graph: Mapping[Name, Iterable[Name]]) -> set[Name]:
    """The nodes on some cycle; an edge to a node that the graph does not have leads nowhere.

    Tarjan's strongly connected components with a stack of its own, because a file can hold a chain far
    longer than the interpreter nests.
    """
    found: set[Name] = set()
    number: dict[Name, int] = {}
    lowest: dict[Name, int] = {}
    component: list[Name] = []
    pending: set[Name] = set()
    for root in graph:
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        component.append(root)
        pending.add(root)
        path = [(root, iter(graph[root]))]
        while path:
            name, rest = path[-1]
            for after in rest:
                if after == name:
                    found.add(name)
                elif after not in graph:
                    continue
                elif after not in number:
                    number[after] = lowest[after] = len(number)
                    component.append(after)
                    pending.add(after)
                    path.append((after, iter(graph[after])))
                    break
                elif after in pending:
                    lowest[name] = min(lowest[name], number[after])
            else:
                path.pop()
                if path:
                    before = path[-1][0]
                    lowest[before] = min(lowest[before], lowest[name])
                if lowest[name] == number[name]:
                    _close(name, component, pending, found)
    return found


def _close(name: Name, component: list[Name], pending: set[Name], found: set[Name]) -> None:
    """Takes the component of `name` off the stack; more than one node means a cycle through all of them."""
    start = len(component) - 1
    while component[start] != name:
        start -= 1
    members = component[start:]
    del component[start:]
    pending.difference_update(members)
    if len(members) > 1:
        found.update(members)
