"""A graph as an SVG picture, drawn here so that nobody needs Graphviz.

`layout.py` decides where things stand; this module measures text and draws. Fonts differ from machine
to machine, so widths are estimated on the generous side. Everything from the playbook is escaped, and
the picture holds no script, no link and nothing that would be loaded.
"""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import Final, NamedTuple

from noetl.playbook.drawing.layout import Link, Point, Route, Size, place, spans
from noetl.playbook.graph import Graph, GraphEdge, GraphNode, reading_order
from noetl.playbook.wording import ELLIPSIS, printable

MARGIN: Final = 24.0
PADDING: Final = 14.0
NAME_LINE: Final = 22.0
DETAIL_LINE: Final = 17.0
LABEL_LINE: Final = 14.0
LABEL_WIDTH: Final = 26
LABEL_LINES: Final = 2
# Lines through very many layers cost more than they tell: beyond this, the longest end in a reference.
MOST_CROSSED_LAYERS: Final = 6_000

STYLE: Final = """\
text{font-family:Inter,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1d2939}
.name{font-size:14px;font-weight:600}
.detail{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:11px;fill:#475467}
.mark{font-size:11.5px;fill:#175cd3}
.label{font-size:11px;fill:#475467;text-anchor:middle}
.label.failure{fill:#b42318}
.halo{fill:#fff}
.box{fill:#f8fafc;stroke:#98a2b3;stroke-width:1.2}
.box.entry{stroke:#175cd3;stroke-width:2}
.box.end{fill:#eaecf0}
.box.reference{fill:#fff;stroke-dasharray:3 3}
.line{fill:none;stroke:#667085;stroke-width:1.4}
.line.forks{stroke-width:2.4}
.line.failure{stroke:#d92d20;stroke-dasharray:6 4}
.head{fill:#667085}
.head.failure{fill:#d92d20}"""


class Box(NamedTuple):
    node: GraphNode
    size: Size
    is_reference: bool = False


class Line(NamedTuple):
    edge: GraphEdge
    label: tuple[str, ...]
    link: Link


def svg(graph: Graph) -> str:
    boxes, lines, order = _measured(graph)
    page = place([box.size for box in boxes], [line.link for line in lines], order)
    width, height = page.width + 2 * MARGIN, page.height + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" role="img">',
        f"<title>{_escaped(graph.name)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="halo" width="{_n(width)}" height="{_n(height)}"/>',
        f'<g transform="translate({_n(MARGIN)} {_n(MARGIN)})">',
    ]
    parts += [_drawn_line(line, route) for line, route in zip(lines, page.routes, strict=True)]
    parts += [_drawn_box(box, at) for box, at in zip(boxes, page.boxes, strict=True)]
    parts += [_drawn_label(line, route) for line, route in zip(lines, page.routes, strict=True) if line.label]
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


# --- measuring -----------------------------------------------------------------------------------------


def _measured(graph: Graph) -> tuple[list[Box], list[Line], list[int]]:
    names, back = reading_order(graph)
    boxes = [Box(node, _box_size(node)) for node in graph.nodes]
    index = {node.name: number for number, node in enumerate(graph.nodes)}
    lines: list[Line] = []
    own: dict[str, int] = {}
    for number, edge in enumerate(graph.edges):
        if edge.source == edge.target and edge.source in own:
            lines[own[edge.source]] = _joined(lines[own[edge.source]], edge)
            continue
        if edge.source == edge.target:
            own[edge.source] = len(lines)
        label = _wrapped(edge.label)
        link = Link(index[edge.source], index[edge.target], _label_size(label), number in back)
        lines.append(Line(edge, label, link))
    order = [index[name] for name in names]
    _refer(boxes, lines, order)
    return boxes, lines, order


def _joined(line: Line, edge: GraphEdge) -> Line:
    """Several ways from a step to itself are one line with both labels."""
    label = line.label + _wrapped(edge.label)
    return Line(line.edge, label, line.link._replace(label=_label_size(label)))


def _refer(boxes: list[Box], lines: list[Line], order: list[int]) -> None:
    """Ends the longest lines in a small box that names their target, while there is too much to cross."""
    lengths = spans(len(boxes), [line.link for line in lines], order)
    excess = sum(lengths) - MOST_CROSSED_LAYERS
    for number in sorted(range(len(lines)), key=lambda n: -lengths[n]):
        if excess <= 0 or lengths[number] < 3:
            return
        excess -= lengths[number]
        edge, label, link = lines[number]
        node = GraphNode(name=f"→ {edge.target}", role="end")
        order.append(len(boxes))
        lines[number] = Line(edge, label, Link(link.source, len(boxes), link.label, leads_back=False))
        boxes.append(Box(node, _box_size(node), is_reference=True))


def _box_size(node: GraphNode) -> Size:
    widths = [_text_width(node.name, 14.0, bold=True)]
    widths += [_text_width(mark, 11.5) for mark in node.marks]
    widths += [_mono_width(task, 11.0) for task in node.tasks]
    height = NAME_LINE + DETAIL_LINE * (len(node.marks) + len(node.tasks))
    extra = 6.0 if node.marks or node.tasks else 0.0
    return Size(max(72.0, max(widths) + 2 * PADDING), height + extra + PADDING)


def _label_size(label: tuple[str, ...]) -> Size:
    if not label:
        return Size(0.0, 0.0)
    return Size(max(_text_width(line, 11.0) for line in label) + 8, LABEL_LINE * len(label) + 4)


