"""Positions: every node, and every character of every scalar, is found where it is written."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from noetl.playbook.diagnostics import Position
from noetl.playbook.location import value_offsets
from noetl.playbook.reader import Mapping, Node, Scalar, Sequence, read

NAMED_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r",
    "e": "\x1b", " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028",
    "P": "\u2029",
}  # fmt: skip


def lines_of(text: str) -> list[str]:
    """Lines as an editor counts them, with a mark in the place of each line break."""
    return [line + "\n" for line in re.split(r"\r\n|\r|\n", text)]


def mapping(data: str | bytes) -> Mapping:
    document = read(data if isinstance(data, bytes) else data.encode())
    assert document.diagnostics == []
    assert isinstance(document.root, Mapping)
    return document.root


def scalar(data: str | bytes, name: str = "k") -> Scalar:
    node = mapping(data).get(name)
    assert isinstance(node, Scalar)
    return node


def place(node: Node) -> tuple[int, int]:
    return node.line, node.column


def assert_every_character_is_located(node: Scalar) -> None:
    value = node.value
    assert isinstance(value, str)
    offsets = value_offsets(node.text, node.start, node.end, node.style, value)
    assert len(offsets) == len(value) + 1
    assert all(before < after for before, after in pairwise(offsets))
    lines = lines_of(node.text)
    for index, character in enumerate(value):
        line, column = node.locate(index)
        rest = lines[line - 1][column - 1 :]
        if node.style == '"' and rest[0] == "\\":
            code = rest[2 : {"x": 4, "u": 6, "U": 10}.get(rest[1], 0)]
            assert character == (chr(int(code, 16)) if code else NAMED_ESCAPES[rest[1]])
        elif rest == "\n":
            assert character in " \n"
        else:
            assert character == rest[0]


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_nodes_know_the_line_and_column_of_their_first_character(line_break: str) -> None:
    text = line_break.join(
        ["# é😀", "naïve: 😀 x", "list:", "  - 'é': [1, {deep: 2}]", "  - |", "    text", "z:", ""]
    )
    root = mapping(text)
    assert place(root) == (2, 1)
    assert place(root.entries["naïve"].key) == (2, 1)
    assert place(root.entries["naïve"].value) == (2, 8)
    items = root.get("list")
    assert isinstance(items, Sequence)
    assert place(items) == (4, 3)
    first = items.items[0]
    assert isinstance(first, Mapping)
    assert place(first.entries["é"].key) == (4, 5)
    pair = first.get("é")
    assert isinstance(pair, Sequence)
    assert [place(item) for item in pair.items] == [(4, 11), (4, 14)]
    assert place(items.items[1]) == (5, 5)
    assert place(root.entries["z"].value) == (7, 3)


def test_the_missing_value_of_a_key_stands_on_the_line_of_the_key() -> None:
    assert place(scalar("k:\n\n# comment\n\nother: 1\n")) == (1, 3)


def test_a_byte_order_mark_does_not_shift_positions() -> None:
    root = mapping(b"\xef\xbb\xbfname: x\nother: y\n")
    assert place(root.entries["name"].key) == (1, 1)
    assert place(root.entries["other"].value) == (2, 8)


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029"])
def test_unicode_separators_are_ordinary_characters_and_start_no_line(separator: str) -> None:
    root = mapping(
        f"a: x{separator}y  # {separator} \nb: 'p{separator} q'\nc: |\n  l{separator}m\nd{separator}: 1\n"
    )
    values = [entry.value for entry in root.entries.values()]
    assert [value.value for value in values if isinstance(value, Scalar)] == [
        f"x{separator}y", f"p{separator} q", f"l{separator}m\n", 1,
    ]  # fmt: skip
    assert [value.line for value in values] == [1, 2, 3, 5]
    assert f"d{separator}" in root.entries


def test_an_anchor_or_tag_is_not_part_of_the_scalar() -> None:
    node = scalar("k: &name !!str   hello\n")
    assert node.text[node.start : node.end] == "hello"
    assert place(node) == (1, 18)
    assert node.locate(1) == Position(1, 19)
    below = scalar("k: !!str # why\n  &a\n  'it''s'\n")
    assert below.value == "it's"
    assert below.locate(3) == Position(3, 8)


@pytest.mark.parametrize(
    ("text", "offset", "position"),
    [
        ("k: plain {{ x }}\n", 9, (1, 13)),
        ("k: one\n   two\n", 3, (1, 7)),
        ("k: one\n   two\n", 4, (2, 4)),
        ("k: one\n\n   two\n", 3, (2, 1)),
        ("k: 'it''s'\n", 3, (1, 9)),
        ('k: "\\u00e9\\x41\\n\\U0001F600b"\n', 4, (1, 27)),
        ('k: "a \\\n    b"\n', 2, (2, 5)),
        ("k: |\n  a\n   b\n", 2, (3, 3)),
        ("k: |2-  # note\n    a\n  b\n\n", 0, (2, 3)),
        ("k: |2-  # note\n    a\n  b\n\n", 4, (3, 3)),
        ("k: >\n\n  a\n  b\n\n  c\n", 0, (2, 1)),
        ("k: >\n\n  a\n  b\n\n  c\n", 2, (3, 4)),
        ("k: >\n\n  a\n  b\n\n  c\n", 4, (5, 1)),
        ("k: >\n\n  a\n  b\n\n  c\n", 5, (6, 3)),
        ("k: |+\r\n  a\r\n\r\n", 2, (3, 1)),
        ("k: é😀b\n", 2, (1, 6)),
    ],
)
def test_a_character_of_the_value_is_located_in_the_file(
    text: str, offset: int, position: tuple[int, int]
) -> None:
    assert scalar(text).locate(offset) == position


def test_offsets_outside_the_value_are_moved_to_its_ends() -> None:
    assert scalar("k: 'abc'").locate(3) == Position(1, 8)
    assert scalar("k: abc").locate(99) == Position(1, 7)
    assert scalar("k: abc").locate(-5) == Position(1, 4)
    assert scalar("k: |\n").locate(0) == Position(2, 1)


def test_numbers_are_located_by_the_characters_that_write_them() -> None:
    assert scalar("k: 0x1F").locate(2) == Position(1, 6)


TEXTS = st.text(st.sampled_from("ab c{}:#-'\"\\\t\n\né😀\x85\u2028\x07"), max_size=40)


@given(
    TEXTS,
    st.sampled_from([None, "'", '"', "|", ">"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.integers(2, 6),
)
def test_every_character_of_a_dumped_scalar_is_located(
    value: str, style: str | None, line_break: str, unicode: bool, indent: int
) -> None:
    text = yaml.safe_dump(
        {"o": {"k": value}}, default_style=style, line_break=line_break, allow_unicode=unicode,
        indent=indent, width=12,
    )  # fmt: skip
    # The dumper follows YAML 1.1, in which these characters end a line and are rewritten like one.
    assume(not any(separator in text for separator in "\x85\u2028\u2029"))
    outer = mapping(text).get("o")
    assert isinstance(outer, Mapping)
    node = outer.get("k")
    assert isinstance(node, Scalar)
    if isinstance(node.value, str):
        assert_every_character_is_located(node)


SINGLE_QUOTED_PARTS = ["a", "é", "#", ":", "''", " ", "\t", "\n", "\r", "\r\n"]
DOUBLE_QUOTED_PARTS = [
    "a", "é", "'", " ", "\t", "\n", "\r\n", "\r", "\\n", "\\\n", "\\\r\n", "\\ ", '\\"', "\\x41", "\\u00e9",
    "\\U0001F600", "\\\\",
]  # fmt: skip
FLOW_SCALARS = st.one_of(
    st.lists(st.sampled_from(SINGLE_QUOTED_PARTS), max_size=20).map(lambda parts: f"'{''.join(parts)}'"),
    st.lists(st.sampled_from(DOUBLE_QUOTED_PARTS), max_size=20).map(lambda parts: f'"{"".join(parts)}"'),
    st.text(st.sampled_from("ab \t\n\ré#"), min_size=1, max_size=24),
)
BLOCK_LINES = st.lists(
    st.sampled_from(["", " ", "  ", "   ", "    ", "  a", "   b", "    c", "  \td", "  é x "]), max_size=8
)


@given(FLOW_SCALARS)
@example('"a \\\n\n  b"')
def test_every_character_of_a_flow_scalar_over_several_lines_is_located(raw: str) -> None:
    document = read(f"? k\n: {raw}\n".encode())
    assume(not document.diagnostics and isinstance(document.root, Mapping))
    assert isinstance(document.root, Mapping)
    node = document.root.get("k")
    assert isinstance(node, Scalar)
    if isinstance(node.value, str):
        assert_every_character_is_located(node)


@given(
    st.sampled_from("|>"),
    st.sampled_from(["", "+", "-", "2", "1", "2+", "-2", "+1", "-  # note"]),
    BLOCK_LINES,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
@example("|", "+", ["  a", "", ""], "\n", False)
@example(">", "2", ["    c", "  a", "", "  a"], "\n", True)
def test_every_character_of_a_block_scalar_is_located(
    style: str, header: str, lines: list[str], line_break: str, ends_with_break: bool
) -> None:
    text = line_break.join([f"k: {style}{header}", *lines]) + (line_break if ends_with_break else "")
    document = read(text.encode())
    assume(not document.diagnostics)
    assert_every_character_is_located(scalar(text))
