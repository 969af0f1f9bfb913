"""The `sqlite` kind on real files."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import sql_rows, sqlite, sqlite_calls
from tests.unit.tools.local_context import LocalContext, call

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def run(folder: Path, *, args: Any = None, **config: Any) -> Outcome:
    async def scenario() -> Outcome:
        async with LocalContext(folder) as context:
            return await sqlite.run(call("sqlite", config, args=args), context)

    return asyncio.run(scenario())


def rows(folder: Path, *, args: Any = None, **config: Any) -> Any:
    outcome = run(folder, args=args, **config)
    assert outcome.status == "ok", outcome.error
    assert outcome.groups == {"sqlite": {"code": None}}
    return outcome.result


def error(folder: Path, *, args: Any = None, **config: Any) -> tuple[str, bool, str | None]:
    outcome = run(folder, args=args, **config)
    assert outcome.error is not None
    return outcome.error.kind, outcome.error.retryable, outcome.groups["sqlite"]["code"]


def test_rows_are_mappings_with_values_as_json(tmp_path: Path) -> None:
    query = "SELECT 1 AS i, 1.5 AS f, 'é' AS t, NULL AS n, x'00ff' AS b, 2 AS i"
    assert rows(tmp_path, query=query) == [{"i": 1, "f": 1.5, "t": "é", "n": None, "b": "AP8=", "i_1": 2}]


def test_the_result_is_of_the_last_statement_that_returns_rows(tmp_path: Path) -> None:
    text = "CREATE TABLE t (a); INSERT INTO t VALUES (1), ('a;b'); SELECT a FROM t; DELETE FROM t; -- end;"
    assert rows(tmp_path, command=text) == [{"a": 1}, {"a": "a;b"}]
    assert rows(tmp_path, query="CREATE TABLE t (a)") == []
    assert rows(tmp_path, query="CREATE TABLE t (a); INSERT INTO t VALUES (1) RETURNING a") == [{"a": 1}]


def test_a_trigger_is_one_statement(tmp_path: Path) -> None:
    text = """
        CREATE TABLE t (a); CREATE TABLE log (a);
        CREATE TRIGGER keep AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.a); SELECT 1; END;
        INSERT INTO t VALUES (7); SELECT a FROM log;
    """
    assert rows(tmp_path, query=text) == [{"a": 7}]


def test_a_named_file_is_kept_for_later_calls_and_one_in_memory_is_not(tmp_path: Path) -> None:
    rows(tmp_path, query="CREATE TABLE t (a)", database="deep/seen.db")
    assert (tmp_path / "execution" / "deep" / "seen.db").exists()
    assert rows(tmp_path, query="SELECT * FROM t", dsn="deep/seen.db") == []
    rows(tmp_path, query="CREATE TABLE m (a)")
    assert error(tmp_path, query="SELECT * FROM m") == ("sql.statement", False, "SQLITE_ERROR")


def test_parameters_are_bound_by_name_and_by_position(tmp_path: Path) -> None:
    assert rows(tmp_path, query="SELECT :a AS a, '?' AS b", params={"a": "x'y", "spare": 1}) == [
        {"a": "x'y", "b": "?"}
    ]
    text = "CREATE TABLE t (a, b); INSERT INTO t VALUES (?, ?); SELECT * FROM t WHERE a = ?"
    assert rows(tmp_path, query=text, params=[1, {"k": [2]}, 1]) == [{"a": 1, "b": '{"k":[2]}'}]
    for params in ([1], [1, 2, 3]):
        assert error(tmp_path, query="SELECT ?, ?", params=params)[0] == "config.invalid"


def test_rows_are_inserted_and_upserted_with_names_quoted(tmp_path: Path) -> None:
    def write(args: Any, **config: Any) -> Any:
        return rows(tmp_path, database="a.db", table='odd "t', args=args, **config)

    rows(tmp_path, database="a.db", query='CREATE TABLE "odd ""t" (id PRIMARY KEY, "the ""v" DEFAULT 9, c)')
    assert write({"id": 1, 'the "v': "x'); DROP TABLE t; --"}) == []
    write([{"id": 2, "c": {"a": 1}}, {"id": 3}])
    write([{"id": 2, "c": "new"}, {"id": 4, "c": "n"}], mode="upsert", key="id")
    write({"id": 4}, mode="upsert", key=["id"])
    assert rows(tmp_path, database="a.db", query='SELECT * FROM "odd ""t" ORDER BY id') == [
        {"id": 1, 'the "v': "x'); DROP TABLE t; --", "c": None},
        {"id": 2, 'the "v': 9, "c": "new"},
        {"id": 3, 'the "v': 9, "c": None},
        {"id": 4, 'the "v': 9, "c": "n"},
    ]


@pytest.mark.parametrize(
    ("args", "config"),
    [
        ({"id": 1}, {"mode": "upsert"}),
        ({"a": 1}, {"mode": "upsert", "key": "id"}),
        ([1], {}),
        ({}, {}),
        ({"id": 2**70}, {}),
        ({"id": 1}, {"query": "SELECT 1"}),
    ],
)
def test_a_write_that_cannot_work_is_told(tmp_path: Path, args: Any, config: dict[str, Any]) -> None:
    kept = tmp_path / "execution"
    kept.mkdir()
    sqlite3.connect(kept / "a.db").execute("CREATE TABLE t (id PRIMARY KEY, a)").connection.close()
    assert error(tmp_path, database="a.db", table="t", args=args, **config) == ("config.invalid", False, None)


def test_a_call_is_one_transaction(tmp_path: Path) -> None:
    rows(tmp_path, database="a.db", query="CREATE TABLE t (a UNIQUE)")
    failing = "INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)"
    assert error(tmp_path, database="a.db", query=failing) == (
        "sql.constraint",
        False,
        "SQLITE_CONSTRAINT_UNIQUE",
    )
    assert error(tmp_path, database="a.db", table="t", args=[{"a": 2}, {"a": 2}])[0] == "sql.constraint"
    assert rows(tmp_path, database="a.db", query="SELECT * FROM t") == []
    own = "BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (1)"
    assert error(tmp_path, database="a.db", query=own)[0] == "sql.constraint"
    assert rows(tmp_path, database="a.db", query="SELECT * FROM t") == [{"a": 1}]
    left_open = "BEGIN; INSERT INTO t VALUES (5)"
    assert error(tmp_path, database="a.db", query=left_open)[0] == "sql.open_transaction"
    assert rows(tmp_path, database="a.db", query="SELECT * FROM t") == [{"a": 1}]


def test_pragmas_work_before_the_transaction(tmp_path: Path) -> None:
    text = """
        PRAGMA foreign_keys = ON;
        CREATE TABLE a (id PRIMARY KEY); CREATE TABLE b (a REFERENCES a (id));
        INSERT INTO b VALUES (1)
    """
    assert error(tmp_path, query=text)[0] == "sql.constraint"


def test_a_locked_database_may_be_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_calls, "BUSY_SECONDS", 0.01)
    rows(tmp_path, database="a.db", query="CREATE TABLE t (a)")
    other = sqlite3.connect(tmp_path / "execution" / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    found = error(tmp_path, database="a.db", query="INSERT INTO t VALUES (1)")
    other.close()
    assert found == ("sql.conflict", True, "SQLITE_BUSY")


@pytest.mark.parametrize("database", ["../a.db", "/etc/hosts", "a/../../b.db"])
def test_a_database_outside_the_folder_is_refused(tmp_path: Path, database: str) -> None:
    assert error(tmp_path, database=database, query="SELECT 1") == ("config.invalid", False, None)


@pytest.mark.parametrize(
    "text",
    [
        "ATTACH '{outside}' AS o",
        "ATTACH 'file:{outside}' AS o",
        "ATTACH '{outside}' || '' AS o",
        "ATTACH 'relative.db' AS o",
        "VACUUM INTO '{outside}'",
    ],
)
def test_a_text_reaches_no_file_outside_the_folder(tmp_path: Path, text: str) -> None:
    outside = tmp_path / "outside.db"
    assert run(tmp_path, database="a.db", query=text.format(outside=outside)).error is not None
    assert not outside.exists()
    assert not Path("relative.db").exists()


def test_a_text_attaches_a_file_inside_the_folder(tmp_path: Path) -> None:
    inside = (tmp_path / "execution").resolve() / "b.db"
    text = f"ATTACH '{inside}' AS b; CREATE TABLE b.t (a); SELECT name FROM b.sqlite_master"
    assert rows(tmp_path, database="a.db", query=text) == [{"name": "t"}]


def test_a_file_opened_for_reading_is_not_written(tmp_path: Path) -> None:
    rows(tmp_path, database="a.db", query="CREATE TABLE t (a)")
    found = error(tmp_path, database="a.db", read_only=True, query="INSERT INTO t VALUES (1)")
    assert found == ("sql.statement", False, "SQLITE_READONLY")
    assert error(tmp_path, database="none.db", read_only=True, query="SELECT 1")[2] == "SQLITE_CANTOPEN"


def test_cancelling_stops_the_statement(tmp_path: Path) -> None:
    async def scenario() -> float:
        async with LocalContext(tmp_path) as context:
            running = asyncio.ensure_future(sqlite.run(call("sqlite", {"query": ENDLESS}), context))
            await asyncio.wait({running}, timeout=0.1)
            began = time.monotonic()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return time.monotonic() - began

    assert asyncio.run(scenario()) < 2


def test_a_config_that_does_not_fit_is_told(tmp_path: Path) -> None:
    assert error(tmp_path, query=5) == ("config.invalid", False, None)
    assert error(tmp_path, query=" ") == ("config.invalid", False, None)


def test_rows_that_would_fill_the_memory_end_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_rows, "MAX_BYTES", 1 << 20)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    assert error(tmp_path, query=endless) == ("sql.too_large", False, None)
    for value in ("hex(zeroblob(600000))", "zeroblob(900000)", "replace(hex(zeroblob(150000)), '0', '😀')"):
        assert error(tmp_path, query=f"SELECT {value} AS a") == ("sql.too_large", False, None), value
    assert len(rows(tmp_path, query=f"{endless} LIMIT 4000")) == 4000


def test_a_value_that_would_fill_the_memory_is_not_made(tmp_path: Path) -> None:
    found = error(tmp_path, query="SELECT hex(zeroblob(490000000)) AS a")
    assert found == ("sql.too_large", False, "SQLITE_TOOBIG")
