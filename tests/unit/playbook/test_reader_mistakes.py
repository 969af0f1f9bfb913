"""What the reader says about YAML that is wrong, hostile or too large."""

from __future__ import annotations

import time

import pytest

from noetl.playbook.diagnostics import Diagnostic, nearest
from noetl.playbook.reader import ReadLimits, plain, read


def found(text: str | bytes, limits: ReadLimits | None = None) -> list[tuple[str, int, int]]:
    document = read(text if isinstance(text, bytes) else text.encode(), limits or ReadLimits())
    assert all(item.severity == "error" for item in document.diagnostics)
    assert all(item.message.endswith(".") and "\n" not in item.message for item in document.diagnostics)
    return [(item.code, item.line, item.column) for item in document.diagnostics]


def only(text: str | bytes, limits: ReadLimits | None = None) -> Diagnostic:
    document = read(text if isinstance(text, bytes) else text.encode(), limits or ReadLimits())
    (item,) = document.diagnostics
    return item


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("a: b: c", "yaml.syntax", 1, 5),
        ("é😀: 1\nfoo\nb: 2", "yaml.syntax", 2, 1),
        ("a: 'é\n", "yaml.syntax", 1, 4),
        ("a: [1, 2\nb: 3", "yaml.syntax", 1, 4),
        ("a: {b: 1\n", "yaml.syntax", 1, 4),
        ("a: [", "yaml.syntax", 1, 5),
        ("é: @x", "yaml.syntax", 1, 4),
        ("a: *", "yaml.syntax", 1, 4),
        ("a:\r\n - b\r\n c: 1\r\n", "yaml.syntax", 3, 2),
        ("a: 'it's'", "yaml.syntax", 1, 8),
        ('a: "\\q"', "yaml.syntax", 1, 5),
        ('a: "\\ud83d\\ude00"', "yaml.syntax", 1, 7),
        ("a: - b", "yaml.syntax", 1, 4),
        ("a: |x\n", "yaml.syntax", 1, 5),
        ("{a: 1}\nb: 2", "yaml.syntax", 2, 1),
        ("x: \u2028\nb: c: d", "yaml.syntax", 2, 5),
        ("!<", "yaml.syntax", 1, 3),
        ("a: !e!x y", "yaml.tag", 1, 4),
        ("a:\n\tb: 1", "yaml.tab", 2, 1),
        ("a:\n  b\n \tc: 1", "yaml.tab", 3, 2),
        ("a: |\n\tb\n", "yaml.tab", 2, 1),
        ("a: \x01", "yaml.encoding", 1, 4),
        ("a: 1\n\x00", "yaml.encoding", 2, 1),
        ("é: \x7f", "yaml.encoding", 1, 4),
    ],
)
def test_unreadable_yaml_gives_one_diagnostic_at_the_right_place(
    text: str, code: str, line: int, column: int
) -> None:
    assert read(text.encode()).root is None
    assert found(text) == [(code, line, column)]


def test_a_syntax_error_is_told_in_plain_words_with_a_hint() -> None:
    item = only("a: 1\nsteps:\n  - x\n y: 2\n")
    assert (
        item.message == "This does not fit the mapping that begins on line 1: a key in column 1 was expected."
    )
    assert item.hint == "Check the indentation, and that quotes enclose the whole value."
    assert "spaces" in str(only("a:\n\tb: 1").hint)


@pytest.mark.parametrize("text", ["a: {{ x }}\n", "a: {{ x }} and more\n"])
def test_an_unquoted_template_is_named_as_such(text: str) -> None:
    item = only(text)
    assert (item.code, item.line, item.column) == ("yaml.key", 1, 4)
    assert item.message == "A value that begins with {{ must be quoted, or YAML takes it for a mapping."


@pytest.mark.parametrize("data", [b"", b"# only a comment\n", b"\n\n", b"---\n", b"\xef\xbb\xbf"])
def test_a_file_without_content_is_called_empty(data: bytes) -> None:
    assert found(data) == [("yaml.empty", 1, 1)]
    assert read(data).root is None


@pytest.mark.parametrize(
    ("text", "kind"), [("- a\n", "a list"), ("hello\n", "a single value"), ("'x'", "a single")]
)
def test_a_root_that_is_no_mapping_is_refused(text: str, kind: str) -> None:
    item = only(text)
    assert item.code == "yaml.root"
    assert kind in item.message
    assert read(text.encode()).root is None


