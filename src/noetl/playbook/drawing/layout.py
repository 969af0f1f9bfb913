"""Places boxes and lines on a page in layers, from top to bottom, without overlaps.

The classic four steps: edges that lead back are turned around (`reading_order` found them), each box
goes to the layer of its longest way from the top, boxes of a layer are ordered so that lines cross
little (barycentres), and then moved sideways towards their neighbours. An edge that passes layers is a
chain of points in them, and its label is one of these points, with a size of its own: so a label can no
more overlap a box than a box can. This module knows sizes, not what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

SIDE_GAP: Final = 36.0
LINE_GAP: Final = 22.0
LAYER_GAP: Final = 26.0
ORDER_SWEEPS: Final = 12
PLACE_SWEEPS: Final = 10
OWN_LOOP_WIDTH: Final = 30.0


class Size(NamedTuple):
    width: float
    height: float


class Link(NamedTuple):
    """An edge between boxes by their index; `label` has no width where there is none."""

    source: int
    target: int
    label: Size
    leads_back: bool


class Point(NamedTuple):
    x: float
    y: float


@dataclass(slots=True, eq=False)
class Cell:
    """A box, a label, or the place where a line crosses a layer."""

    size: Size
    layer: int
    link: int | None = None
    above: list[Cell] = field(default_factory=list)
    below: list[Cell] = field(default_factory=list)
    rank: int = 0
    x: float = 0.0
    top: float = 0.0

    @property
    def middle(self) -> float:
        return self.top + self.size.height / 2


class Route(NamedTuple):
    """The points of a line from its source to its target, and the middle of its label."""

    points: tuple[Point, ...]
    label: Point | None


class Layout(NamedTuple):
    """Boxes by the middle of their top edge."""

    width: float
    height: float
    boxes: tuple[Point, ...]
    routes: tuple[Route, ...]


def place(boxes: Sequence[Size], links: Sequence[Link], order: Sequence[int]) -> Layout:
    """`order` lists all boxes so that every link that does not lead back goes from earlier to later."""
    layers = _layered(len(boxes), links, order)
    cells = [Cell(size, 2 * layer) for size, layer in zip(_with_own_loops(boxes, links), layers, strict=True)]
    rows: list[list[Cell]] = [[] for _ in range(2 * max(layers, default=0) + 1)]
    for index in order:
        rows[cells[index].layer].append(cells[index])
    chains = [_chain(number, link, cells, rows) for number, link in enumerate(links)]
    _reduce_crossings(rows)
    height = _stack(rows)
    _move_sideways(rows)
    left = min((cell.x - cell.size.width / 2 for row in rows for cell in row), default=0.0)
    for row in rows:
        for cell in row:
            cell.x -= left
    width = max((cell.x + cell.size.width / 2 for row in rows for cell in row), default=0.0)
    routes = _routes(boxes, links, cells, chains, rows)
    return Layout(width, height, tuple(Point(cell.x, cell.top) for cell in cells), tuple(routes))


def spans(count: int, links: Sequence[Link], order: Sequence[int]) -> list[int]:
    """How many layers each link passes on its way."""
    layers = _layered(count, links, order)
    return [abs(layers[link.source] - layers[link.target]) for link in links]


def _with_own_loops(boxes: Sequence[Size], links: Sequence[Link]) -> list[Size]:
    """Room on both sides of a box that leads to itself: the box stays in the middle of its cell."""
    sizes = list(boxes)
    for link in links:
        if link.source == link.target:
            box = boxes[link.source]
            sizes[link.source] = Size(box.width + 2 * (OWN_LOOP_WIDTH + link.label.width), box.height)
    return sizes


# --- layers --------------------------------------------------------------------------------------------


def _layered(count: int, links: Sequence[Link], order: Sequence[int]) -> list[int]:
    """The longest way from the top; then each box that nothing holds is pulled down to what it leads to."""
    layers = [0] * count
    leaving: list[list[int]] = [[] for _ in range(count)]
    arriving = [0] * count
    for link in links:
        if link.source != link.target:
            upper, lower = _ends(link)
            leaving[upper].append(lower)
            arriving[lower] += 1
    for index in _topological(count, leaving, arriving, order):
        for lower in leaving[index]:
            layers[lower] = max(layers[lower], layers[index] + 1)
    for index in order:
        if not arriving[index] and leaving[index]:
            layers[index] = min(layers[lower] for lower in leaving[index]) - 1
    return layers


def _topological(
    count: int, leaving: list[list[int]], arriving: list[int], order: Sequence[int]
) -> Iterable[int]:
    waiting = list(arriving)
    ready = [index for index in reversed(order) if not waiting[index]]
    while ready:
        index = ready.pop()
        yield index
        for lower in leaving[index]:
            waiting[lower] -= 1
            if not waiting[lower]:
                ready.append(lower)


def _ends(link: Link) -> tuple[int, int]:
    return (link.target, link.source) if link.leads_back else (link.source, link.target)


def _chain(number: int, link: Link, cells: list[Cell], rows: list[list[Cell]]) -> list[Cell]:
    """The cells between the ends of a link, downwards; boxes stand in even layers, labels in odd ones."""
    if link.source == link.target:
        return []
    upper, lower = (cells[end] for end in _ends(link))
    label_layer = upper.layer + 1 if not link.leads_back else lower.layer - 1
    chain = []
    previous = upper
    for layer in range(upper.layer + 1, lower.layer):
        size = link.label if layer == label_layer and link.label.width else Size(0.0, 0.0)
        cell = Cell(size, layer, number, above=[previous])
        previous.below.append(cell)
        rows[layer].append(cell)
        chain.append(cell)
        previous = cell
    previous.below.append(lower)
    lower.above.append(previous)
    return chain


# --- order within a layer --------------------------------------------------------------------------------


def _reduce_crossings(rows: list[list[Cell]]) -> None:
    for row in rows:
        _rank(row)
    best = [list(row) for row in rows]
    fewest = _crossings(rows)
    for sweep in range(ORDER_SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        for row in rows if downwards else reversed(rows):
            row.sort(key=lambda cell: _barycentre(cell, cell.above if downwards else cell.below))
            _rank(row)
        crossings = _crossings(rows)
        if crossings < fewest:
            fewest, best = crossings, [list(row) for row in rows]
    for row, ordered in zip(rows, best, strict=True):
        row[:] = ordered
        _rank(row)


def _rank(row: list[Cell]) -> None:
    for rank, cell in enumerate(row):
        cell.rank = rank


def _barycentre(cell: Cell, neighbours: list[Cell]) -> float:
    return sum(n.rank for n in neighbours) / len(neighbours) if neighbours else float(cell.rank)


def _crossings(rows: list[list[Cell]]) -> int:
    """Inversions among the lower ends of the lines between neighbouring layers, counted by a Fenwick tree."""
    total = 0
    for row, following in pairwise(rows):
        counts = [0] * (len(following) + 1)
        seen = 0
        for cell in row:
            ends = sorted(lower.rank for lower in cell.below)
            for rank in ends:
                index, smaller_or_equal = rank + 1, 0
                while index:
                    smaller_or_equal += counts[index]
                    index -= index & -index
                total += seen - smaller_or_equal
            for rank in ends:
                index = rank + 1
                while index < len(counts):
                    counts[index] += 1
                    index += index & -index
                seen += 1
    return total


# --- coordinates -----------------------------------------------------------------------------------------


def _stack(rows: list[list[Cell]]) -> float:
    """Gives each layer its height; the cells of a layer share their middle. Returns the height of all."""
    top = 0.0
    for number, row in enumerate(rows):
        height = max((cell.size.height for cell in row), default=0.0)
        for cell in row:
            cell.top = top + (height - cell.size.height) / 2
        top += height + (LAYER_GAP if number < len(rows) - 1 else 0.0)
    return top


def _move_sideways(rows: list[list[Cell]]) -> None:
    for row in rows:
        _settle(row, [0.0] * len(row), [1.0] * len(row))
    for sweep in range(PLACE_SWEEPS):
        downwards = sweep % 2 == 0
        for row in rows if downwards else reversed(rows):
            wanted, weights = [], []
            for cell in row:
                near = cell.above if downwards else cell.below
                far = cell.below if downwards else cell.above
                around = near or far
                wanted.append(sum(n.x for n in around) / len(around) if around else cell.x)
                weights.append(_pull(cell, around))
            _settle(row, wanted, weights)


def _pull(cell: Cell, around: list[Cell]) -> float:
    """A line that passes should be straight before a box is centred over its neighbours, or a label."""
    if cell.link is None:
        return float(len(around)) or 0.1
    return 8.0 if not cell.size.width and all(other.link is not None for other in around) else 2.0


def _settle(row: list[Cell], wanted: list[float], weights: list[float]) -> None:
    """Puts the cells as near to where they want to be as their order and sizes allow.

    Least squares under an order is isotonic regression: neighbours that would overlap are pooled into a group
    that moves as one, to the weighted mean of what its members want.
    """
    groups: list[tuple[float, float, int]] = []  # mean, weight, number of members
    offsets: list[float] = []
    offset = 0.0
    for index, cell in enumerate(row):
        if index:
            before = row[index - 1]
            gap = SIDE_GAP if before.link is None and cell.link is None else LINE_GAP
            offset += (before.size.width + cell.size.width) / 2 + gap
        offsets.append(offset)
        mean, weight, members = wanted[index] - offset, weights[index], 1
        while groups and groups[-1][0] > mean:
            other_mean, other_weight, other_members = groups.pop()
            mean = (mean * weight + other_mean * other_weight) / (weight + other_weight)
            weight += other_weight
            members += other_members
        groups.append((mean, weight, members))
    means = (mean for mean, _, members in groups for _ in range(members))
    for cell, mean, shift in zip(row, means, offsets, strict=True):
        cell.x = mean + shift


# --- lines -------------------------------------------------------------------------------------------------


def _routes(
    boxes: Sequence[Size],
    links: Sequence[Link],
    cells: list[Cell],
    chains: list[list[Cell]],
    rows: list[list[Cell]],
) -> Iterable[Route]:
    bands = []
    for row in rows:
        tallest = max(row, key=lambda cell: cell.size.height, default=None)
        bands.append((0.0, 0.0) if tallest is None else (tallest.top, tallest.top + tallest.size.height))
    ports = _ports(boxes, links, cells, chains)
    for number, (link, chain) in enumerate(zip(links, chains, strict=True)):
        if link.source == link.target:
            yield _own_loop(boxes[link.source], cells[link.source], link)
            continue
        upper, lower = (cells[end] for end in _ends(link))
        leave, arrive = ports[number]
        points = [Point(leave, upper.top + upper.size.height)]
        xs = [*(cell.x for cell in chain[1:]), arrive]
        for cell, following in zip(chain, xs, strict=True):
            if _is_free(cell, rows[cell.layer], points[-1].x, following):
                continue
            top, bottom = bands[cell.layer]
            # Straight through the whole layer: a slanted line would cut the corners of tall boxes.
            points += [Point(cell.x, top), Point(cell.x, bottom)]
        points.append(Point(arrive, lower.top))
        labels = [Point(cell.x, cell.middle) for cell in chain if cell.size.width]
        if link.leads_back:
            points.reverse()
        yield Route(tuple(points), labels[0] if labels else None)


def _is_free(cell: Cell, row: list[Cell], before: float, after: float) -> bool:
    """Whether a line may pass a layer between boxes without a bend there: nothing stands in its way."""
    if cell.size.width or cell.layer % 2 == 0:
        return False
    left, right = min(before, after) - 6, max(before, after) + 6
    return all(
        other.x + other.size.width / 2 < left or other.x - other.size.width / 2 > right
        for other in row
        if other.size.width
    )


def _ports(
    boxes: Sequence[Size], links: Sequence[Link], cells: list[Cell], chains: list[list[Cell]]
) -> dict[int, tuple[float, float]]:
    """Where each line leaves its upper box and meets its lower one, so that they do not cross there."""
    leaving: dict[int, list[tuple[float, int]]] = {}
    arriving: dict[int, list[tuple[float, int]]] = {}
    for number, (link, chain) in enumerate(zip(links, chains, strict=True)):
        if link.source != link.target:
            upper, lower = _ends(link)
            leaving.setdefault(upper, []).append((chain[0].x, number))
            arriving.setdefault(lower, []).append((chain[-1].x, number))
    starts = _spread(leaving, boxes, cells)
    ends = _spread(arriving, boxes, cells)
    return {number: (starts[number], ends[number]) for number in starts}


def _spread(
    by_box: dict[int, list[tuple[float, int]]], boxes: Sequence[Size], cells: list[Cell]
) -> dict[int, float]:
    found = {}
    for box, lines in by_box.items():
        step = min(24.0, boxes[box].width * 0.8 / len(lines))
        first = cells[box].x - step * (len(lines) - 1) / 2
        for position, (_, number) in enumerate(sorted(lines)):
            found[number] = first + step * position
    return found


def _own_loop(box: Size, cell: Cell, link: Link) -> Route:
    """A step that leads to itself: the line leaves and enters at the right, within the width kept for it."""
    right = cell.x + box.width / 2
    upper, lower = cell.middle - 9, cell.middle + 9
    points = (Point(right, upper), Point(right + 22, upper), Point(right + 22, lower), Point(right, lower))
    label = Point(right + OWN_LOOP_WIDTH + link.label.width / 2, cell.middle) if link.label.width else None
    return Route(points, label)
