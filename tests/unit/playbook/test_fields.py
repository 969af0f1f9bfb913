"""Reading mappings: accessors give a value of their type, or report and give None."""

from __future__ import annotations

import pytest

from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.fields import Fields, is_templated
from noetl.playbook.findings import Findings
from noetl.playbook.reader import Mapping, read
from noetl.template import Template


def fields_of(text: str, known: tuple[str, ...] = ("a", "b"), reported: tuple[str, ...] = ()) -> Fields:
    root = read(text.encode()).root
    assert isinstance(root, Mapping)
    return Fields(Findings(), root, "a thing", known, reported)


def found_in(fields: Fields) -> list[tuple[str, int, int]]:
    return [(one.code, one.line, one.column) for one in fields.findings.sorted()]


def test_an_unknown_key_is_reported_at_the_key_with_the_nearest_known_word() -> None:
    fields = fields_of("retries: 1\nb: 2\n", ("retry", "b"))
    assert fields.findings.sorted() == (
        Diagnostic(
            severity="error",
            code="key.unknown",
            message="unknown key `retries` in a thing",
            line=1,
            column=1,
            hint="did you mean `retry`?",
        ),
    )


def test_without_a_near_word_the_hint_lists_the_known_keys() -> None:
    (found,) = fields_of("zzzzzz: 1\n", ("b", "a")).findings.sorted()
    assert found.hint == "known keys: `a`, `b`"


def test_a_key_that_is_reported_elsewhere_is_neither_reported_nor_offered() -> None:
    (found,) = fields_of("when: 1\nzzzz: 2\n", ("a",), reported=("when",)).findings.sorted()
    assert (found.line, found.hint) == (2, "known keys: `a`")


@pytest.mark.parametrize("word", ["expr", "eval", "if", "condition", "next_mode"])
def test_a_word_of_another_language_gets_what_to_write_instead(word: str) -> None:
    (found,) = fields_of(f"a: 1\n{word}: 1\n").findings.sorted()
    assert (found.code, found.line) == ("key.replaced", 2)
    assert found.hint is not None
    assert ("next.spec.mode" if word == "next_mode" else "`when`") in found.hint


def test_something_missing_is_reported_at_the_first_key_or_at_the_empty_mapping() -> None:
    fields = fields_of("  b: 1\n  a: 2\n")
    fields.require("c")
    assert found_in(fields) == [("key.missing", 1, 3)]
    root = read(b"x: {}\n").root
    assert isinstance(root, Mapping)
    inner = root.get("x")
    assert isinstance(inner, Mapping)
    empty = Fields(Findings(), inner, "a thing", ())
    empty.require("c")
    assert found_in(empty) == [("key.missing", 1, 4)]


@pytest.mark.parametrize(
    ("accessor", "good", "value"),
    [
        ("text", "hello", "hello"),
        ("name", "hello", "hello"),
        ("flag", "true", True),
        ("number", "1.5", 1.5),
        ("number", "-2", -2),
        ("count", "3", 3),
        ("duration", "2m", 120.0),
        ("guard", "false", False),
        ("value", "[1, {a: x}]", [1, {"a": "x"}]),
        ("values", "{a: 1}", {"a": 1}),
        ("values", "", {}),
    ],
)
def test_an_accessor_gives_a_value_of_its_type(accessor: str, good: str, value: object) -> None:
    fields = fields_of(f"a: {good}\n")
    assert getattr(fields, accessor)("a") == value
    assert found_in(fields) == []


@pytest.mark.parametrize(
    "accessor", ["text", "name", "flag", "number", "count", "duration", "mapping", "sequence"]
)
def test_an_accessor_gives_none_for_a_key_that_is_not_there(accessor: str) -> None:
    fields = fields_of("b: 1\n")
    assert getattr(fields, accessor)("a") is None
    assert found_in(fields) == []


