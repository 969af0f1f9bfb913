"""SQL text in which a value stays a value."""

from __future__ import annotations

import pytest

from noetl.errors import TemplateBudgetError, TemplateError, TemplateValueError, UndefinedNameError
from noetl.template import Scope, Template, View
from noetl.template.budget import Budget
from noetl.template.sql_render import render_sql

DATA = {
    "name": "O'Neil \\",
    "low": -3,
    "ids": [1, 2, 3],
    "mixed": [-1, "a'b", None, True],
    "empty": [],
    "nothing": None,
    "yes": True,
    "half": 0.5,
    "person": {"name": "it's"},
    "table": 'public.odd"name',
    "text": "SELECT 1",
    "nul": "a\0b",
    "lone": "\ud800",
}


def rendered(source, dialect="postgres", **kwargs):
    return render_sql(Template(source), Scope(DATA), dialect, **kwargs)


def refusal(source, dialect="postgres"):
    with pytest.raises(TemplateValueError) as caught:
        rendered(source, dialect)
    return caught.value.message


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("SELECT {{ name }}", "SELECT 'O''Neil \\'"),
        ("SELECT 'say {{ name }}'", "SELECT 'say O''Neil \\'"),
        ("SELECT E'say {{ name }}'", "SELECT E'say O''Neil \\\\'"),
        ("SELECT E'it''s {{ name }}'", "SELECT E'it''s O''Neil \\\\'"),
        ("SELECT 5 -{{ low }}", "SELECT 5 - (-3)"),
        ("SELECT '{{ low }}'", "SELECT '-3'"),
        ("SELECT {{ nothing }}, {{ yes }}, {{ not yes }}, {{ half }}", "SELECT NULL, TRUE, FALSE, 0.5"),
        ("x IN {{ ids | in_list }}", "x IN (1, 2, 3)"),
        ("x IN {{ mixed | in_list }}", "x IN ((-1), 'a''b', NULL, TRUE)"),
        ("x IN {{ empty | in_list }}", "x IN (NULL)"),
        ("SELECT {{ person }}", "SELECT '{\"name\": \"it''s\"}'"),
        ("SELECT '{{ ids }}'::json", "SELECT '[1, 2, 3]'::json"),
        ("SELECT {{ ids | tojson }}", "SELECT '[1, 2, 3]'"),
        ("SELECT * FROM {{ table | identifier }}", 'SELECT * FROM "public"."odd""name"'),
        ("SELECT * FROM {{ ['a.b', 'c'] | identifier }}", 'SELECT * FROM "a.b"."c"'),
        ("SELECT nextval('{{ table | identifier }}')", 'SELECT nextval(\'"public"."odd""name"\')'),
        ("{{ text | sql }}", "SELECT 1"),
        ("{{ text | sql }} WHERE a = {{ low }}", "SELECT 1 WHERE a = (-3)"),
        ("{{ \"SELECT 'x\" | sql }} {{ name }}'", "SELECT 'x O''Neil \\'"),
        ("SELECT '{{ name }}', {{ low }}::int", "SELECT 'O''Neil \\', (-3)::int"),
        ("SELECT {{ 'inf' | float }}", "SELECT CAST('Infinity' AS float8)"),
        ("SELECT 1 -- a comment\n, {{ half }}", "SELECT 1 -- a comment\n, 0.5"),
    ],
)
def test_a_value_is_written_for_its_place(source, expected):
    assert rendered(source) == expected


def test_literals_follow_the_dialect():
    assert rendered("SELECT {{ name }}", "snowflake") == "SELECT 'O''Neil \\\\'"
    assert rendered("SELECT {{ half }}", "duckdb") == "SELECT 0.5e0"
    assert rendered("SELECT {{ '-inf' | float }}", "sqlite") == "SELECT (-9e999)"
    assert "no NaN" in refusal("SELECT {{ 'nan' | float }}", "sqlite")
    assert "no whole number" in refusal("SELECT {{ 2 ** 63 }}", "sqlite")
    assert rendered("SELECT {{ -(2 ** 63) }}", "sqlite") == "SELECT (-9223372036854775808)"
    assert "no whole number" in refusal("SELECT {{ 2 ** 127 }}", "duckdb")
    assert rendered("SELECT {{ 2 ** 127 }}") == f"SELECT {2**127}"


