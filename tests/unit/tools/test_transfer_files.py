"""The `transfer` kind from and to files: CSV, lines of JSON, Parquet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import transfer
from tests.unit.tools.local_context import LocalContext, call
from tests.unit.tools.transfer_places import NOWHERE, Places, places_for


@pytest.fixture
def places(postgres_dsn: str, tmp_path: Path) -> Iterator[Places]:
    with places_for(postgres_dsn, tmp_path) as found:
        yield found


def test_a_text_or_a_list_of_json_becomes_what_the_column_is(places: Places) -> None:
    lines = """{"id": 1, "l": ["a \\"b", null], "m": [[1], [2.50]], "j": {"deep": [1.10]}, "t": [true], "x": "YWI="}
{"id": 2, "j": "text", "x": null}

"""  # noqa: E501
    places.file("in.jsonl", lines)
    columns = "id int, l text[], m numeric[], j json, t text, x bytea"
    places.sql("postgres", f"CREATE TABLE nested ({columns})")
    source = {"kind": "object", "url": "file://in.jsonl"}
    outcome = places.run(source, places.at("postgres", table="nested"))
    assert outcome.error is not None
    assert outcome.error.kind == "sql.statement"  # a text is no JSON until it is quoted
    places.file("in.jsonl", lines.replace('"text"', "[]"))
    places.moved(source, places.at("postgres", table="nested"))
    shown = places.sql("postgres", "SELECT id, l, m::text, j::text, t, x FROM nested ORDER BY id")
    assert shown == [
        (1, ['a "b', None], "{{1},{2.50}}", '{"deep":[1.10]}', "[true]", b"ab"),
        (2, None, None, "[]", None, None),
    ]
    nested = "CREATE TABLE nested (id INT, l VARCHAR[], m DECIMAL(9, 2)[][], j JSON, t VARCHAR, x BLOB)"
    places.sql("duckdb", nested)
    places.moved(source, places.at("duckdb", table="nested"))
    again = places.sql("duckdb", "SELECT id, l, m::VARCHAR, j, t, x FROM nested ORDER BY id")
    assert again[0] == (1, ['a "b', None], "[[1.00], [2.50]]", '{"deep":[1.10]}', "[true]", b"ab")


def test_a_file_is_whole_or_as_it_was(places: Places) -> None:
    broken = places.at("postgres", query="SELECT 10 / (3 - i) AS n FROM generate_series(1, 5) i")
    for form in ("csv", "jsonl", "parquet"):
        target = {"kind": "file", "url": f"out.{form}", "mode": "replace"}
        assert places.error(broken, target, batch_size=1) == ("sql.statement", False, "source")
        assert not (places.folder / f"out.{form}").exists()
    places.file("out.csv", "n\n7\n")
    places.error(broken, NOWHERE, batch_size=1)
    assert places.file("out.csv") == "n\n7\n"


def test_rows_are_added_to_a_file_or_replace_what_is_there(tmp_path: Path) -> None:
    places = Places("", tmp_path)
    one = {"kind": "sqlite", "query": "SELECT 1 AS a, x'6162' AS b"}
    for form, line in (("csv", "1,YWI=\n"), ("jsonl", '{"a":1,"b":"YWI="}\n')):
        target = {"kind": "file", "url": f"out.{form}"}
        head = "a,b\n" if form == "csv" else ""
        for times in (1, 2):
            places.moved(one, target)
            assert places.file(f"out.{form}") == head + line * times
        places.file(f"out.{form}", head + line.strip())
        places.moved(one, target)
        assert places.file(f"out.{form}") == head + line * 2
        places.moved(one, {**target, "mode": "replace"})
        assert places.file(f"out.{form}") == head + line
    other = {"kind": "sqlite", "query": "SELECT 1 AS b, 2 AS a"}
    assert places.error(other, NOWHERE) == ("transfer.columns", False, "target")
    parquet = {"kind": "file", "url": "out.parquet"}
    places.moved(one, parquet)
    assert places.error(one, parquet) == ("config.invalid", False, "target")
    places.moved(one, {**parquet, "mode": "replace"})
    none = {"kind": "sqlite", "query": "SELECT 1 AS a WHERE false"}
    for url in ("none.csv", "none.jsonl", "none.parquet"):
        assert places.moved(none, {"kind": "file", "url": url}) == (0, 0)
        assert places.moved({"kind": "file", "url": url}, {**NOWHERE, "mode": "replace"}) == (0, 0)


def test_two_that_add_to_one_file_do_not_lose_rows_silently(places: Places) -> None:
    source = places.at("postgres", query="SELECT i FROM generate_series(1, 3000) i")

    async def scenario() -> list[Outcome]:
        async with LocalContext(places.outer) as context:
            task = call("transfer", {"source": source, "target": NOWHERE, "batch_size": 100})
            return list(await asyncio.gather(*(transfer.run(task, context) for _ in range(2))))

    errors = [outcome.error for outcome in asyncio.run(scenario()) if outcome.error is not None]
    # On a slow machine one may be through before the other begins, and then both add their rows.
    assert [(error.kind, error.retryable) for error in errors] in ([("transfer.conflict", True)], [])
    assert places.file("out.csv").count("\n") == 1 + 3000 * (2 - len(errors))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "source: line 1: the first line"),
        ("a,,c\n", "source: line 1: the first line"),
        ("a,b\n1,2\n1\n", "source: line 3: the row has 1 fields and the header 2"),
        ('a,b\n1,x"y"\n', "source: line 2: a quote stands inside"),
        ('a,b\n1,"2\n\n3,4\n', "source: line 2: a quote is not closed"),
    ],
)
def test_a_broken_csv_file_is_told_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    places = Places("", tmp_path)
    places.file("in.csv", text)
    assert places.message({"kind": "file", "url": "in.csv"}, NOWHERE).startswith(message)


def test_csv_of_other_programs_is_read(tmp_path: Path) -> None:
    places = Places("", tmp_path)
    places.file("in.csv", '\ufeff"a",b\r\n\r\n1,"x\r\ny"\r\n"",\r\n3,z')
    places.moved({"kind": "file", "url": "in.csv"}, {"kind": "file", "url": "out.jsonl"})
    assert places.file("out.jsonl") == ('{"a":"1","b":"x\\r\\ny"}\n{"a":"","b":null}\n{"a":"3","b":"z"}\n')


def test_lines_of_json_may_leave_columns_out_but_not_bring_others_late(tmp_path: Path) -> None:
    places = Places("", tmp_path)
    lines = ['{"a": 1}\n', '{"b": 12345678901234567890.50}\n', *(['{"a": 3}\n'] * 1000), '{"c": 4}\n']
    places.file("in.jsonl", "".join(lines))
    source = {"kind": "file", "url": "in.jsonl"}
    assert places.error(source, NOWHERE) == ("transfer.columns", False, "source")
    assert places.moved(source, NOWHERE, columns=["b", "c"]) == (1003, 1)
    found = places.file("out.csv").splitlines()
    assert (found[2], found[-1]) == ("12345678901234567890.50,", ",4")
    target = {**NOWHERE, "mode": "replace"}
    assert "source: no line has `d`" in places.message(source, target, columns=["a", "d"])
    for line in ("[1]", "{", '{"a": 1} x'):
        places.file("in.jsonl", f'{{"a": 0}}\n{line}\n')
        assert places.message(source, target).startswith("source: line 2: not a JSON mapping")
    (places.folder / "in.jsonl").write_bytes(b'{"a": "\xff"}\n')
    assert places.error(source, NOWHERE) == ("transfer.row", False, "source")


def test_what_is_no_parquet_file_and_what_is_no_base64_is_told(places: Places) -> None:
    places.file("in.parquet", "a,b\n1,2\n")
    assert places.error({"kind": "file", "url": "in.parquet"}, NOWHERE) == ("transfer.file", False, "source")
    places.file("in.csv", "x\nnot base64\n")
    places.sql("sqlite", "CREATE TABLE t (x BLOB)")
    binary = places.at("sqlite", table="t")
    assert places.error({"kind": "file", "url": "in.csv"}, binary) == ("transfer.row", False, "target")
