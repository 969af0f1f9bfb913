"""A graph as lines for a terminal: each step once, its ways out below it.

Steps stand in reading order, so most ways lead down the page; a way that leads back up is marked. A
tree would repeat every merge and indent a long chain off the screen; this stays as wide as its longest
line. Text from the playbook is shown without control characters, which a terminal would obey.
"""

from __future__ import annotations

from noetl.playbook.graph import OTHERWISE, PHRASES, Graph, GraphEdge, GraphNode, reading_order
from noetl.playbook.wording import plural, printable


def text(graph: Graph) -> str:
    order, back = reading_order(graph)
    nodes = {node.name: node for node in graph.nodes}
    leaving: dict[str, list[tuple[GraphEdge, bool]]] = {name: [] for name in order}
    arriving: dict[str, dict[str, None]] = {name: {} for name in order}
    for index, edge in enumerate(graph.edges):
        leaving[edge.source].append((edge, index in back))
        arriving[edge.target][edge.source] = None
    lines = [f"{graph.name} ({graph.dialect}, {plural(graph.steps, 'step')})", ""]
    for name in order:
        node = nodes[name]
        if node.role == "step":
            lines += _block(node, leaving[name], list(arriving[name]), nodes)
            lines.append("")
    return "\n".join(printable(line) for line in lines).rstrip() + "\n"


def _block(
    node: GraphNode, ways: list[tuple[GraphEdge, bool]], origins: list[str], nodes: dict[str, GraphNode]
) -> list[str]:
    lines = [f"{'▶' if node.is_entry else '■'} {node.name}{_origin(node, origins)}"]
    rail = "│ " if ways else "  "
    lines += [f"{rail}  {mark}" for mark in node.marks]
    lines += [f"{rail}  · {task}" for task in node.tasks]
    for number, (edge, leads_back) in enumerate(ways):
        corner = "└" if number == len(ways) - 1 else "├"
        lines.append(f"{corner}─{_way(edge, leads_back, nodes)}")
    return lines


def _origin(node: GraphNode, origins: list[str]) -> str:
    if not origins:
        return "" if node.is_entry else "   (nothing leads here)"
    if len(origins) == 1:
        return ""
    shown = ", ".join(origins[:4]) + (f" and {len(origins) - 4} more" if len(origins) > 4 else "")
    return f"   (from {shown})"


def _way(edge: GraphEdge, leads_back: bool, nodes: dict[str, GraphNode]) -> str:
    arrow = "✗▶" if edge.route == "failure" else "═▶" if edge.forks else "─▶"
    target = edge.target
    if nodes[target].role == "end":
        target = f"{target} (ends here)"
    if leads_back:
        target = f"{target} ↺ {'again' if edge.target == edge.source else 'back'}"
    if not edge.label:
        return f"{arrow} {target}"
    is_phrase = edge.label in (OTHERWISE, *PHRASES.values()) or edge.label.startswith(("each ", "on "))
    return f"{arrow} {target}   {'' if is_phrase else 'if '}{edge.label}"
