"""Whatever a value holds: in SQL text it is that value again, and nothing else runs.

The texts are run by the databases themselves, so that their lexers have the last word on the quoting.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from noetl.errors import TemplateError
from noetl.template import Scope, Template
from noetl.template.sql import Dialect
from noetl.template.sql_render import render_sql

duckdb = pytest.importorskip("duckdb")
psycopg = pytest.importorskip("psycopg")

Run = Callable[[str], list[tuple[Any, ...]]]

FRAGMENTS = [
    "'", "''", '"', "`", "\\", "\\'", "--", "/*", "*/", "$$", "$a$", "$1", "%s", "%(a)s", "?", ":a", "@a",
    ";", "\n", "\r", "\t", "E'", "x'", "U&'", "[", "]", "(", ")", "{{ 7 * 7 }}", "{%", "\x01", "\u00a0",
    "é", "😀", "DELETE FROM canary", "SELECT", " OR 1=1 ", "NULL", ",", "1", "e", " ",
]  # fmt: skip
hostile_text = st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join)
any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
texts = st.one_of(hostile_text, any_text)
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, -1, 2**63 - 1, -(2**63)]),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
json_values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3))
)

# What may stand around a value in a SELECT list: the text, and the value that the database makes of it.
SHARED_ITEMS = [
    ("'it''s'", "it's"), ("'--'", "--"), ("'/*'", "/*"), ("'\\'", "\\"), ("1 -- it's\n", 1), ("2 /* ' */", 2),
    ("3 /* -- */", 3), ("'$$'", "$$"), ("''", ""), ("''''", "'"),
]  # fmt: skip
ITEMS: dict[Dialect, list[tuple[str, Any]]] = {
    "sqlite": [("4 -- ' \r still\n", 4), ("5 /* /* ' */", 5)],
    "duckdb": [
        ("E'\\''", "'"), ("e'\\\\'", "\\"), ("E'a''\\'b'", "a''b"), ("$$it's$$", "it's"),
        ("$q$$$'$q$", "$$'"),
        ("6 /* /* ' */ ' */", 6), ("7 -- '\r", 7), ("$é$'$é$", "'"),
    ],
    "postgres": [
        ("E'\\''", "'"), ("e'\\\\'", "\\"), ("E'a''\\'b'", "a''b"), ("$$it's$$", "it's"),
        ("$q$$$'$q$", "$$'"),
        ("6 /* /* ' */ ' */", 6), ("7 -- '\r", 7), ("E'a'\n'\\'b'", "a'b"), ("$é$'$é$", "'"),
        ("U&'\\0041'", "A"), ("N'\\'", "\\"), ("'a'\n'b'", "ab"),
    ],
}  # fmt: skip
SHARED_SLOTS = ["{v}", " {v}", "({v})", "'{v}'", "'x{v}'", "'''{v}'''", "'-- {v}'", "\n{v}\n", "'/*{v}*/'"]
SLOTS: dict[Dialect, list[str]] = {
    "sqlite": [],
    "duckdb": ["E'{v}'", "E'\\'{v}\\''", "E'''{v}'"],
    "postgres": ["E'{v}'", "E'\\'{v}\\''", "E'''{v}'", "E'a'\n'{v}'", "CAST({v} AS text)"],
}


@pytest.fixture(scope="module")
def run_sqlite() -> Iterator[Run]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE canary (a)")
    yield lambda text: connection.execute(text).fetchall()
    connection.close()


@pytest.fixture(scope="module")
def run_duckdb() -> Iterator[Run]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE canary (a INT)")

    def run(text: str) -> list[tuple[Any, ...]]:
        statements = connection.extract_statements(text)
        assert len(statements) == 1
        found: list[tuple[Any, ...]] = connection.execute(statements[0]).fetchall()
        return found

    yield run
    connection.close()


@pytest.fixture(scope="module")
def run_postgres(postgres_dsn: str) -> Iterator[Run]:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS canary; CREATE TABLE canary (a int)")

        def run(text: str) -> list[tuple[Any, ...]]:
            cursor = connection.execute(text)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            assert not cursor.nextset()
            return found

        yield run


NOT_UNDERSTOOD = (
    "syntax", "Syntax", "Parser", "unterminated", "unrecognized token", "incomplete", "Assertion",
)  # fmt: skip
RUNS: list[Dialect] = ["sqlite", "duckdb", "postgres"]
every_dialect = pytest.mark.parametrize("dialect", RUNS)
with_examples = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def run(dialect: Dialect, request: pytest.FixtureRequest) -> Run:
    found: Run = request.getfixturevalue(f"run_{dialect}")
    return found


def rendered(source: str, dialect: Dialect, **names: Any) -> str:
    return render_sql(Template(source), Scope(names), dialect)


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, bool):
        return found in (expected, int(expected)) and found is not None
    if isinstance(expected, float):
        # SQLite reads a number in SQL text to within the last place; only bound ones are exact.
        return math.isclose(found, expected, rel_tol=2 * sys.float_info.epsilon, abs_tol=0)
    if isinstance(found, Decimal):
        return bool(found == expected)
    if isinstance(expected, dict | list):
        return bool((json.loads(found) if isinstance(found, str) else found) == expected)
    return bool(found == expected) and isinstance(found, type(expected))


@every_dialect
@with_examples
@given(value=scalars)
def test_a_bare_value_comes_back(run: Run, dialect: Dialect, value: Any) -> None:
    [(found,)] = run(rendered("SELECT {{ v }} AS v", dialect, v=value))
    if isinstance(found, Decimal) and isinstance(value, float):
        found = float(found)
    assert same(found, value)


@every_dialect
@with_examples
@given(value=st.one_of(texts, numbers, st.booleans()))
def test_a_value_inside_a_string_comes_back_as_its_text(run: Run, dialect: Dialect, value: Any) -> None:
    assert run(rendered("SELECT 'a{{ v }}b' AS v", dialect, v=value)) == [(f"a{value}b",)]


@every_dialect
@with_examples
@given(value=st.dictionaries(texts, json_values, max_size=3), items=st.lists(scalars, max_size=4))
def test_mappings_come_back_as_json_and_lists_are_told(
    run: Run, dialect: Dialect, value: Any, items: Any
) -> None:
    [(found,)] = run(rendered("SELECT {{ v }} AS v", dialect, v=value))
    assert same(found, value)
    [(found,)] = run(rendered("SELECT {{ v | tojson }} AS v", dialect, v=items))
    assert same(found, items)
    with pytest.raises(TemplateError, match="in_list"):
        rendered("SELECT {{ v }}", dialect, v=items)


@every_dialect
@with_examples
@given(items=st.lists(texts, max_size=4), other=texts)
def test_a_list_holds_what_is_in_it(run: Run, dialect: Dialect, items: list[str], other: str) -> None:
    text = "SELECT CASE WHEN {{ other }} IN {{ items | in_list }} THEN 1 ELSE 0 END"
    assert run(rendered(text, dialect, items=items, other=other)) == [(int(other in items),)]


@every_dialect
@with_examples
@given(name=texts)
def test_a_name_is_that_name(run: Run, dialect: Dialect, name: str) -> None:
    # Longer names are cut, and SQLite takes these two for values even in quotes.
    assume(name and len(name.encode()) < 60 and name.lower() not in ("true", "false"))
    text = "SELECT x.{{ [n] | identifier }} FROM (SELECT 5 AS {{ [n] | identifier }}) AS x"
    assert run(rendered(text, dialect, n=name)) == [(5,)]


@every_dialect
@with_examples
@given(data=st.data())
def test_among_quotes_and_comments_of_all_kinds_a_value_stays_in_its_place(
    run: Run, dialect: Dialect, data: st.DataObject
) -> None:
    value = data.draw(hostile_text)
    pieces, expected = [], []
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            slot = data.draw(st.sampled_from(SHARED_SLOTS + SLOTS[dialect]))
            [(plain,)] = run("SELECT " + slot.format(v="X" if "'" in slot else "'X'"))
            pieces.append(slot.replace("{v}", "{{ v }}"))
            expected.append(plain.replace("X", value))
        else:
            text, meant = data.draw(st.sampled_from(SHARED_ITEMS + ITEMS[dialect]))
            pieces.append(text)
            expected.append(meant)
    assume(any("{{" in piece for piece in pieces))
    source = "SELECT " + ", ".join(pieces)
    try:
        text = rendered(source, dialect, v=value)
    except TemplateError:
        # The one thing it refuses here: DuckDB loses an unusual space behind an escaped quote.
        assert (dialect, "E'" in source, "\u00a0" in value) == ("duckdb", True, True)
    else:
        assert run(text) == [tuple(expected)]


@every_dialect
@with_examples
@given(data=st.data())
def test_in_a_text_of_fragments_a_hostile_value_does_what_a_harmless_one_does(
    run: Run, dialect: Dialect, data: st.DataObject
) -> None:
    slot = st.sampled_from(["{{ v }}", "'{{ v }}'"])
    around = [each for each in FRAGMENTS if "{" not in each]
    fragment = st.one_of(st.sampled_from([*around, "||", "SELECT 1", "AS"]), slot)
    source = "SELECT " + data.draw(st.sampled_from(["", " "])).join(data.draw(st.lists(fragment, max_size=7)))
    source += data.draw(slot)
    value = data.draw(hostile_text)
    try:
        harmless, hostile = rendered(source, dialect, v="a"), rendered(source, dialect, v=value)
    except TemplateError:
        return
    outcomes: list[object] = []
    for text in (harmless, hostile):
        try:
            outcomes.append([len(row) for row in run(text)])
        except (sqlite3.Error, sqlite3.Warning, duckdb.Error, psycopg.Error, AssertionError) as error:
            outcomes.append(f"{type(error).__name__}: {error}")
    if isinstance(outcomes[0], list) and outcomes[0] != outcomes[1]:
        # What the database makes of the text may differ (a cast that fails); that it is one value may not.
        assert not any(word in str(outcomes[1]) for word in NOT_UNDERSTOOD), (hostile, outcomes)
    assert run("SELECT count(*) FROM canary") == [(0,)]


@every_dialect
@pytest.mark.parametrize("source", ["SELECT {{ v }}", "SELECT '{{ v }}'", "SELECT {{ [v] | in_list }}"])
@pytest.mark.parametrize("value", ["\0", "a\0b", "\ud800", "\udfff'"])
def test_text_that_sql_cannot_hold_is_refused(dialect: Dialect, source: str, value: str) -> None:
    with pytest.raises(TemplateError):
        rendered(source, dialect, v=value)


def test_numbers_at_the_edge_come_back(run_duckdb: Run, run_postgres: Run, run_sqlite: Run) -> None:
    for value in (2**127 - 1, -(2**127)):
        assert run_duckdb(rendered("SELECT {{ v }}", "duckdb", v=value)) == [(value,)]
    for value in (10**4000, -(10**4000) - 1):
        assert run_postgres(rendered("SELECT {{ v }}", "postgres", v=value)) == [(Decimal(value),)]
    for dialect, run in (("duckdb", run_duckdb), ("postgres", run_postgres), ("sqlite", run_sqlite)):
        for number in (math.inf, -math.inf, 5e-324, 1.7976931348623157e308, -0.1):
            [(found,)] = run(rendered("SELECT {{ v }}", dialect, v=number))  # type: ignore[arg-type]
            assert float(found) == number
    for dialect, run in (("duckdb", run_duckdb), ("postgres", run_postgres)):
        [(found,)] = run(rendered("SELECT {{ v }}", dialect, v=math.nan))  # type: ignore[arg-type]
        assert math.isnan(found)