@pytest.mark.parametrize(
    ("accessor", "bad", "code"),
    [
        *[("text", bad, "value.type") for bad in ("1", "true", "", "[x]", "{x: 1}")],
        ("text", "'{{ x }}'", "value.template"),
        *[("name", bad, "value.type") for bad in ("''", "'  '", "1", "[x]")],
        *[("flag", bad, "value.type") for bad in ("yes", "1", "", "[true]", "'{{ x }}'")],
        *[("number", bad, "value.type") for bad in ("x", "true", ".nan", ".inf", "", "[1]")],
        *[("count", bad, "value.type") for bad in ("0", "-1", "1.5", "true", "x", "", "[1]")],
        *[("duration", bad, "value.duration") for bad in ("5 minutes", "-1", "true", "", "[1]", "{x: 1}")],
        *[("mapping", bad, "value.type") for bad in ("1", "x", "", "[1]")],
        *[("sequence", bad, "value.type") for bad in ("1", "x", "", "{x: 1}")],
        *[("values", bad, "value.type") for bad in ("1", "x", "[1]")],
        *[("guard", bad, "value.type") for bad in ("1", "", "[1]", "{x: 1}")],
        *[("guard", bad, "when.plain_text") for bad in ("x", "''", "a == 1")],
    ],
)
def test_a_wrong_value_is_reported_where_it_stands(accessor: str, bad: str, code: str) -> None:
    fields = fields_of(f"b: 1\na: {bad}\n")
    found = getattr(fields, accessor)("a")
    assert found is None or found == {}
    assert [report[:2] for report in found_in(fields)] == [(code, 2)]
    assert found_in(fields)[0][2] == (4 if bad else 3)


def test_the_message_about_a_wrong_type_says_what_is_there_in_short() -> None:
    fields = fields_of("a: " + "x" * 100 + "\nb:\n")
    fields.number("a")
    fields.mapping("b")
    first, second = (one.message for one in fields.findings.sorted())
    assert first.startswith("`a` of a thing must be a number, but it is `xxx")
    assert first.endswith("…`")
    assert len(first) < 110
    assert second == "`b` of a thing must be a mapping, but it is empty"


@pytest.mark.parametrize(
    ("written", "hint"),
    [("paralel", "did you mean `parallel`?"), ("zzz", "one of `parallel`, `sequential`"), ("[x]", "one of")],
)
def test_a_choice_names_the_nearest_word_or_all_of_them(written: str, hint: str) -> None:
    fields = fields_of(f"a: {written}\n")
    assert fields.choice("a", ("parallel", "sequential")) is None
    (found,) = fields.findings.sorted()
    assert (found.code, found.line, found.column) == ("value.choice", 1, 4)
    assert found.hint is not None
    assert hint in found.hint


@pytest.mark.parametrize("accessor", ["count", "duration", "guard", "value"])
def test_a_template_is_kept_with_its_place(accessor: str) -> None:
    found = getattr(fields_of("a: '{{ workload.n }}'\n"), accessor)("a")
    assert isinstance(found, Template)
    assert found.source == "{{ workload.n }}"


def test_the_hint_for_plain_text_shows_it_as_an_expression() -> None:
    fields = fields_of("a: x == 1\n")
    fields.guard("a")
    (found,) = fields.findings.sorted()
    assert found.hint == "write `{{ x == 1 }}`"


def test_numbers_that_are_not_finite_and_templated_keys_are_refused_in_data() -> None:
    fields = fields_of("a:\n  - .nan\n  - {'{{ x }}': 1}\n")
    fields.value("a")
    assert found_in(fields) == [("value.number", 2, 5), ("value.template", 3, 6)]


@pytest.mark.parametrize(
    ("text", "templated"),
    [("{{ x }}", True), ("{% if x %}", True), ("{# x #}", True), ("{x}", False), ("", False)],
)
def test_a_template_is_known_by_its_braces(text: str, templated: bool) -> None:
    assert is_templated(text) is templated


def test_findings_come_in_the_order_of_the_file_without_repetitions() -> None:
    fields = fields_of("a: 1\nb: 2\n")
    for name in ("b", "a", "b"):
        fields.text(name)
    assert [line for _, line, _ in found_in(fields)] == [1, 2]
