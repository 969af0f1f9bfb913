"""Values in SQL texts: where none can stand, and the way out that the hint names."""

from __future__ import annotations

import pytest

from tests.unit.playbook.reports import HEAD, assert_reports, only, valid

WORKLOAD = "workload: {x: 1, ids: [1], t: orders}\n"


def query(text: str, kind: str = "postgres", field: str = "query") -> str:
    """A playbook with one SQL task; the text stands in a literal block."""
    lines = "".join(f"        {line}\n" for line in text.split("\n"))
    head = f"{HEAD}{WORKLOAD}workflow:\n  - step: start\n    tool:\n      kind: {kind}\n"
    return f"{head}      {field}: |-\n{lines}"


@pytest.mark.parametrize("kind", ["postgres", "duckdb", "sqlite", "snowflake"])
@pytest.mark.parametrize(
    "text",
    [
        "select * from orders where id = {{ workload.x }}",
        "select * from orders where name = '{{ workload.x }}'",
        "select * from orders where id in {{ workload.ids | in_list }}",
        "select * from {{ workload.t | identifier }}",
        "insert into orders (id) values ({{ workload.x }}, {{ workload.x }})",
        "update orders set a = {{ workload.x }}; delete from orders where a = {{ workload.x }}",
        "select 1 -- a comment\n, {{ workload.x }}",
    ],
)
def test_values_where_values_may_stand_are_fine(text: str, kind: str) -> None:
    valid(query(text, kind))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("select 1 -- for {{ ‹sql.value_in_comment›workload.x }}", "params:"),
        ("select 1\n/* for {{ ‹sql.value_in_comment›workload.x }} */", "params:"),
        ("select $$a {{ ‹sql.value_in_dollar_quote›workload.x }}$$", "params:"),
        ('select "{{ ‹sql.value_in_identifier›workload.x }}" from t', "params:"),
        ("select * from {{ ‹sql.value_as_name›workload.t }}", "| identifier"),
        ("insert into\n  {{ ‹sql.value_as_name›workload.t }} values (1)", "| identifier"),
        ("select * from public.{{ ‹sql.value_as_name›workload.t }}", "| identifier"),
        ("select 1 order by {{ ‹sql.trusted_text›workload.x | sql }}", "where it comes from"),
    ],
)
def test_a_value_where_none_can_stand_is_reported_at_its_first_character(text: str, hint: str) -> None:
    found = only(query(text))
    assert found.hint is not None
    assert hint in found.hint


def test_a_text_that_is_one_expression_is_reported_as_a_whole() -> None:
    tool = "tool: {kind: sqlite, query: ‹sql.whole_text›'{{ workload.t }}'}"
    text = f"{HEAD}{WORKLOAD}workflow:\n  - {{step: start, {tool}}}\n"
    assert "| sql" in (only(text).hint or "")


def test_a_text_that_is_trusted_as_a_whole_is_only_warned_of() -> None:
    text = "{{ ‹sql.trusted_text›workload.t | sql }}"
    assert only(query(text)).severity == "warning"


def test_the_same_field_by_its_other_name_is_checked() -> None:
    assert_reports(query("select * from {{ ‹sql.value_as_name›workload.t }}", field="command"))


def test_quotes_are_those_of_the_tool_kind() -> None:
    valid(query("select '$$ {{ workload.x }} $$'"))
    assert_reports(query("select * from `{{ ‹sql.value_in_identifier›workload.t }}`", "sqlite"))
    assert_reports(query("select 1 // {{ ‹sql.value_in_comment›workload.t }}", "snowflake"))


def test_texts_with_statements_are_left_to_the_run() -> None:
    valid(query("select 1 {% if workload.x %} where a = {{ workload.x }} {% endif %}"))


def test_a_text_inside_a_mapping_is_checked_by_the_kind_beside_it() -> None:
    tool = (
        'kind: transfer, source: {kind: %s, query: "select 1 // {{ %sworkload.x }}"},'
        " target: {kind: sqlite, table: t}"
    )
    head = f"{HEAD}{WORKLOAD}workflow:\n  - {{step: start, tool: {{"
    assert_reports(head + tool % ("snowflake", "‹sql.value_in_comment›") + "}}\n")
    valid(head + tool % ("postgres", "") + "}}\n")


def test_other_tools_have_no_sql() -> None:
    valid(
        f"{HEAD}{WORKLOAD}workflow:\n  - {{step: start, tool: {{kind: http, url: '{{{{ workload.t }}}}'}}}}\n"
    )
