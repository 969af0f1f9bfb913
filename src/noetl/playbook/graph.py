"""A playbook as a graph to draw: its steps as nodes, the ways between them as edges.

The graph is data for the drawings in `drawing/`: it says what stands in a box and along a line, never how
that looks. It is built from the model alone, so every dialect gives the same graph. Arcs of the router and
`next` actions of a case become edges alike. A target that is no step (an undefined `end`, a computed name)
gets a node of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from noetl.playbook.model import (
    AdmitRule,
    Block,
    Case,
    CaseBranch,
    Guard,
    Join,
    Loop,
    NextAction,
    Node,
    Parallel,
    Playbook,
    Sink,
    Step,
    Target,
    Task,
    TaskAction,
)
from noetl.playbook.wording import (
    call_text,
    count_text,
    expression,
    guard_text,
    shortened,
    tells_failure,
)
from noetl.template import Template

GUARD_LENGTH = 44
CALL_LENGTH = 44

PHRASES = {
    "event.name == 'step.failed'": "on failure",
    "event.name == 'step.done'": "when done",
    "event.name == 'loop.done'": "when done",
    "event.name == 'call.done'": "after the call",
    "event.name == 'call.error'": "on error",
}
"""Guards that everybody writes, as a reader would say them."""
OTHERWISE = "otherwise"
_EVENT = re.compile(r"""event\.name == ['"]([\w.:-]+)['"]""")


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A box: its name, what qualifies it (`marks`), and its tasks, indented by how deep they are nested."""

    name: str
    role: Literal["step", "end", "computed"] = "step"
    is_entry: bool = False
    marks: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


class GraphEdge(msgspec.Struct, frozen=True, kw_only=True):
    """A way from one node to another, by name. `forks`: it is taken together with others, not instead."""

    source: str
    target: str
    label: str = ""
    route: Literal["always", "guarded", "failure"] = "always"
    forks: bool = False


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    dialect: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    @property
    def steps(self) -> int:
        return sum(node.role == "step" for node in self.nodes)


def graph_of(playbook: Playbook) -> Graph:
    nodes = [_node(step, is_entry=step.name == playbook.entry) for step in playbook.steps]
    edges = [edge for step in playbook.steps for edge in _edges(step)]
    known = {node.name for node in nodes}
    for target in dict.fromkeys(edge.target for edge in edges):
        if target not in known:
            nodes.append(GraphNode(name=target, role="computed" if "{" in target else "end"))
    return Graph(name=playbook.name, dialect=playbook.dialect, nodes=tuple(nodes), edges=tuple(edges))


# --- what stands in a box ----------------------------------------------------------------------------


def _node(step: Step, *, is_entry: bool) -> GraphNode:
    marks = []
    if step.admit is not None:
        marks.append(f"◇ admits: {_admission(step.admit)}")
    if step.join is not None:
        marks.append(_join(step.join))
    if step.loop is not None:
        marks.append(loop_mark(step.loop))
    if step.spread is not None:
        marks.append(
            f"⇉ {step.spread.iterator}: a token each, {count_text(step.spread.max_in_flight)} at once"
        )
    if step.router.mode == "inclusive" and len(step.router.arcs) > 1:
        marks.append("⋔ every way that applies")
    if step.on_error == "ignore":
        marks.append("! a failure is ignored")
    tasks = [line for node in step.body for line in _body_lines(node, "")]
    if step.sink is not None:
        tasks.append(_sink_line(step.sink, ""))
    return GraphNode(name=step.name, is_entry=is_entry, marks=tuple(marks), tasks=tuple(tasks))


def loop_mark(loop: Loop) -> str:
    """`↻ city: 8 parallel` or `↻ city: sequential`."""
    pace = f"{count_text(loop.max_in_flight)} parallel" if loop.mode == "parallel" else "sequential"
    return f"↻ {loop.iterator}: {pace}"


def _admission(rules: tuple[AdmitRule, ...]) -> str:
    allowed = [guard_text(rule.when, GUARD_LENGTH) for rule in rules if rule.when is not None and rule.allow]
    if not allowed:
        refused = [guard_text(rule.when, GUARD_LENGTH) for rule in rules if rule.when is not None]
        return f"unless {refused[0]}" if refused else "by rules"
    return allowed[0] if len(allowed) == 1 else f"{allowed[0]} or {len(allowed) - 1} more"


def _join(join: Join) -> str:
    names = shortened(", ".join(join.of), CALL_LENGTH)
    return {
        "all": f"⋈ waits for all of {names}",
        "any": f"⋈ takes the first of {names}",
        "active": f"⋈ waits for what is on its way from {names}",
        "spread": f"⋈ gathers the tokens of {names}",
    }[join.mode]


def _body_lines(node: Node, indent: str) -> Iterator[str]:
    inner = indent + "  "
    match node:
        case Task():
            yield _task_line(node, indent)
            if node.sink is not None:
                yield _sink_line(node.sink, inner)
        case Block():
            yield f"{indent}{node.label}" + ("" if node.loop is None else f" {loop_mark(node.loop)}")
            for child in node.body:
                yield from _body_lines(child, inner)
            if node.sink is not None:
                yield _sink_line(node.sink, inner)
        case Parallel():
            yield f"{indent}{node.label} ∥"
            for side in node.branches:
                yield from _body_lines(side.node, inner)
        case Case():
            if node.call is not None:
                yield _task_line(node.call, indent)
            if node.on_event:
                yield f"{indent}waits for events"
            for branch in node.branches:
                yield from (
                    _task_line(action.task, inner)
                    for action in branch.actions
                    if isinstance(action, TaskAction)
                )


def _task_line(task: Task, indent: str) -> str:
    label = "" if task.label.startswith("task_") else f"{task.label}: "
    repeats = any(rule.then.do == "retry" for rule in task.rules or ()) or task.retry is not None
    return f"{indent}{label}{call_text(task, CALL_LENGTH)}{' ⟲' if repeats or task.poll is not None else ''}"


def _sink_line(sink: Sink, indent: str) -> str:
    return f"{indent}stores: {call_text(sink.task, CALL_LENGTH)}"


# --- the ways between boxes ----------------------------------------------------------------------------


def _edges(step: Step) -> Iterator[GraphEdge]:
    for node in step.body:
        yield from _case_edges(step, node)
    arcs = step.router.arcs
    forks_all = step.router.mode == "inclusive" and len(arcs) > 1
    asked = any(arc.when is not None for arc in arcs) or _decides(step)
    for arc in arcs:
        for target in arc.targets:
            route, label = _route(arc.when, asked and not forks_all)
            if step.spread is not None:
                label = f"each {step.spread.iterator}" + (f", {label}" if label else "")
            yield GraphEdge(
                source=step.name,
                target=_target_name(target),
                label=label,
                route=route,
                forks=forks_all or len(arc.targets) > 1,
            )


def _decides(step: Step) -> bool:
    """Whether a case may route elsewhere, so that the step's own ways are what remains."""
    return any(
        isinstance(action, NextAction)
        for node in step.body
        if isinstance(node, Case)
        for branch in node.branches
        for action in branch.actions
    )