def test_a_second_document_is_refused_but_the_first_is_still_read() -> None:
    document = read(b"a: 1\n---\nb: 2\n")
    assert document.root is not None
    assert plain(document.root) == {"a": 1}
    assert found("a: 1\n---\nb: 2\n") == [("yaml.documents", 2, 1)]


def test_bytes_that_are_not_utf8_are_located() -> None:
    assert found("é: 1\nb: ü".encode() + b"\xff\n") == [("yaml.encoding", 2, 5)]
    assert "0xFF" in only(b"a: \xff").message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_wide_encodings_are_named(encoding: str) -> None:
    item = only("name: x\n".encode(encoding))
    assert (item.code, item.message) == ("yaml.encoding", "The file is encoded as UTF-16 or UTF-32.")
    assert item.hint == "Save the file as UTF-8."


def test_a_duplicate_key_is_reported_at_the_second_and_names_the_first() -> None:
    text = "a: 1\nb: {c: 1, c: 2}\na: {d: 1, d: 2}\n"
    assert found(text) == [
        ("yaml.duplicate_key", 2, 11),
        ("yaml.duplicate_key", 3, 1),
        ("yaml.duplicate_key", 3, 11),
    ]
    document = read(text.encode())
    assert document.diagnostics[1].message == "The key `a` is already given on line 1."
    assert document.root is not None
    assert plain(document.root) == {"a": 1, "b": {"c": 1}}


def test_keys_that_differ_only_in_notation_are_duplicates() -> None:
    assert found("1: a\n'1': b\n") == [("yaml.duplicate_key", 2, 1)]


def test_a_complex_key_is_refused_and_its_value_dropped() -> None:
    text = "? [a]\n: 1\n? {b: c}\n: 2\nok: yes\n"
    assert found(text) == [("yaml.key", 1, 3), ("yaml.key", 3, 3)]
    root = read(text.encode()).root
    assert root is not None
    assert plain(root) == {"ok": "yes"}


@pytest.mark.parametrize("text", ["a: {<<: 1}", "a: {<<: [1]}"])
def test_only_mappings_can_be_merged(text: str) -> None:
    assert [code for code, _, _ in found(text)] == ["yaml.key"]


def test_a_second_merge_key_is_a_duplicate_with_its_own_hint() -> None:
    item = only("x: &x {a: 1}\nt:\n  <<: *x\n  <<: *x\n")
    assert (item.code, item.line) == ("yaml.duplicate_key", 4)
    assert "[*first, *second]" in str(item.hint)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a: *missing", 4),
        ("a: &x [*x]", 8),
        ("a: &x {b: [*x]}", 12),
        ("a: &x {<<: *x}", 12),
        ("a: {<<: *y}", 9),
    ],
)
def test_unknown_and_recursive_aliases_are_refused(text: str, column: int) -> None:
    assert found(text) == [("yaml.alias", 1, column)]


@pytest.mark.parametrize(
    "tag",
    ["!foo x", "! x", "!!binary aGk=", "!!python/object:os.system x", "!!set {a}", "!!map [1]", "!!seq {}",
     "!!int x", "!!int 1.5", "!!bool 1", "!!null x", "!!float x", "!!map x"],
)  # fmt: skip
def test_other_tags_and_values_that_do_not_fit_are_refused(tag: str) -> None:
    assert found(f"a: {tag}\n") == [("yaml.tag", 1, 4)]


@pytest.mark.parametrize(
    "text", ["1" * 5000, "-" + "1" * 501, "0x" + "f" * 5000, "1e999", "-1.0e400", "1." + "0" * 600]
)
def test_numbers_too_large_to_hold_are_refused(text: str) -> None:
    assert found(f"a: {text}\n") == [("yaml.number", 1, 4)]


def test_problems_are_listed_in_the_order_of_the_file() -> None:
    text = "a: !x 1\nb: *n\na: 2\nc: 1e999\nd: [\n"
    assert [code for code, _, _ in found(text)] == [
        "yaml.tag", "yaml.alias", "yaml.duplicate_key", "yaml.number", "yaml.syntax",
    ]  # fmt: skip


