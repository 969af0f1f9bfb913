"""The `duckdb` kind, in memory and on real files."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import duckdb, sql_rows
from noetl.tools.duckdb_paths import with_folder
from tests.unit.tools.local_context import LocalContext, call

pytest.importorskip("duckdb")


def run(folder: Path, *, args: Any = None, **config: Any) -> Outcome:
    async def scenario() -> Outcome:
        async with LocalContext(folder) as context:
            return await duckdb.run(call("duckdb", config, args=args), context)

    return asyncio.run(scenario())


def rows(folder: Path, *, args: Any = None, **config: Any) -> Any:
    outcome = run(folder, args=args, **config)
    assert outcome.status == "ok", outcome.error
    assert outcome.groups == {"duckdb": {"error_type": None}}
    return outcome.result


def error(folder: Path, *, args: Any = None, **config: Any) -> tuple[str, bool, str | None]:
    outcome = run(folder, args=args, **config)
    assert outcome.error is not None
    return outcome.error.kind, outcome.error.retryable, outcome.groups["duckdb"]["error_type"]


def test_rows_are_mappings_with_values_as_json(tmp_path: Path) -> None:
    query = """
        SELECT 1 AS i, 0.5::DOUBLE AS f, 1.10::DECIMAL(9,2) AS d, DATE '2024-02-29' AS day,
               TIMESTAMP '2024-02-29 10:00:00' AS t, TIMESTAMPTZ '2024-02-29 10:00:00+00' AS z,
               INTERVAL 90 SECOND AS w, 'ab'::BLOB AS b, [1, 2] AS l, {'a': NULL} AS s, 'NaN'::DOUBLE AS n,
               '-inf'::DOUBLE AS inf, '00000000-0000-0000-0000-000000000001'::UUID AS u,
               '{"k": 1}'::JSON AS j, 170141183460469231731687303715884105727 AS big
    """
    [row] = rows(tmp_path, query=query)
    zoned = row.pop("z")
    assert zoned[:4] == "2024"
    assert zoned[-6] in "+-"
    assert row == {
        "i": 1, "f": 0.5, "d": 1.1, "day": "2024-02-29", "t": "2024-02-29T10:00:00", "w": 90.0, "b": "YWI=",
        "l": [1, 2], "s": {"a": None}, "n": None, "inf": "-Infinity",
        "u": "00000000-0000-0000-0000-000000000001", "j": '{"k": 1}', "big": 2**127 - 1,
    }  # fmt: skip


def test_the_result_is_of_the_last_statement_that_returns_rows(tmp_path: Path) -> None:
    text = "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); FROM t ORDER BY a; UPDATE t SET a = 3"
    assert rows(tmp_path, command=text) == [{"a": 1}, {"a": 2}]
    assert rows(tmp_path, query="CREATE TABLE t AS SELECT 1 AS a") == []
    assert rows(tmp_path, query="CREATE TABLE t (a INT); INSERT INTO t VALUES (4) RETURNING a") == [{"a": 4}]
    assert rows(tmp_path, query="CREATE TABLE t (a INT); DESCRIBE t")[0]["column_name"] == "a"


def test_many_rows_are_all_given(tmp_path: Path) -> None:
    found = rows(tmp_path, query="SELECT i FROM range(2500) r(i) ORDER BY i")
    assert [row["i"] for row in found] == list(range(2500))


def test_a_named_file_is_kept_for_later_calls(tmp_path: Path) -> None:
    rows(tmp_path, query="CREATE TABLE t AS SELECT 1 AS a", database="work.duckdb")
    assert rows(tmp_path, query="SELECT * FROM t", dsn="work.duckdb", read_only=True) == [{"a": 1}]
    assert error(tmp_path, query="SELECT * FROM t") == ("sql.statement", False, "CatalogException")


def test_calls_at_the_same_time_share_a_file(tmp_path: Path) -> None:
    async def scenario() -> list[Outcome]:
        async with LocalContext(tmp_path) as context:
            await duckdb.run(call("duckdb", {"database": "w.db", "query": "CREATE TABLE t (i INT)"}), context)
            texts = [f"INSERT INTO t VALUES ({number})" for number in range(8)]
            calls = [call("duckdb", {"database": "w.db", "query": text}) for text in texts]
            return list(await asyncio.gather(*(duckdb.run(each, context) for each in calls)))

    assert {outcome.status for outcome in asyncio.run(scenario())} == {"ok"}
    assert rows(tmp_path, query="SELECT sum(i)::INT AS n FROM t", database="w.db") == [{"n": 28}]


def test_parameters_are_bound_by_name_and_by_position(tmp_path: Path) -> None:
    assert rows(tmp_path, query="SELECT $a AS a, '$b' AS b", params={"a": "x'y", "spare": 1}) == [
        {"a": "x'y", "b": "$b"}
    ]
    text = "CREATE TABLE t (a INT, b INT[]); INSERT INTO t VALUES (?, ?); SELECT * FROM t WHERE a = ?"
    assert rows(tmp_path, query=text, params=[1, [2, 3], 1]) == [{"a": 1, "b": [2, 3]}]
    assert rows(tmp_path, query="SELECT $2 AS a; SELECT $1 AS b, $2 AS c", params=[1, 2]) == [
        {"b": 1, "c": 2}
    ]
    for params in ([1], [1, 2, 3], {"a": 1}):
        assert error(tmp_path, query="SELECT ?, ?", params=params)[0] == "config.invalid"


def test_rows_are_inserted_and_upserted_with_names_quoted(tmp_path: Path) -> None:
    def write(args: Any, **config: Any) -> Any:
        return rows(tmp_path, database="a.db", table='odd "t', args=args, **config)

    columns = 'id INT PRIMARY KEY, "the ""v" VARCHAR DEFAULT \'d\', l INT[], j JSON'
    rows(tmp_path, database="a.db", query=f'CREATE TABLE "odd ""t" ({columns})')
    assert write({"id": 1, 'the "v': "x'); DROP TABLE t; --", "l": [1, 2], "j": {"a": [1]}}) == []
    write([{"id": number} for number in range(2, 500)])
    write([{"id": 2, 'the "v': "new"}], mode="upsert", key="id")
    write({"id": 2}, mode="upsert", key=["id"])
    assert rows(tmp_path, database="a.db", query='SELECT * FROM "odd ""t" ORDER BY id LIMIT 3') == [
        {"id": 1, 'the "v': "x'); DROP TABLE t; --", "l": [1, 2], "j": '{"a":[1]}'},
        {"id": 2, 'the "v': "new", "l": None, "j": None},
        {"id": 3, 'the "v': "d", "l": None, "j": None},
    ]
    assert error(tmp_path, database="a.db", table='odd "t', args={"id": 1}) == (
        "sql.constraint",
        False,
        "ConstraintException",
    )


def test_a_call_is_one_transaction(tmp_path: Path) -> None:
    rows(tmp_path, database="a.db", query="CREATE TABLE t (a INT UNIQUE)")
    failing = "INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)"
    assert error(tmp_path, database="a.db", query=failing)[0] == "sql.constraint"
    assert rows(tmp_path, database="a.db", query="SELECT * FROM t") == []
    own = "BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (1)"
    assert error(tmp_path, database="a.db", query=own)[0] == "sql.constraint"
    assert error(tmp_path, database="a.db", query="BEGIN; DELETE FROM t")[0] == "sql.open_transaction"
    assert rows(tmp_path, database="a.db", query="SELECT * FROM t") == [{"a": 1}]


def test_relative_paths_lie_in_the_folder(tmp_path: Path) -> None:
    text = """
        COPY (SELECT 1 AS a, 'x.csv' AS b) TO 'out.csv';
        COPY (SELECT 2 AS a, 'y' AS b) TO 'out.parquet' (FORMAT parquet);
        SELECT * FROM 'out.csv' UNION ALL SELECT * FROM read_parquet(['out.parquet']) ORDER BY a
    """
    assert rows(tmp_path, query=text) == [{"a": 1, "b": "x.csv"}, {"a": 2, "b": "y"}]
    assert (tmp_path / "execution" / "out.csv").exists()
    text = "ATTACH 'o.db' AS o; CREATE TABLE o.t AS FROM 'out.csv'; SELECT a FROM o.t"
    assert rows(tmp_path, query=text) == [{"a": 1}]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a IS DISTINCT FROM 'x.csv'",
        "SELECT trim(LEADING 'x' FROM 'x.csv')",
        "SELECT extract(year FROM '2024-01-01'::DATE)",
        "SELECT 'read_csv(''a.csv'')'",
        "SELECT * FROM 'https://example.org/a.csv'",
        "SELECT * FROM '/a.csv'",
        'SELECT * FROM "a.csv"',
        "ALTER TABLE a RENAME TO b",
        "SELECT 1 -- FROM 'a.csv'",
    ],
)
def test_a_string_that_is_no_relative_path_is_left_alone(text: str) -> None:
    assert with_folder(text, Path("/f")) == text


def test_a_relative_path_is_found_where_paths_stand() -> None:
    inner = "SELECT (SELECT 1 FROM 'it''s.csv')"
    assert with_folder(inner, Path("/f")) == "SELECT (SELECT 1 FROM '/f/it''s.csv')"
    assert with_folder("FROM read_csv('a', all = true)", Path("/f'")) == "FROM read_csv('/f''/a', all = true)"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('{outside}/secret.txt')",
        "SELECT * FROM '{outside}/secret.csv'",
        "SELECT * FROM read_text('../secret.txt')",
        "COPY (SELECT 1) TO '{outside}/made.csv'",
        "ATTACH '{outside}/made.db' AS o",
        "SELECT * FROM 'http://127.0.0.1:9/a.csv'",
        "INSTALL httpfs",
        "LOAD '{outside}/made.duckdb_extension'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET lock_configuration = false",
        "SET allowed_configs = ['enable_external_access']",
        "RESET lock_configuration",
        "SET memory_limit = '1TB'",
    ],
)
def test_a_text_reaches_nothing_outside_the_folder(tmp_path: Path, text: str) -> None:
    (tmp_path / "secret.txt").write_text("hush")
    (tmp_path / "secret.csv").write_text("a\nhush\n")
    outcome = run(tmp_path, query=text.format(outside=tmp_path))
    assert outcome.error is not None
    assert not outcome.error.retryable
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["secret.csv", "secret.txt"]


def test_a_link_out_of_the_folder_does_not_open_it(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hush")
    (tmp_path / "execution").mkdir()
    (tmp_path / "execution" / "link").symlink_to(tmp_path)
    assert error(tmp_path, query="SELECT * FROM read_text('link/secret.txt')")[0] == "sql.access"
    assert error(tmp_path, database="link/made.db", query="SELECT 1")[0] == "config.invalid"


def test_a_name_is_never_a_variable_of_the_tool(tmp_path: Path) -> None:
    assert error(tmp_path, query="SELECT * FROM rows")[2] == "CatalogException"


def test_the_time_zone_may_be_set(tmp_path: Path) -> None:
    text = "SET timezone = 'UTC'; SELECT TIMESTAMPTZ '2024-01-01 00:00:00+00' AS t"
    assert rows(tmp_path, query=text) == [{"t": "2024-01-01T00:00:00+00:00"}]


def test_extensions_that_are_not_opened_are_refused(tmp_path: Path) -> None:
    assert rows(tmp_path, query="SELECT 1 AS a", extensions=["json"]) == [{"a": 1}]
    assert error(tmp_path, query="SELECT 1", extensions=["httpfs"]) == ("sql.access", False, None)


def test_cancelling_stops_the_statement(tmp_path: Path) -> None:
    endless = "SELECT count(*) FROM range(1000000000) a, range(10000000) b WHERE hash(a.range + b.range) = 1"

    async def scenario() -> float:
        async with LocalContext(tmp_path) as context:
            running = asyncio.ensure_future(duckdb.run(call("duckdb", {"query": endless}), context))
            await asyncio.wait({running}, timeout=0.2)
            began = time.monotonic()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return time.monotonic() - began

    assert asyncio.run(scenario()) < 5


def test_rows_that_would_fill_the_memory_end_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_rows, "MAX_BYTES", 1 << 20)
    endless = "SELECT range AS i FROM range(1000000000)"
    late = "CASE WHEN range < 1500 THEN '' ELSE repeat('a', 2000000) END"
    for query in (endless, f"SELECT {late} AS a FROM range(1600)", "SELECT range(20000) AS a"):
        assert error(tmp_path, query=query) == ("sql.too_large", False, None), query
    assert len(rows(tmp_path, query=f"{endless} LIMIT 4000")) == 4000
