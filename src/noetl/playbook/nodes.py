"""The node tree of a YAML file: scalars, sequences and mappings that know where they are written.

Nodes are cheap records, made by the thousand for every playbook, so they are plain structs without
behaviour beyond lookup and location. Aliases share nodes; nothing may change a tree after it is read.
"""

from __future__ import annotations

import msgspec

from noetl.playbook.diagnostics import Position
from noetl.playbook.location import position_after, value_offsets

# Trees have no cycles (the reader refuses them), so the collector need not visit their nodes.


class Node(msgspec.Struct, eq=False, gc=False):
    """`line` and `column` count from 1 and name the node's first character."""

    line: int
    column: int


class Scalar(Node, eq=False, gc=False):
    """`style` is the opening character of the notation, or empty for a plain scalar.

    `start` and `end` bound the raw scalar in `text`, the text of the whole file. As a mapping key,
    `value` is always the text as written.
    """

    value: bool | int | float | str | None
    style: str
    start: int
    end: int
    text: str

    def locate(self, offset: int) -> Position:
        """Where character `offset` of the value stands in the file."""
        value = self.value if isinstance(self.value, str) else self.written()
        offsets = value_offsets(self.text, self.start, self.end, self.style, value)
        target = offsets[max(0, min(offset, len(offsets) - 1))]
        return position_after(self.text, self.start, Position(self.line, self.column), target)

    def written(self) -> str:
        """The text of a value as it stands in the file, before it became a number or a constant."""
        if isinstance(self.value, str):
            return self.value
        return self.text[self.start : self.end].strip("'\"")

    def __repr__(self) -> str:
        return f"Scalar({self.value!r} at {self.line}:{self.column})"


class Sequence(Node, eq=False, gc=False):
    items: list[Node]


class Entry(msgspec.Struct, eq=False, gc=False):
    key: Scalar
    value: Node


class Mapping(Node, eq=False, gc=False):
    """`entries` keeps the order of the file."""

    entries: dict[str, Entry]

    def get(self, name: str) -> Node | None:
        entry = self.entries.get(name)
        return None if entry is None else entry.value


def plain(node: Node) -> object:
    """The node's data without positions; nodes shared through aliases become separate copies."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Mapping):
        return {name: plain(entry.value) for name, entry in node.entries.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    raise TypeError(f"not a node: {node!r}")