@pytest.mark.parametrize(
    ("source", "way_out"),
    [
        ("{{ text }}", "| sql"),
        (" {{ text }}\n", "| sql"),
        ("SELECT 1 -- {{ name }}", "comment: move it out"),
        ("SELECT /* /* */ {{ name }} */ 1", "comment: move it out"),
        ("SELECT $$ {{ name }} $$", "`params:`"),
        ("SELECT $a$ {{ name }} $a$", "`params:`"),
        ('SELECT "{{ name }}"', "| identifier"),
        ("SELECT * FROM {{ name }}", "| identifier"),
        ("SELECT * FROM a.{{ name }}", "| identifier"),
        ("SELECT {{ ids }}", "| in_list"),
        ("SELECT '{{ ids | in_list }}'", "in_list"),
        ("SELECT {{ name | in_list }}", "takes a list"),
        ("SELECT {{ [ids] | in_list }}", "| in_list"),
        ("SELECT '{{ nothing }}'", "leave the quotes out"),
        ("SELECT {{ nul }}", "NUL"),
        ("SELECT '{{ nul }}'", "NUL"),
        ("SELECT * FROM {{ nul | identifier }}", "NUL"),
        ("SELECT {{ lone }}", "surrogate"),
        ("SELECT X'{{ low }}'", "digits or code points"),
        ("SELECT U&'{{ name }}'", "digits or code points"),
        ("SELECT * FROM {{ '' | identifier }}", "not empty"),
        ("SELECT {{ low | sql }}", "takes text"),
        ("SELECT {{ (text | sql) ~ name }}", "must be the last"),
        ("SELECT {{ text | sql | upper }}", "must be the last"),
    ],
)
def test_where_no_value_can_stand_the_way_out_is_named(source, way_out):
    assert way_out in refusal(source)


@pytest.mark.parametrize(
    "source",
    [
        "SELECT E'a'\n{{ name }}",  # a second part of the string before it, escapes and all
        "SELECT 'a' {{ name }}",
        "SELECT {{ name }}\n{{ name }}",
        "SELECT E'\\{{ name }}'",  # the backslash would escape the value's first character
        "SELECT 1e'\\' {{ name }}",
        "SELECT\u00a0E'\\' || {{ name }}",
    ],
)
def test_a_text_that_a_database_may_read_in_another_way_is_refused(source):
    assert refusal(source)


def test_a_second_part_of_a_string_with_escapes_is_unclear_in_duckdb():
    assert rendered("SELECT E'a'\n'{{ name }}'") == "SELECT E'a'\n'O''Neil \\\\'"
    assert "second part" in refusal("SELECT E'a'\n'{{ name }}'", "duckdb")
    assert "second part" in refusal("SELECT E'a' -- b\n'c', {{ name }}", "duckdb")
    assert rendered("SELECT E'a''b', 'c'\n'd', {{ low }}", "duckdb").endswith("(-3)")


def test_duckdb_keeps_the_unusual_spaces_of_a_value():
    names = Scope({"v": "a\u00a0b"})
    text = render_sql(Template("SELECT 1 /* it's */, {{ v }} -- it's"), names, "duckdb")
    assert text == "SELECT 1 " + " " * 10 + ", 'a\u00a0b' " + " " * 7
    with pytest.raises(TemplateValueError, match="unusual space"):
        render_sql(Template("SELECT E'\\'', {{ v }}"), names, "duckdb")


