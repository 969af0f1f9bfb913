"""A graph as a Mermaid flowchart, for Markdown files and wikis.

Nodes are numbered, because a step's name may be a word of Mermaid (`end` is). All text stands in quotes with
Mermaid's own `#…;` escapes, so no name or guard can end its label.
"""

from __future__ import annotations

from typing import Final

from noetl.playbook.graph import Graph, GraphEdge, GraphNode
from noetl.playbook.wording import printable

_ESCAPES: Final = str.maketrans(
    {
        "#": "#35;",
        '"': "#quot;",
        "&": "#amp;",
        "<": "#lt;",
        ">": "#gt;",
        "`": "#96;",
        "\\": "#92;",
    }
)
_ARROWS: Final = {"always": "-->", "guarded": "-->", "failure": "-.->"}


def mermaid(graph: Graph) -> str:
    ids = {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    lines += [f"  {ids[node.name]}{_shape(node)}" for node in graph.nodes]
    lines += [_edge(edge, ids) for edge in graph.edges]
    lines.append("  classDef entry stroke-width:3px")
    lines.append("  classDef finish fill:#eef1f5,stroke:#8a94a3")
    for name, members in (
        ("entry", [node for node in graph.nodes if node.is_entry]),
        ("finish", [node for node in graph.nodes if node.role != "step"]),
    ):
        if members:
            lines.append(f"  class {','.join(ids[node.name] for node in members)} {name}")
    failures = [str(number) for number, edge in enumerate(graph.edges) if edge.route == "failure"]
    if failures:
        lines.append(f"  linkStyle {','.join(failures)} stroke:#c0392b,color:#c0392b")
    return "\n".join(lines) + "\n"


def _shape(node: GraphNode) -> str:
    text = "<br/>".join([f"<b>{_escaped(node.name)}</b>", *map(_line, node.marks + node.tasks)])
    if node.role == "end":
        return f'(["{text}"])'
    if node.role == "computed":
        return f'{{{{"{text}"}}}}'
    return f'("{text}")'


def _line(text: str) -> str:
    """Indentation would be folded by a browser, so it is written as spaces that are not."""
    content = text.lstrip(" ")
    return "#nbsp;" * (len(text) - len(content)) + _escaped(content)


def _edge(edge: GraphEdge, ids: dict[str, str]) -> str:
    arrow = "==>" if edge.forks and edge.route != "failure" else _ARROWS[edge.route]
    label = f'|"{_escaped(edge.label)}"|' if edge.label else ""
    return f"  {ids[edge.source]} {arrow}{label} {ids[edge.target]}"


def _escaped(text: str) -> str:
    return printable(text).translate(_ESCAPES)
