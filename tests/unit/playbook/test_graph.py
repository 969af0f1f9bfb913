"""The graph of a playbook, and its drawings."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest

from noetl.playbook.drawing.dot import dot
from noetl.playbook.drawing.layout import Link, Size, place
from noetl.playbook.drawing.mermaid import mermaid
from noetl.playbook.drawing.svg import svg
from noetl.playbook.drawing.text import text
from noetl.playbook.graph import Graph, GraphEdge, GraphNode, graph_of, reading_order
from noetl.playbook.load import load
from noetl.tools.registry import builtin_kinds
from tests.golden.compare import EXAMPLES, PLAYBOOKS, assert_golden

FORMATS = {"text": text, "mermaid": mermaid, "dot": dot, "svg": svg}
ENDINGS = {"text": "txt", "mermaid": "mmd", "dot": "dot", "svg": "svg"}
DRAWN = [*sorted(PLAYBOOKS.glob("*.yaml")), EXAMPLES / "fan_out_join.yaml", EXAMPLES / "nested_loops.yaml"]

ONE_STEP = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: one}\nworkflow:\n"


def graph_from(source: str | Path) -> Graph:
    data = source.read_bytes() if isinstance(source, Path) else source.encode()
    loaded = load(data, builtin_kinds())
    assert loaded.playbook is not None, loaded.diagnostics
    return graph_of(loaded.playbook)


def chain_of(count: int) -> Graph:
    """Steps in a row, each with a second way to one alarm."""
    names = [f"step_{number}" for number in range(count)]
    edges = [GraphEdge(source=a, target=b) for a, b in pairwise(names)]
    edges += [GraphEdge(source=name, target="alarm", label="on failure", route="failure") for name in names]
    nodes = [GraphNode(name=name, is_entry=name == "step_0") for name in [*names, "alarm"]]
    return Graph(name="chain", dialect="canonical", nodes=tuple(nodes), edges=tuple(edges))


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.stem)
@pytest.mark.parametrize("form", FORMATS)
def test_a_playbook_is_drawn_as_it_was_agreed(file: Path, form: str) -> None:
    assert_golden(f"graph/{file.stem}.{ENDINGS[form]}", FORMATS[form](graph_from(file)))


def test_guards_that_everybody_writes_are_told_in_words() -> None:
    graph = graph_from(
        ONE_STEP
        + "  - step: start\n    tool: {kind: noop}\n    next:\n      arcs:\n"
        + "        - {step: a, when: \"{{ event.name == 'step.failed' }}\"}\n"
        + "        - {step: b}\n"
        + "  - {step: a, tool: {kind: noop}}\n  - {step: b, tool: {kind: noop}}\n"
    )
    assert [(edge.target, edge.label, edge.route) for edge in graph.edges] == [
        ("a", "on failure", "failure"),
        ("b", "otherwise", "always"),
    ]


def test_an_undefined_end_is_a_node_of_its_own() -> None:
    graph = graph_from(ONE_STEP + "  - {step: start, tool: {kind: noop}, next: {arcs: [{step: end}]}}\n")
    assert [(node.name, node.role) for node in graph.nodes] == [("start", "step"), ("end", "end")]
    assert graph.steps == 1


def test_routes_of_a_case_and_structural_ones_are_edges_alike() -> None:
    graph = graph_from(PLAYBOOKS / "v2_order.yaml")
    ways = {(edge.target, edge.label, edge.forks) for edge in graph.edges if edge.source == "start"}
    assert ways == {
        ("alarm", "on error", False),
        ("pay", "after the call", True),
        ("pack", "after the call", True),
        ("end", "otherwise", False),
    }


def test_a_computed_target_is_shown_as_its_expression() -> None:
    graph = graph_from(
        ONE_STEP
        + "  - step: start\n    tool: {kind: noop}\n    case:\n"
        + "      - when: \"{{ event.name == 'call.done' }}\"\n"
        + '        then: {next: [{step: "{{ workload.target }}"}]}\n'
        + "    next: [{step: other}]\n"
        + "  - {step: other, tool: {kind: noop}}\n"
    )
    assert [(node.name, node.role) for node in graph.nodes if node.role != "step"] == [
        ("{{ workload.target }}", "computed")
    ]


def test_a_step_stands_after_everything_that_leads_to_it() -> None:
    order, back = reading_order(graph_from(EXAMPLES / "fan_out_join.yaml"))
    assert order == ["start", "credit", "stock", "customs", "decide", "ship", "refuse"]
    assert len(back) == 1


def test_an_unreachable_step_is_drawn_and_said_to_be_so() -> None:
    graph = graph_from(
        ONE_STEP + "  - {step: start, tool: {kind: noop}}\n  - {step: b, tool: {kind: noop}}\n"
    )
    assert "b   (nothing leads here)" in text(graph)


def test_no_text_of_a_playbook_reaches_a_terminal_as_a_control_character() -> None:
    assert "\x1b" not in text(graph_from(PLAYBOOKS / "escapes.yaml"))


def test_a_playbook_without_steps_can_be_drawn() -> None:
    empty = Graph(name="nothing", dialect="canonical", nodes=(), edges=())
    for draw in FORMATS.values():
        assert draw(empty)


@pytest.mark.parametrize("form", FORMATS)
def test_ten_thousand_steps_are_drawn(form: str) -> None:
    drawn = FORMATS[form](chain_of(10_000))
    assert drawn.count("step_9999") >= 1


# --- the formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.stem)
def test_an_svg_is_well_formed_and_loads_nothing(file: Path) -> None:
    root = ElementTree.fromstring(svg(graph_from(file)))
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "title", "style", "rect", "g", "path", "text"}
    assert not any("href" in name for element in root.iter() for name in element.attrib)


def test_names_come_through_the_escapes_of_an_svg() -> None:
    root = ElementTree.fromstring(svg(graph_from(PLAYBOOKS / "escapes.yaml")))
    shown = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {'say "hi" <b>', "back\\slash", "été 東京"} <= shown


def test_no_label_of_a_mermaid_drawing_can_be_ended_from_within() -> None:
    for line in mermaid(graph_from(PLAYBOOKS / "escapes.yaml")).splitlines():
        assert line.count('"') in (0, 2)
        assert "`" not in line
        assert "|\"'" not in line


def test_a_step_called_end_does_not_end_a_mermaid_drawing() -> None:
    drawn = mermaid(graph_from(PLAYBOOKS / "v1_cities.yaml"))
    assert not re.search(r"^\s*end\b", drawn, re.MULTILINE)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.stem)
def test_graphviz_accepts_a_dot_drawing(file: Path) -> None:
    drawn = dot(graph_from(file)).encode()
    subprocess.run(["dot", "-Tsvg"], input=drawn, check=True, capture_output=True)


# --- the layout ---------------------------------------------------------------------------------------


def overlaps(left: tuple[float, float, float, float], right: tuple[float, float, float, float]) -> bool:
    return left[0] < right[2] and right[0] < left[2] and left[1] < right[3] and right[1] < left[3]


@pytest.mark.parametrize("file", DRAWN, ids=lambda file: file.stem)
def test_boxes_and_labels_of_a_drawing_do_not_overlap(file: Path) -> None:
    graph = graph_from(file)
    order, back = reading_order(graph)
    index = {node.name: number for number, node in enumerate(graph.nodes)}
    boxes = [Size(60.0 + 7 * number, 40.0 + 3 * number) for number in range(len(graph.nodes))]
    label = Size(90.0, 20.0)
    links = [
        Link(index[edge.source], index[edge.target], label, number in back)
        for number, edge in enumerate(graph.edges)
    ]
    page = place(boxes, links, [index[name] for name in order])
    areas = [
        (at.x - size.width / 2, at.y, at.x + size.width / 2, at.y + size.height)
        for at, size in zip(page.boxes, boxes, strict=True)
    ]
    areas += [
        (r.label.x - 45, r.label.y - 10, r.label.x + 45, r.label.y + 10) for r in page.routes if r.label
    ]
    assert len(areas) == len(boxes) + len(links)
    for number, area in enumerate(areas):
        assert area[0] >= -0.01
        assert area[2] <= page.width + 0.01
        assert not any(overlaps(area, other) for other in areas[number + 1 :])


def test_every_way_but_those_back_leads_down_the_page() -> None:
    graph = graph_from(EXAMPLES / "fan_out_join.yaml")
    order, back = reading_order(graph)
    index = {node.name: number for number, node in enumerate(graph.nodes)}
    links = [
        Link(index[edge.source], index[edge.target], Size(0.0, 0.0), number in back)
        for number, edge in enumerate(graph.edges)
    ]
    page = place([Size(80.0, 40.0)] * len(graph.nodes), links, [index[name] for name in order])
    for link, route in zip(links, page.routes, strict=True):
        assert (route.points[-1].y < route.points[0].y) == link.leads_back


def test_a_line_that_passes_a_layer_passes_beside_its_boxes() -> None:
    # 0 leads to 1, 1 to 2, and 0 to 2 past 1.
    none = Size(0.0, 0.0)
    links = [Link(0, 1, none, False), Link(1, 2, none, False), Link(0, 2, none, False)]
    page = place([Size(80.0, 40.0), Size(200.0, 40.0), Size(80.0, 40.0)], links, [0, 1, 2])
    box = page.boxes[1]
    beside = [point for point in page.routes[2].points if box.y <= point.y <= box.y + 40]
    assert beside
    assert all(abs(point.x - box.x) > 100 for point in beside)
