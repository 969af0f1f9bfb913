"""The pass over the parser's events that builds the node tree.

This is the hot path of every validation and every run: the common cases are written out in one loop
over local variables, and all that is rare (anchors, tags, merge keys, mistakes) is a method beside it.
Mistakes are collected and the pass goes on; only an exceeded limit ends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from noetl.playbook.diagnostics import Diagnostic, Position
from noetl.playbook.location import position_after
from noetl.playbook.nodes import Entry, Mapping, Node, Scalar, Sequence
from noetl.playbook.scalars import CONSTANTS, CORE_TAG_PREFIX, NUMBER_STARTS, number, tagged

# The type stubs make optional, on every event, what the C parser never leaves out.
_Event: TypeAlias = Any

_PROPERTIES = re.compile(r"(?:&[\w-]++|![^\s]*+|[ \t\r\n]++|#[^\r\n]*+)*+")
_CORE_TAGS = "!!str, !!int, !!float, !!bool, !!null, !!map and !!seq"
_MERGE = "<<"
_COMPLEX_KEY = "\0complex key"


class _Anchored(msgspec.Struct, eq=False):
    """What an alias stands for, and what it costs: nodes and levels, with aliases expanded.

    While the anchored collection is still being read, `size` is zero.
    """

    node: Node
    size: int = 0
    height: int = 0


class _Level:
    """An open collection: `items` of a sequence or, when that is None, `entries` of a mapping.

    `height` counts the levels found inside it so far, `nodes_before` the nodes in front of it.
    """

    __slots__ = ("anchored", "entries", "height", "items", "key", "nodes_before")

    def __init__(self, node: Node, anchored: _Anchored | None, nodes_before: int) -> None:
        self.entries = node.entries if isinstance(node, Mapping) else {}
        self.items = node.items if isinstance(node, Sequence) else None
        self.key: Scalar | None = None
        self.height = 0
        self.anchored = anchored
        self.nodes_before = nodes_before


class TreeBuilder:
    __slots__ = (
        "_anchors",
        "_complex_keys",
        "_max_depth",
        "_max_nodes",
        "_outer",
        "_refused_aliases",
        "_text",
        "diagnostics",
    )

    def __init__(self, text: str, max_depth: int, max_nodes: int) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._text = text
        self._max_depth = max_depth
        self._max_nodes = max_nodes
        self._outer: list[_Level] = []
        self._anchors: dict[str, _Anchored] = {}
        self._refused_aliases: set[Position] = set()
        self._complex_keys = 0

    def build(self, get_event: Callable[[], _Event]) -> Mapping | None:
        """The root mapping, or None; parser errors pass through."""
        text, outer, max_nodes, max_depth = self._text, self._outer, self._max_nodes, self._max_depth
        top = Sequence(1, 1, [])
        level = _Level(top, None, 0)
        items, entries = level.items, level.entries
        key: Any = None  # in a mapping, the Scalar whose value comes next
        nodes = 0
        while True:
            event = get_event()
            kind = type(event)
            node: Node
            levels_inside = 0
            if kind is ScalarEvent:
                is_key = key is None and items is None
                if event.anchor is None and event.tag is None:
                    value, style, mark = event.value, event.style, event.start_mark
                    if not style and not is_key:
                        if value in CONSTANTS:
                            value = CONSTANTS[value]
                        elif value[0] in NUMBER_STARTS:
                            value = self._number(event)
                    end = event.end_mark.index
                    node = Scalar(mark.line + 1, mark.column + 1, value, style, mark.index, end, text)
                else:
                    node = self._decorated_scalar(event, is_key)
                nodes += 1
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                level = self._close(level, nodes)
                items, entries, key = level.items, level.entries, level.key
                continue
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                node = self._collection(event)
                nodes += 1
                levels_inside = 1
            elif kind is AliasEvent:
                node, size, levels_inside = self._aliased(event)
                nodes += size
                level.height = max(level.height, levels_inside)
            elif kind is StreamEndEvent or (kind is DocumentStartEvent and top.items):
                return self._root(top.items, event)
            else:
                continue
            if nodes > max_nodes or len(outer) + levels_inside > max_depth:
                self._report_limit(event, nodes)
                return None
            if items is not None:
                items.append(node)
            elif key is None:
                key = node if kind is ScalarEvent else self._key_from(node, event)
            else:
                if key.value not in entries:
                    entries[key.value] = Entry(key, node)
                else:
                    self._report_duplicate(key, entries[key.value].key)
                key = None
            if kind is MappingStartEvent or kind is SequenceStartEvent:
                level.key = key
                level = self._open(level, event, node, nodes)
                items, entries, key = level.items, level.entries, None

    def _collection(self, event: _Event) -> Node:
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        is_mapping = type(event) is MappingStartEvent
        if event.tag is not None and event.tag != CORE_TAG_PREFIX + ("map" if is_mapping else "seq"):
            self._report_tag(event, "a mapping" if is_mapping else "a list")
        return Mapping(line, column, {}) if is_mapping else Sequence(line, column, [])

    def _open(self, outer: _Level, event: _Event, node: Node, nodes: int) -> _Level:
        self._outer.append(outer)
        anchored = None
        if event.anchor is not None:
            anchored = self._anchors[event.anchor] = _Anchored(node)
        return _Level(node, anchored, nodes - 1)

    def _close(self, level: _Level, nodes: int) -> _Level:
        """Settle what is known only at the end of a collection, and go back to the one around it."""
        if level.items is None:
            if self._complex_keys:
                for name in [name for name in level.entries if name.startswith(_COMPLEX_KEY)]:
                    del level.entries[name]
            if _MERGE in level.entries:
                self._merge(level.entries)
        height = level.height + 1
        if level.anchored is not None:
            level.anchored.size = nodes - level.nodes_before
            level.anchored.height = height
        outer = self._outer.pop()
        outer.height = max(outer.height, height)
        return outer

    def _root(self, roots: list[Node], event: _Event) -> Mapping | None:
        root = roots[0] if roots else None
        if root is None or (isinstance(root, Scalar) and root.start == root.end):
            self._report("yaml.empty", "The file is empty.", Position(1, 1), "A playbook is a mapping.")
        elif not isinstance(root, Mapping):
            kind = "a list" if isinstance(root, Sequence) else "a single value"
            message = f"A playbook must be a mapping, but this file holds {kind}."
            self._report("yaml.root", message, Position(root.line, root.column), "Begin with `key: value`.")
        if type(event) is DocumentStartEvent:
            message = "A second YAML document begins here, but a file holds one playbook."
            self._report("yaml.documents", message, _place(event), "Move it to a file of its own.")
        return root if isinstance(root, Mapping) else None

    def _report_limit(self, event: _Event, nodes: int) -> None:
        if nodes > self._max_nodes:
            message = f"The file, with aliases expanded, has more than {self._max_nodes} nodes (max_nodes)."
            hint = "Use fewer aliases, or keep large data outside the playbook."
            self._report("yaml.too_many_nodes", message, _place(event), hint)
        else:
            message = f"Values are nested more than {self._max_depth} levels deep (max_depth)."
            self._report("yaml.too_deep", message, _place(event), "Flatten the data.")

    # Scalars

    def _number(self, event: _Event) -> int | float | str:
        value = number(event.value)
        if value is None:
            message = "This number is too large to be held."
            self._report("yaml.number", message, _place(event), "Put it in quotes if it is meant as text.")
            return str(event.value)
        return value

    def _decorated_scalar(self, event: _Event, is_key: bool) -> Scalar:
        """A scalar with an anchor, a tag or both, which stand before its first character."""
        first, end = event.start_mark.index, event.end_mark.index
        found = _PROPERTIES.match(self._text, first)
        start = min(found.end(), end) if found else first
        line, column = position_after(self._text, first, _place(event), start)
        value = self._tagged(event) if event.tag is not None else event.value
        if event.tag is None and not event.style:
            value = CONSTANTS[value] if value in CONSTANTS else self._number(event)
        node = Scalar(line, column, value, event.style, start, end, self._text)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(node, size=1)
        return Scalar(line, column, event.value, event.style, start, end, self._text) if is_key else node

    def _tagged(self, event: _Event) -> bool | int | float | str | None:
        kind = event.tag.removeprefix(CORE_TAG_PREFIX)
        if kind == event.tag or kind not in ("str", "int", "float", "bool", "null"):
            self._report_tag(event, "a single value")
            return str(event.value)
        try:
            return tagged(kind, event.value)
        except ValueError:
            message = f"`{_shortened(event.value)}` is no value for the tag !!{kind}."
            self._report("yaml.tag", message, _place(event), "Remove the tag, or correct the value.")
            return str(event.value)

    def _report_tag(self, event: _Event, kind: str) -> None:
        tag = event.tag
        if tag.startswith(CORE_TAG_PREFIX):
            tag = "!!" + tag.removeprefix(CORE_TAG_PREFIX)
        message = f"The tag {_shortened(tag)} is not supported on {kind}."
        self._report("yaml.tag", message, _place(event), f"Remove it; the known tags are {_CORE_TAGS}.")

    # Aliases, keys and merging

    def _aliased(self, event: _Event) -> tuple[Node, int, int]:
        """The node that an alias stands for, with its size and its number of levels."""
        target = self._anchors.get(event.anchor)
        if target is not None and target.size:
            return target.node, target.size, target.height
        name = _shortened(event.anchor)
        if target is None:
            message = f"The alias *{name} refers to an anchor that is not defined above it."
            hint = f"Define &{name} first, or put the value in quotes."
        else:
            message = f"The alias *{name} stands inside the value that it refers to."
            hint = "A value cannot contain itself."
        place = _place(event)
        self._report("yaml.alias", message, place, hint)
        self._refused_aliases.add(place)
        start, end = event.start_mark.index, event.end_mark.index
        return Scalar(*place, None, "", start, end, self._text), 1, 0

    def _key_from(self, node: Node, event: _Event) -> Scalar:
        """The key for an alias or a collection in the place of a key."""
        place = _place(event)
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(node, Scalar):
            return Scalar(*place, node.written(), "", start, end, self._text)
        if start and self._text[start - 1 : start + 1] == "{{":
            message = "A value that begins with {{ must be quoted, or YAML takes it for a mapping."
            braces = Position(place.line, place.column - 1)
            self._report("yaml.key", message, braces, 'Write "{{ ... }}".')
        else:
            message = "A mapping key must be text, not a list or a mapping."
            self._report("yaml.key", message, place, "Write the key as text.")
        self._complex_keys += 1
        return Scalar(*place, f"{_COMPLEX_KEY} {self._complex_keys}", "", start, end, self._text)

    def _report_duplicate(self, key: Scalar, first: Scalar) -> None:
        name = _shortened(str(key.value))
        message = f"The key `{name}` is already given on line {first.line}."
        hint = "Remove one of the two."
        if name == _MERGE:
            hint = "Merge several mappings with a list: `<<: [*first, *second]`."
        self._report("yaml.duplicate_key", message, Position(key.line, key.column), hint)

    def _merge(self, entries: dict[str, Entry]) -> None:
        """Put the entries of the merged mappings where `<<` stands; explicit and earlier ones win."""
        merge = entries[_MERGE]
        if merge.key.style:
            return
        sources = merge.value.items if isinstance(merge.value, Sequence) else [merge.value]
        merged: dict[str, Entry] = {}
        for name, entry in entries.items():
            if name != _MERGE:
                merged[name] = entry
                continue
            for source in sources:
                for inherited, value in self._merge_source(source):
                    if inherited not in entries:
                        merged.setdefault(inherited, value)
        entries.clear()
        entries.update(merged)

    def _merge_source(self, source: Node) -> Iterable[tuple[str, Entry]]:
        if isinstance(source, Mapping):
            return source.entries.items()
        place = Position(source.line, source.column)
        if place not in self._refused_aliases:
            message = "Only mappings can be merged with `<<`."
            self._report("yaml.key", message, place, "Give an alias of a mapping, or a list of them.")
        return ()

    def _report(self, code: str, message: str, place: Position, hint: str) -> None:
        line, column = place
        self.diagnostics.append(
            Diagnostic(severity="error", code=code, message=message, line=line, column=column, hint=hint)
        )


def _place(event: _Event) -> Position:
    mark = event.start_mark
    return Position(mark.line + 1, mark.column + 1)


def _shortened(text: str) -> str:
    """Enough of the text to recognise it in a one-line message."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."