def test_a_file_over_the_size_limit_is_refused_with_both_sizes() -> None:
    item = only(b"a: 1234", ReadLimits(max_bytes=6))
    assert item.code == "yaml.too_large"
    assert item.message == "The file has 7 bytes, more than the limit of 6 (max_bytes)."


def test_depth_is_allowed_up_to_the_limit() -> None:
    limits = ReadLimits(max_depth=4)
    assert found("a: [[[1]]]", limits) == []
    assert found("a: [[[[1]]]]", limits) == [("yaml.too_deep", 1, 7)]
    assert "4 levels deep (max_depth)" in only("a: [[[[1]]]]", limits).message


def test_depth_counts_the_levels_behind_an_alias() -> None:
    limits = ReadLimits(max_depth=4)
    assert found("a: &x [[1]]\nb: [*x]", limits) == []
    assert found("a: &x [[1]]\nb: [[*x]]", limits) == [("yaml.too_deep", 2, 6)]


def test_nodes_are_allowed_up_to_the_limit_with_aliases_expanded() -> None:
    limits = ReadLimits(max_nodes=9)
    assert found("a: &x [1, 2]\nb: *x\n", limits) == []
    assert found("a: &x [1, 2]\nb: [*x]\n", limits) == [("yaml.too_many_nodes", 2, 5)]
    assert "9 nodes (max_nodes)" in only("a: &x [1, 2]\nb: [*x]\n", limits).message


WIDE = ReadLimits(max_bytes=100_000_000)
HOSTILE = {
    "a 50 MB file": (b"a: 1\n" * 10_000_000, ReadLimits(), "yaml.too_large"),
    "10 MB of garbage": (b"a: " * 3_500_000, WIDE, "yaml.syntax"),
    "10 MB of keys": (
        b"".join(b"k%d: 1\n" % number for number in range(1_000_000)),
        WIDE,
        "yaml.too_many_nodes",
    ),
    "200 levels of mappings": (
        "".join(" " * n + "a:\n" for n in range(200)).encode(),
        ReadLimits(),
        "yaml.too_deep",
    ),
    "100 000 brackets": (b"[" * 100_000, ReadLimits(), "yaml.too_deep"),
    "100 000 dashes": (b"- " * 100_000, ReadLimits(), "yaml.too_deep"),
    "an alias bomb": (
        b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"a%d: &a%d [%b]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 40)),
        ReadLimits(),
        "yaml.too_many_nodes",
    ),
    "aliases that add up to a deep tree": (
        b"a0: &a0 1\n" + b"".join(b"a%d: &a%d [[[[*a%d]]]]\n" % (n, n, n - 1) for n in range(1, 1000)),
        ReadLimits(),
        "yaml.too_deep",
    ),
    "merges of scalars": (b"a:\n" + b"- {<<: 1}\n" * 20_000, ReadLimits(), "yaml.key"),
    "tag directives": (
        b"".join(b"%%TAG !a%d! b\n" % n for n in range(60_000)) + b"---\na: 1",
        ReadLimits(),
        "yaml.tag",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_answered_at_once(name: str) -> None:
    data, limits, code = HOSTILE[name]
    began = time.process_time()
    document = read(data, limits)
    assert time.process_time() - began < 2
    assert document.diagnostics[-1].code == code


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("wen", "when"), ("iterater", "iterator"), ("vra", "var"), ("tol", "tool"), ("nmae", "name"),
        ("max_in_fligt", "max_in_flight"), ("moed", "mode"), ("Name", "name"), ("apiversion", "apiVersion"),
        ("ot", "to"), ("max-in-flight", "max_in_flight"),
    ],
)  # fmt: skip
def test_a_mistyped_word_suggests_the_nearest_known_one(word: str, meant: str) -> None:
    known = [
        "when",
        "iterator",
        "var",
        "tool",
        "max_in_flight",
        "name",
        "mode",
        "apiVersion",
        "to",
        "then",
        "do",
    ]
    assert nearest(word, known) == meant


@pytest.mark.parametrize("word", ["", "x", "id", "banana", "whatever", "z" * 1000])
def test_a_word_near_to_nothing_suggests_nothing(word: str) -> None:
    assert nearest(word, ["when", "to", "if", "name", "mode"]) is None


def test_among_equally_near_words_the_shared_first_letter_wins() -> None:
    assert nearest("cse", ["use", "case"]) == "case"
    assert nearest("mode", []) is None
