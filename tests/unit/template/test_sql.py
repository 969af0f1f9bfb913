"""Where the values of a SQL text stand."""

from time import process_time

import pytest

from noetl.template.sql import Lexer, survey


def places(source, dialect="postgres"):
    surveyed = survey(source, dialect)
    assert surveyed is not None
    return [spot.place for spot in surveyed.spots]


def wants_names(source, dialect="postgres"):
    surveyed = survey(source, dialect)
    assert surveyed is not None
    return [spot.wants_name for spot in surveyed.spots]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("SELECT {{ a }}", ["bare"]),
        ("SELECT 'it {{ a }} is' || {{ b }}", ["string", "bare"]),
        ("SELECT 'it''s {{ a }}', {{ b }}", ["string", "bare"]),
        ("SELECT E'\\'{{ a }}', {{ b }}", ["string", "bare"]),
        ("SELECT '\\', {{ a }}", ["bare"]),
        ('SELECT "{{ a }}", {{ b }}', ["identifier", "bare"]),
        ("SELECT 1 -- {{ a }}\n, {{ b }}", ["comment", "bare"]),
        ("SELECT /* {{ a }} /* {{ b }} */ {{ c }} */ {{ d }}", ["comment", "comment", "comment", "bare"]),
        ("SELECT $$ {{ a }} $$, {{ b }}", ["dollar_quote", "bare"]),
        ("SELECT $body$ {{ a }} $$ {{ b }} $body$, {{ c }}", ["dollar_quote", "dollar_quote", "bare"]),
        ("SELECT $1, {{ a }}", ["bare"]),
    ],
)
def test_a_value_is_found_in_its_place_in_postgres_text(source, expected):
    assert places(source) == expected


def test_quoting_follows_the_dialect():
    assert places("SELECT [{{ a }}], `{{ b }}`", "sqlite") == ["identifier", "identifier"]
    assert places("SELECT array[{{ a }}]", "postgres") == ["bare"]
    assert places("SELECT 1 // {{ a }}", "snowflake") == ["comment"]
    assert places("SELECT 4 // {{ a }}", "duckdb") == ["bare"]
    assert places("SELECT '\\' {{ a }}", "snowflake") == ["string"]
    assert places("SELECT /* {{ a }} /* */ {{ b }}", "sqlite") == ["comment", "bare"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("SELECT * FROM {{ t }}", [True]),
        ("SELECT * FROM a JOIN {{ t }} ON x = {{ y }}", [True, False]),
        ("DELETE FROM {{ t }}", [True]),
        ("INSERT INTO {{ t }} VALUES ({{ v }})", [True, False]),
        ("UPDATE {{ t }} SET x = {{ v }}", [True, False]),
        ("SELECT * FROM main.{{ t }}", [True]),
        ("SELECT extract(year FROM {{ d }})", [False]),
        ("SELECT a IS DISTINCT FROM {{ b }} FROM {{ t }}", [False, True]),
        ("SELECT DISTINCT a FROM {{ t }}", [True]),
        ("COPY t FROM {{ path }}", [False]),
        ("SELECT (SELECT max(x) FROM {{ t }}) + {{ v }}", [True, False]),
        ("SELECT 1; COPY t FROM {{ path }}", [False]),
        ("SELECT 1.5 * {{ v }}", [False]),
    ],
)
def test_a_place_that_wants_a_name_is_told_from_one_that_wants_a_value(source, expected):
    assert wants_names(source) == expected


def test_duckdb_takes_the_path_of_a_file_after_from():
    assert wants_names("SELECT * FROM {{ path }}", "duckdb") == [False]
    assert wants_names("INSERT INTO {{ t }} SELECT 1", "duckdb") == [True]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x", None),
        ("x | identifier", "identifier"),
        ("x | default('a | b') | sql", "sql"),
        ("(x | sql) ~ y", None),
        ("x | sql ~ y", None),
        ("f(x | sql)", None),
    ],
)
def test_the_last_filter_is_the_one_applied_to_the_whole_expression(expression, expected):
    surveyed = survey("SELECT {{ " + expression + " }}", "postgres")
    assert surveyed is not None
    assert surveyed.spots[0].last_filter == expected


def test_a_text_that_is_one_expression_is_whole():
    found = [survey(text, "sqlite") for text in (" {{ q }}\n", "SELECT {{ q }}", "{{ a }}{{ b }}")]
    assert [surveyed is not None and surveyed.whole for surveyed in found] == [True, False, False]


def test_offsets_point_at_the_expression():
    surveyed = survey("SELECT {{  a }}", "postgres")
    assert surveyed is not None
    assert surveyed.spots[0].offset == 11


def test_statements_hide_the_final_text():
    assert survey("SELECT {% if a %}1{% endif %}", "postgres") is None


@pytest.mark.parametrize(
    "text", ["::" * 50_000, "$" * 50_000, "$" * 50_000 + ":(", "$:::" * 20_000 + "(", "@a:" * 30_000 + "("]
)
def test_a_text_of_nothing_but_marks_of_parameters_is_read_once(text):
    started = process_time()
    Lexer("sqlite").feed(text)
    assert process_time() - started < 1.5


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        ("$a(", True),
        ("$a::b(", True),
        (":::(", True),
        ("@1(", True),
        ("#a$b(", True),
        (":a::(", True),
        ("$(", False),
        ("::(", False),
        ("$a (", False),
        ("a$b(", False),
        ("$a:b(", True),
        ("$:::(", True),
        ("f(x), $a, g(", False),
        ("f($a) + g(", False),
    ],
)
def test_a_parameter_before_a_parenthesis_is_unclear_in_sqlite(text, is_call):
    lexer = Lexer("sqlite")
    lexer.feed(text)
    assert (lexer.unclear is not None) is is_call