def _wrapped(text: str) -> tuple[str, ...]:
    """A label in few short lines, broken between words where that is possible."""
    lines: list[str] = []
    for word in printable(text).split():
        if lines and len(lines[-1]) + len(word) < LABEL_WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word if len(word) <= LABEL_WIDTH + 8 else word[: LABEL_WIDTH + 7] + ELLIPSIS)
    if len(lines) > LABEL_LINES:
        lines[LABEL_LINES - 1] += ELLIPSIS
    return tuple(lines[:LABEL_LINES])


def _text_width(text: str, size: float, *, bold: bool = False) -> float:
    """A generous estimate for sans-serif fonts."""
    total = 0.0
    for character in text:
        if not character.isascii():
            total += 1.15 if unicodedata.east_asian_width(character) in "WF" else 0.85
        elif character in "MWmw@%":
            total += 0.95
        elif character in "il.,:;'|! ()[]tfj":
            total += 0.4
        else:
            total += 0.74 if character.isupper() else 0.62
    return total * size * (1.06 if bold else 1.0)


def _mono_width(text: str, size: float) -> float:
    wide = sum(
        unicodedata.east_asian_width(character) in "WF" for character in text if not character.isascii()
    )
    return (len(text) + wide) * size * 0.615


# --- drawing -------------------------------------------------------------------------------------------


def _drawn_box(box: Box, at: Point) -> str:
    node, (width, height), _ = box
    left = at.x - width / 2
    kinds = ["box"] + (["entry"] if node.is_entry else []) + (["end"] if node.role != "step" else [])
    if box.is_reference:
        kinds = ["box", "reference"]
    round_ends = height / 2 if node.role != "step" else 9.0
    parts = [
        f'<rect class="{" ".join(kinds)}" x="{_n(left)}" y="{_n(at.y)}" width="{_n(width)}" '
        f'height="{_n(height)}" rx="{_n(round_ends)}"/>'
    ]
    y = at.y + PADDING / 2 + 16
    parts.append(_text("name", at.x, y, node.name, anchor="middle"))
    y += 4
    for mark in node.marks:
        y += DETAIL_LINE
        parts.append(_text("mark", left + PADDING, y, mark))
    for task in node.tasks:
        y += DETAIL_LINE
        # Spaces at the start of a text are dropped by those who show it, so nesting is a matter of place.
        nested = _mono_width(" " * (len(task) - len(task.lstrip(" "))), 11.0)
        parts.append(_text("detail", left + PADDING + nested, y, task.lstrip(" ")))
    return "\n".join(parts)


def _text(kind: str, x: float, y: float, content: str, anchor: str | None = None) -> str:
    place_at = f'x="{_n(x)}" y="{_n(y)}"' + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text class="{kind}" {place_at}>{_escaped(content)}</text>'


def _drawn_line(line: Line, route: Route) -> str:
    failure = " failure" if line.edge.route == "failure" else ""
    forks = " forks" if line.edge.forks else ""
    if line.link.source == line.link.target:
        start, upper, lower, end = route.points
        path = f"M{_p(start)} C{_p(upper)} {_p(lower)} {_p(Point(end.x + 7, end.y))}"
        head = _head(end, -1.0, 0.0, failure)
    else:
        down = 1.0 if route.points[-1].y >= route.points[0].y else -1.0
        path = _curve(route.points, down)
        head = _head(route.points[-1], 0.0, down, failure)
    return f'<path class="line{forks}{failure}" d="{path}"/>\n{head}'


def _curve(points: tuple[Point, ...], down: float) -> str:
    """Straight within layers, bent between them, and short of its end by the arrow head."""
    last = points[-1]
    points = (*points[:-1], Point(last.x, last.y - 7 * down))
    path = f"M{_p(points[0])}"
    for before, after in pairwise(points):
        if abs(before.x - after.x) < 0.5:
            path += f" L{_p(after)}"
        else:
            middle = (before.y + after.y) / 2
            path += f" C{_p(Point(before.x, middle))} {_p(Point(after.x, middle))} {_p(after)}"
    return path


def _head(tip: Point, across: float, down: float, failure: str) -> str:
    """A triangle that points in the direction (across, down)."""
    left = Point(tip.x - 9 * across + 4.5 * down, tip.y - 9 * down + 4.5 * across)
    right = Point(tip.x - 9 * across - 4.5 * down, tip.y - 9 * down - 4.5 * across)
    return f'<path class="head{failure}" d="M{_p(tip)} L{_p(left)} L{_p(right)} Z"/>'


def _drawn_label(line: Line, route: Route) -> str:
    if route.label is None:
        return ""
    width, height = line.link.label
    failure = " failure" if line.edge.route == "failure" else ""
    x, y = route.label
    parts = [
        f'<rect class="halo" x="{_n(x - width / 2)}" y="{_n(y - height / 2)}" '
        f'width="{_n(width)}" height="{_n(height)}"/>'
    ]
    for number, content in enumerate(line.label):
        parts.append(_text(f"label{failure}", x, y - height / 2 + 12 + LABEL_LINE * number, content))
    return "\n".join(parts)


def _p(point: Point) -> str:
    return f"{_n(point.x)},{_n(point.y)}"


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _escaped(text: str) -> str:
    shown = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return shown.replace('"', "&quot;")
