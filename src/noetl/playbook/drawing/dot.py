"""A graph in the DOT language, for Graphviz and everything that reads its files."""

from __future__ import annotations

from typing import Final

from noetl.playbook.graph import Graph, GraphEdge, GraphNode
from noetl.playbook.wording import printable

_HEAD: Final = (
    "  rankdir=TB;",
    '  node [shape=box, style="rounded,filled", fillcolor="#f7f9fc", color="#5b6b82", fontname="Helvetica"];',
    '  edge [color="#5b6b82", fontname="Helvetica", fontsize=10];',
)


def dot(graph: Graph) -> str:
    lines = [f"digraph {_quoted(graph.name)} {{", *_HEAD]
    lines += [_node(node) for node in graph.nodes]
    lines += [_edge(edge) for edge in graph.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _node(node: GraphNode) -> str:
    attributes = {"label": _label(node)}
    if node.is_entry:
        attributes["penwidth"] = "2.5"
    if node.role == "end":
        attributes |= {"shape": "oval", "fillcolor": "#e8ecf2"}
    elif node.role == "computed":
        attributes |= {"shape": "hexagon", "fillcolor": "#e8ecf2"}
    return f"  {_quoted(node.name)} {_listed(attributes)};"


def _label(node: GraphNode) -> str:
    """The name in the middle, what follows flush left: `\\l` ends a line that way."""
    details = "".join(_escaped(line) + "\\l" for line in node.marks + node.tasks)
    return _escaped(node.name) + (f"\\n{details}" if details else "")


def _edge(edge: GraphEdge) -> str:
    attributes = {"label": _escaped(edge.label)} if edge.label else {}
    if edge.route == "failure":
        attributes |= {"color": "#c0392b", "fontcolor": "#c0392b", "style": "dashed"}
    elif edge.forks:
        attributes["penwidth"] = "2"
    ends = f"  {_quoted(edge.source)} -> {_quoted(edge.target)}"
    return f"{ends} {_listed(attributes)};" if attributes else f"{ends};"


def _listed(attributes: dict[str, str]) -> str:
    """Attributes whose values are escaped already."""
    return "[" + ", ".join(f'{name}="{value}"' for name, value in attributes.items()) + "]"


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