def test_a_parameter_with_a_parenthesis_is_unclear_in_sqlite():
    assert "unclear" not in rendered("SELECT $x, ({{ low }})", "sqlite")
    assert "part of its name" in refusal("SELECT $x('{{ name }}')", "sqlite")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("SELECT E{{ name }}", "SELECT E 'O''Neil \\'"),
        ("SELECT 1{{ half }}2", "SELECT 1 0.5 2"),
        ("SELECT ${{ half }}", "SELECT $ 0.5"),
        ('SELECT "a"{{ table | identifier }}"b"', 'SELECT "a" "public"."odd""name" "b"'),
        ("SELECT {{ table | identifier }}.id", 'SELECT "public"."odd""name".id'),
    ],
)
def test_a_value_does_not_grow_together_with_its_neighbours(source, expected):
    assert rendered(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "SELECT {% for id in ids %}{{ id }}{% if not loop.last %}, {% endif %}{% endfor %}",
            "SELECT 1, 2, 3",
        ),
        ("SELECT 1 {% if yes %}WHERE a = {{ name }}{% endif %}", "SELECT 1 WHERE a = 'O''Neil \\'"),
        ("{% set part %}a = {{ name }}{% endset %}SELECT {{ part | sql }}", "SELECT a = 'O''Neil \\'"),
        (
            "{% macro is(c, v) %}{{ c | identifier }} = {{ v }}{% endmacro %}{{ is('a', name) | sql }}",
            "\"a\" = 'O''Neil \\'",
        ),
        ("{% set t = table | identifier %}SELECT * FROM {{ t }}", 'SELECT * FROM "public"."odd""name"'),
        ("SELECT {{ name }}{# a note #}, {{ low }}", "SELECT 'O''Neil \\', (-3)"),
        ("SELECT {{- name }}", "SELECT 'O''Neil \\'"),
    ],
)
def test_statements_of_templates_write_values_in_the_same_way(source, expected):
    assert rendered(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "SELECT {% filter replace('x', name) %}x{% endfilter %}",
        "{% macro m() %}{{ name }}{% endmacro %}SELECT {% call m() %}{% endcall %}",
        "SELECT {% for i in [ids] recursive %}{{ loop(empty) }}{% endfor %}",
        "{% set part %}a = {{ name }}{% endset %}SELECT {{ part }}",
        "{% set part %}a = {{ name }}{% endset %}SELECT {{ part | upper | sql }}",
        "{% set part %}a = {{ name }}{% endset %}SELECT {{ part[:9] | sql }}",
        "{% set part %}a = {{ name }}{% endset %}SELECT * FROM {{ part | identifier }}",
    ],
)
def test_text_put_together_by_a_template_cannot_carry_a_value_in_unquoted(source):
    with pytest.raises(TemplateError):
        rendered(source)


def test_what_looks_like_a_mark_in_the_data_is_refused():
    hostile = Scope({"a": "\x00" + "0" * 24 + ":0\x00", "b": "x"})
    for source in ("SELECT {{ a }}, {{ b }}", "SELECT {{ a | sql }}, {{ b }}", "SELECT \0{{ b }}"):
        with pytest.raises(TemplateValueError, match="NUL"):
            render_sql(Template(source), hostile, "postgres")


def test_names_are_strict_and_the_budget_holds():
    with pytest.raises(UndefinedNameError, match="gone"):
        rendered("SELECT {{ gone }}")
    with pytest.raises(TemplateBudgetError):
        rendered("SELECT {{ name }}", budget=Budget(bytes=5))


def test_the_line_of_the_text_is_told():
    assert "(line 3 of the SQL text)" in refusal("SELECT 1,\n2,\n{{ ids }}")


def test_a_view_is_written_as_its_value():
    class Result(View):
        def lookup(self, name):
            return None

        def plain(self):
            return "it's"

    assert render_sql(Template("SELECT {{ r }}"), Scope({"r": Result()}), "sqlite") == "SELECT 'it''s'"


def test_a_secret_is_told_as_it_is_and_as_it_is_written():
    told: list[object] = []
    scope = Scope({"keychain": {"key": "pass'word\\1"}})
    for source in ("SELECT {{ keychain.key }}", "{{ keychain.key | sql }}", "SELECT {{- keychain.key }}"):
        told.clear()
        render_sql(Template(source), scope, "postgres", on_secret=told.append)
        assert {"pass'word\\1", "pass''word\\1", "pass''word\\\\1"} == set(told)


def test_the_filters_belong_to_sql_text_alone():
    for name in ("in_list", "identifier", "sql"):
        with pytest.raises(TemplateValueError, match="SQL tool"):
            Template("{{ name | " + name + " }}").evaluate(Scope(DATA))


def test_text_without_templates_is_left_alone():
    text = "SELECT 'a' -- it's\n, $$ ' $$"
    assert rendered(text) == text