def _route(when: Guard | None, otherwise: bool) -> tuple[Literal["always", "guarded", "failure"], str]:
    if when is None:
        return "always", OTHERWISE if otherwise else ""
    return ("failure" if tells_failure(when) else "guarded"), _guard_label(when)


def _guard_label(when: Guard) -> str:
    if not isinstance(when, Template):
        return guard_text(when)
    text = expression(when)
    # Nearly every guard on success begins with this; what follows is what distinguishes it.
    telling = re.sub(r"^event\.name == ['\"](?:call|step|loop)\.done['\"] and ", "", text)
    if phrase := PHRASES.get(text.replace('"', "'")):
        return phrase
    event = _EVENT.fullmatch(text)
    return f"on {event[1]}" if event else shortened(telling, GUARD_LENGTH)


def _case_edges(step: Step, node: Node) -> Iterator[GraphEdge]:
    match node:
        case Case():
            for branch in node.branches:
                yield from _branch_edges(step, node, branch)
        case Block():
            for child in node.body:
                yield from _case_edges(step, child)
        case Parallel():
            for parallel_branch in node.branches:
                yield from _case_edges(step, parallel_branch.node)


def _branch_edges(step: Step, case: Case, branch: CaseBranch) -> Iterator[GraphEdge]:
    for action in branch.actions:
        if not isinstance(action, NextAction):
            continue
        route, label = _route(branch.when, otherwise=True)
        for target in action.targets:
            yield GraphEdge(
                source=step.name,
                target=_target_name(target),
                label=label,
                route=route,
                forks=case.mode == "inclusive" or len(action.targets) > 1,
            )


def _target_name(target: Target) -> str:
    if isinstance(target.step, Template):
        return f"{{{{ {shortened(expression(target.step), GUARD_LENGTH)} }}}}"
    return target.step


# --- the order of steps --------------------------------------------------------------------------------


def reading_order(graph: Graph) -> tuple[list[str], set[int]]:
    """The nodes so that each stands after what leads to it, and the indexes of the edges that lead back.

    It begins with the entry, and keeps the written order where it can. It is the reverse of the order in
    which a depth-first walk leaves the nodes; a walk with its own stack, because a playbook may be ten
    thousand steps deep.
    """
    leaving: dict[str, list[int]] = {node.name: [] for node in graph.nodes}
    for index, edge in enumerate(graph.edges):
        leaving[edge.source].append(index)
    entries = [node.name for node in graph.nodes if node.is_entry]
    reached = _reached(entries, graph, leaving)
    # What is left last comes first when reversed, so the walk from the entry is the last one.
    roots = [node.name for node in reversed(graph.nodes) if node.name not in reached] + entries
    state: dict[str, Literal["open", "left"]] = {}
    back: set[int] = set()
    left: list[str] = []
    for root in roots:
        if root not in state:
            left += _walk(root, graph, leaving, state, back)
    return left[::-1], back


def _reached(entries: list[str], graph: Graph, leaving: dict[str, list[int]]) -> set[str]:
    found = set(entries)
    waiting = list(entries)
    while waiting:
        for index in leaving[waiting.pop()]:
            if (target := graph.edges[index].target) not in found:
                found.add(target)
                waiting.append(target)
    return found


def _walk(
    root: str,
    graph: Graph,
    leaving: dict[str, list[int]],
    state: dict[str, Literal["open", "left"]],
    back: set[int],
) -> list[str]:
    left: list[str] = []
    state[root] = "open"
    # The last written way is walked first: reversed, the first written then stands first.
    stack = [(root, iter(reversed(leaving[root])))]
    while stack:
        name, ways = stack[-1]
        for index in ways:
            target = graph.edges[index].target
            if state.get(target) == "open":
                back.add(index)
            elif target not in state:
                state[target] = "open"
                stack.append((target, iter(reversed(leaving[target]))))
                break
        else:
            state[name] = "left"
            left.append(name)
            stack.pop()
    return left
