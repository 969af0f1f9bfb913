"""What the reader makes of YAML: values, keys, aliases, merging, comments."""

from __future__ import annotations

import math
import re

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from noetl.playbook.reader import Mapping, Scalar, plain, read


def data(text: str) -> object:
    document = read(text.encode())
    assert document.diagnostics == []
    assert document.root is not None
    return plain(document.root)


def value(text: str) -> object:
    root = data(f"k: {text}\n")
    assert isinstance(root, dict)
    return root["k"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None), ("~", None), ("null", None), ("Null", None), ("NULL", None),
        ("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False), ("FALSE", False),
        ("0", 0), ("-0", 0), ("12", 12), ("-12", -12), ("+12", 12), ("0x1F", 31), ("0o17", 15),
        ("1.5", 1.5), ("-.5", -0.5), ("1.", 1.0), ("1e3", 1000.0), ("1.5E-3", 0.0015), ("+1.0e+2", 100.0),
        (".inf", math.inf), ("-.INF", -math.inf), ("+.Inf", math.inf),
    ],
)  # fmt: skip
def test_plain_scalars_follow_the_core_rules(text: str, expected: object) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_not_a_number_is_kept_as_a_float() -> None:
    found = value(".nan")
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    "text",
    ["on", "off", "yes", "no", "Y", "n", "012", "-012", "1:30", "1_000", "2024-01-31", "2024-01-31T10:00:00Z",
     "0b11", "0X1F", "-0x1", "nUll", "tRUE", "1.2.3", "e3", ".", "+", "-.", ".e1", "inf", "nan", "1e",
     "=", "١٢", "v1", "~x"],
)  # fmt: skip
def test_everything_else_stays_a_string(text: str) -> None:
    assert value(text) == text


@pytest.mark.parametrize("text", ["'12'", '"12"', "|-\n  12", ">-\n  12", "!!str 12", "!!str '12'"])
def test_quoted_block_and_str_tagged_scalars_are_strings(text: str) -> None:
    assert value(text) == "12"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!!int '12'", 12), ("!!float 3", 3.0), ("!!bool 'true'", True), ("!!null ''", None), ("!!str", ""),
        ("!!map {a: 1}", {"a": 1}), ("!!seq [1]", [1]), ("!<tag:yaml.org,2002:int> '7'", 7),
    ],
)  # fmt: skip
def test_core_tags_are_honoured(text: str, expected: object) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_keys_are_taken_as_written() -> None:
    assert data("404: a\ntrue: b\n~: c\n1.50: d\n'q r': e\n") == {
        "404": "a", "true": "b", "~": "c", "1.50": "d", "q r": "e",
    }  # fmt: skip


def test_an_alias_may_stand_for_a_scalar_key() -> None:
    assert data("&k 404: x\nlist: [*k]\n*k : y\n".replace("*k : y", "other: {*k : y}")) == {
        "404": "x", "list": [404], "other": {"404": "y"},
    }  # fmt: skip


def test_aliases_share_the_node_that_they_name() -> None:
    root = read(b"a: &x {n: 1}\nb: *x\n").root
    assert isinstance(root, Mapping)
    assert root.get("a") is root.get("b")
    copies = plain(root)
    assert isinstance(copies, dict)
    assert copies["a"] == copies["b"]
    assert copies["a"] is not copies["b"]


def test_an_alias_means_the_nearest_anchor_before_it() -> None:
    assert data("a: &x 1\nb: &x [&x 2, 3]\nc: *x\n") == {"a": 1, "b": [2, 3], "c": 2}


def test_merged_entries_stand_where_the_merge_stands_and_explicit_ones_win() -> None:
    found = data("base: &b {x: 1, y: 2}\nt:\n  p: 0\n  <<: *b\n  y: 3\n")
    assert found == {"base": {"x": 1, "y": 2}, "t": {"p": 0, "x": 1, "y": 3}}
    assert isinstance(found, dict)
    assert list(found["t"]) == ["p", "x", "y"]


def test_the_earlier_of_several_merged_mappings_wins() -> None:
    found = data("a: &a {x: 1}\nb: &b {<<: *a, x: 2, y: 2}\nt: {<<: [*a, *b, {z: 3}]}\n")
    assert isinstance(found, dict)
    assert found["t"] == {"x": 1, "y": 2, "z": 3}


def test_merged_values_keep_the_position_where_they_are_written() -> None:
    root = read(b"base: &b\n  x: 1\nt:\n  <<: *b\n").root
    assert isinstance(root, Mapping)
    merged = root.get("t")
    assert isinstance(merged, Mapping)
    assert (merged.entries["x"].key.line, merged.entries["x"].value.column) == (2, 6)


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert data("'<<': 1\n") == {"<<": 1}


def test_a_mapping_answers_none_for_a_key_it_lacks() -> None:
    root = read(b"a: 1\n").root
    assert isinstance(root, Mapping)
    assert root.get("b") is None
    found = root.get("a")
    assert isinstance(found, Scalar)
    assert found.value == 1


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_break_is_accepted(line_break: str) -> None:
    assert data(line_break.join(["a: 1", "b: |", "  x", "  y", "c:", "- 1", ""])) == {
        "a": 1, "b": "x\ny\n", "c": [1],
    }  # fmt: skip


def test_document_markers_and_a_version_directive_are_accepted() -> None:
    assert data("%YAML 1.2\n---\na: 1\n...\n") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "comments"),
    [
        ("# one\n#two\n\n# three\n\na: 1\n# four\n", "# one\n#two\n\n# three\n"),
        ("\r\n# one\r\na: 1\r\n", "\r\n# one\r\n"),
        ("# one\n---\n# two\na: 1\n", "# one\n# two\n"),
        ("\n\na: 1 # no\n", ""),
        ("# only", "# only"),
    ],
)
def test_the_leading_comment_block_is_kept_verbatim(text: str, comments: str) -> None:
    assert read(text.encode()).comments == comments


NOT_YAML_1_1 = re.compile(r"0o[0-7]+|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.[0-9]+[eE]?.*|[-+]?[0-9.]+[eE][0-9]+")
STRINGS = st.text(max_size=20).filter(lambda text: not NOT_YAML_1_1.fullmatch(text))
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False),
    STRINGS,
    st.text(st.sampled_from("a b:-#'\"{}[]\n\t,&*!|>%@`0123.é"), max_size=20).filter(
        lambda text: not NOT_YAML_1_1.fullmatch(text)
    ),
)
TREES = st.dictionaries(
    STRINGS,
    st.recursive(
        ATOMS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


@given(
    TREES,
    st.sampled_from([None, '"', "'", "|", ">"]),
    st.sampled_from([None, True, False]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.sampled_from([20, 80]),
)
def test_data_dumped_as_yaml_is_read_back(
    tree: dict[str, object], style: str | None, flow: bool | None, line_break: str, unicode: bool, width: int
) -> None:
    text = yaml.safe_dump(
        tree, default_style=style, default_flow_style=flow, line_break=line_break, allow_unicode=unicode,
        width=width, sort_keys=False,
    )  # fmt: skip
    # The dumper follows YAML 1.1, in which these characters end a line and are rewritten like one.
    assume(not any(separator in text for separator in "\x85\u2028\u2029"))
    assert data(text) == tree


@given(
    st.binary(max_size=60)
    | st.text(st.sampled_from("a:- \n\t[]{}&*!|>'\"#%x,?\\<\r\x85\ufeff"), max_size=40).map(str.encode)
)
def test_no_input_makes_the_reader_raise(raw: bytes) -> None:
    document = read(raw)
    assert document.root is not None or document.diagnostics
    assert isinstance(document.comments, str)
