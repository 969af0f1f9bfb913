"""The `transfer` kind between real databases: types, modes, failures."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import transfer
from tests.unit.tools.local_context import LocalContext, call
from tests.unit.tools.transfer_places import DATABASES, NOWHERE, Places, places_for

PEOPLE = [(1, "Ann", 1.5), (2, None, -2.0), (3, 'quote " comma , line\nend', None), (4, "", 0.0)]
TABLE = "CREATE TABLE {name} (id INTEGER PRIMARY KEY, name TEXT, score DOUBLE PRECISION)"


@pytest.fixture
def places(postgres_dsn: str, tmp_path: Path) -> Iterator[Places]:
    with places_for(postgres_dsn, tmp_path) as found:
        yield found


def test_rows_go_from_one_to_the_next_and_stay_the_same(places: Places) -> None:
    places.sql("sqlite", TABLE.format(name="people"))
    places.fill("people", PEOPLE)
    for kind in ("postgres", "duckdb"):
        places.sql(kind, TABLE.format(name="people"))
    sides = [
        places.at("sqlite", table="people"),
        places.at("csv"),
        places.at("duckdb", table="people"),
        places.at("jsonl"),
        places.at("postgres", table="people"),
        places.at("parquet", url="file://deep/er/p%20q.parquet"),
        places.at("sqlite", table="people", mode="replace"),
    ]
    for source, target in pairwise(sides):
        assert places.moved(source, target, batch_size=3) == (4, 2), target
    for kind in DATABASES:
        assert places.sql(kind, "SELECT * FROM people ORDER BY id") == PEOPLE, kind
    assert (places.folder / "deep/er/p q.parquet").is_file()
    assert places.file("some/rows.csv") == (
        'id,name,score\n1,Ann,1.5\n2,,-2.0\n3,"quote "" comma , line\nend",\n4,"",0.0\n'
    )
    assert places.file("some/rows.jsonl").splitlines()[1] == '{"id":2,"name":null,"score":-2.0}'


TYPED = """
    CREATE TABLE typed (
        i bigint, f float8, n numeric, b boolean, d date, t timestamp, z timestamptz, w interval, x bytea,
        j jsonb, l int[], u uuid, s text
    )
"""
TYPED_ROW = """
    INSERT INTO typed VALUES (
        9007199254740993, 0.1, 12345678901234567890.123456789, true, '2024-02-29', '2024-02-29 10:00:00.5',
        '2024-02-29 10:00:00+02', '1 day 90 seconds', '\\x00ff61', '{"k": [1.50, null, "a\\n"]}',
        '{1,NULL,3}', '00000000-0000-0000-0000-000000000001', 'O''Neil'
    ), (NULL, 'NaN', NULL, false, NULL, NULL, NULL, NULL, '', 'null', '{}', NULL, '')
"""


@pytest.mark.parametrize("way", ["postgres", "duckdb", "csv", "jsonl", "parquet", "sqlite"])
def test_values_of_every_type_come_back_as_they_were(places: Places, way: str) -> None:
    places.sql("postgres", TYPED)
    places.sql("postgres", TYPED_ROW)
    places.sql("postgres", TYPED.replace("typed", "back"))
    if way == "postgres":
        between = places.at("postgres", table="typed")
    else:
        columns = "i BIGINT, f DOUBLE, n DECIMAL(38, 9), b BOOLEAN, d DATE, t TIMESTAMP, z TIMESTAMPTZ, "
        columns += "w INTERVAL, x BLOB, j JSON, l INT[], u UUID, s VARCHAR"
        if way == "sqlite":
            columns = columns.replace("n DECIMAL(38, 9)", "n TEXT").replace("INT[]", "TEXT")
        if way in DATABASES:
            places.sql(way, f"CREATE TABLE between_them ({columns})")
        between = places.at(way, table="between_them") if way in DATABASES else places.at(way)
        assert places.moved(places.at("postgres", table="typed"), between) == (2, 1)
    assert places.moved(between, places.at("postgres", table="back")) == (2, 1)
    shown = "SELECT i, f::text, n::text, b, d, t, z, extract(epoch FROM w)::float, x, j::text, l, u, s"
    shown += " FROM {} ORDER BY i"
    first = places.sql("postgres", shown.format("typed"))
    second = places.sql("postgres", shown.format("back"))
    assert first[0] == second[0]
    expected = list(first[1])
    if way in ("jsonl", "sqlite"):
        expected[1] = None  # neither JSON nor SQLite has NaN
    if way == "jsonl":
        expected[9] = None  # nor can JSON tell a null from none
    assert second[1] == tuple(expected)


@pytest.mark.parametrize("kind", DATABASES)
def test_columns_are_chosen_and_renamed_and_names_are_quoted(places: Places, kind: str) -> None:
    places.file("in.csv", 'id,"the ""v",spare\n1,"x\'); DROP TABLE t; --",9\n2,y,9\n')
    source = {"kind": "file", "url": "in.csv"}
    places.sql(kind, 'CREATE TABLE "odd ""t" (id INT PRIMARY KEY, "the ""v" TEXT)')
    target = places.at(kind, table='odd "t')
    assert places.moved(source, target, columns=['the "v', "id"]) == (2, 1)
    assert places.moved(
        source, {**target, "mode": "upsert", "key": "id"}, columns={"id": "id", "spare": 'the "v'}
    )
    read = places.at(kind, query='SELECT id, "the ""v" AS v FROM "odd ""t" ORDER BY id')
    places.moved(read, NOWHERE, columns={"v": "V"})
    assert places.file("out.csv") == "V\n9\n9\n"
    assert places.error(read, {**NOWHERE, "mode": "replace"}, columns=["nope"]) == (
        "transfer.columns",
        False,
        "source",
    )
    assert "`id`, `v`" in places.message(read, NOWHERE, columns=["nope"])
    for columns in ([], ["id", "id"], {"id": "a", "v": "a"}):
        assert places.error(read, NOWHERE, columns=columns)[0] == "config.invalid"


@pytest.mark.parametrize("kind", DATABASES)
def test_parameters_are_bound(places: Places, kind: str) -> None:
    mark, name = {"postgres": ("$1::text", ":v::text"), "sqlite": ("?", ":v"), "duckdb": ("?", "$v")}[kind]
    for query, params in ((f"SELECT {mark} AS a", ["x'y"]), (f"SELECT {name} AS a", {"v": "x'y"})):
        side = {**places.at(kind, query=query, params=params)}
        if kind != "postgres":
            del side["database"]
        places.moved(side, {**NOWHERE, "mode": "replace"})
        assert places.file("out.csv") == "a\nx'y\n"
        side["params"] = ["x", "y"] if isinstance(params, list) else {}
        assert places.error(side, NOWHERE)[0] in ("config.invalid", "sql.statement")


@pytest.mark.parametrize("kind", DATABASES)
def test_of_rows_with_one_key_the_last_is_kept(places: Places, kind: str) -> None:
    places.sql(kind, "CREATE TABLE t (a INT, b INT, v TEXT, UNIQUE (a, b))")
    places.sql(kind, "INSERT INTO t VALUES (1, 1, 'before'), (9, 9, 'other')")
    places.file("in.csv", "a,b,v\n1,1,first\n2,2,x\n01,1,second\n3,,null\n3,,null\n1,1,third\n2,2,y\n")
    source = {"kind": "file", "url": "in.csv"}
    for size in (3, 100):
        places.sql(kind, "DELETE FROM t WHERE b IS NULL")
        places.moved(source, places.at(kind, table="t", mode="upsert", key=["a", "b"]), batch_size=size)
        assert places.sql(kind, "SELECT a, b, v FROM t ORDER BY a, v") == [
            (1, 1, "third"), (2, 2, "y"), (3, None, "null"), (3, None, "null"), (9, 9, "other"),
        ]  # fmt: skip
    assert places.error(source, places.at(kind, table="t", mode="upsert"))[0] == "config.invalid"
    lacking = places.at(kind, table="t", mode="upsert", key=["a", "b"])
    assert places.error(source, lacking, columns=["a", "v"])[0] == "config.invalid"


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.parametrize("mode", ["insert", "upsert", "replace"])
def test_a_failure_leaves_the_target_as_it_was(places: Places, kind: str, mode: str) -> None:
    places.sql(kind, "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)")
    places.sql(kind, "INSERT INTO t VALUES (1, 10)")
    places.file("in.csv", "id,v\n2,20\n3,30\n4,\n")
    target = places.at(kind, table="t", mode=mode, key="id")
    outcome = places.run({"kind": "file", "url": "in.csv"}, target, batch_size=1)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("sql.constraint", False)
    assert outcome.error.details["side"] == "target"
    assert outcome.groups == {"transfer": {"rows": 2, "batches": 2}}
    assert places.sql(kind, "SELECT * FROM t") == [(1, 10)]
    places.file("in.csv", "id,v\n2,20\n3,broken,30\n")
    assert places.error({"kind": "file", "url": "in.csv"}, target, batch_size=1) == (
        "transfer.row",
        False,
        "source",
    )
    assert places.sql(kind, "SELECT * FROM t") == [(1, 10)]
    places.file("in.csv", "id,v\n1,11\n")
    if mode != "insert":
        places.moved({"kind": "file", "url": "in.csv"}, target)
        assert places.sql(kind, "SELECT * FROM t") == [(1, 11)]


SELECT = {"kind": "sqlite", "query": "SELECT 1 AS a"}


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ({"kind": "s3", "url": "s3://b/k"}, NOWHERE, ("tool.not_runnable", False, "source")),
        (SELECT, {"kind": "snowflake", "table": "t"}, ("tool.not_runnable", False, "target")),
        (SELECT, {"kind": "object", "url": "gs://b/k.csv"}, ("tool.not_runnable", False, "target")),
        (SELECT, {"kind": "ftp", "table": "t"}, ("config.invalid", False, "target")),
        (SELECT, {"kind": "file", "url": "a.txt"}, ("config.invalid", False, "target")),
        (SELECT, {"kind": "file", "url": "../a.csv"}, ("config.invalid", False, "target")),
        (SELECT, {"kind": "file", "url": "file:///etc/a.csv"}, ("config.invalid", False, "target")),
        (SELECT, {"kind": "file"}, ("config.invalid", False, "target")),
        (SELECT, {**NOWHERE, "mode": "upsert", "key": "a"}, ("config.invalid", False, "target")),
        (SELECT, {"kind": "sqlite", "table": "t"}, ("config.invalid", False, "target")),
        (SELECT, {"kind": "duckdb", "database": "../d", "table": "t"}, ("config.invalid", False, "target")),
        (SELECT, {"kind": "sqlite", "database": "t.db", "table": "t"}, ("sql.statement", False, "target")),
        (SELECT, {"kind": "postgres", "table": "t"}, ("config.invalid", False, "target")),
        (SELECT, {"kind": "postgres", "table": "t", "auth": "x"}, ("noetl.error", False, "target")),
        (
            SELECT,
            {"kind": "postgres", "table": "t", "dsn": "host=/nowhere"},
            ("sql.connection", True, "target"),
        ),
        ({"kind": "sqlite"}, NOWHERE, ("config.invalid", False, "source")),
        ({"kind": "sqlite", "database": "no.db", "table": "t"}, NOWHERE, ("sql.statement", False, "source")),
        ({"kind": "duckdb", "database": "no.db", "table": "t"}, NOWHERE, ("sql.statement", False, "source")),
        ({"kind": "sqlite", "query": "SELECT 1; SELECT 2"}, NOWHERE, ("config.invalid", False, "source")),
        ({"kind": "duckdb", "query": "SELECT 1; SELECT 2"}, NOWHERE, ("config.invalid", False, "source")),
        ({"kind": "duckdb", "query": "CREATE TABLE t (a INT)"}, NOWHERE, ("config.invalid", False, "source")),
        ({"kind": "duckdb", "query": "FROM '/etc/x.csv'"}, NOWHERE, ("sql.access", False, "source")),
        ({"kind": "sqlite", "query": "CREATE TABLE t (a)"}, NOWHERE, ("config.invalid", False, "source")),
        ({"kind": "file", "url": "no.csv"}, NOWHERE, ("transfer.file", False, "source")),
        ({"kind": "file", "url": "no.parquet"}, NOWHERE, ("transfer.file", False, "source")),
        ({"kind": "file", "url": "a.csv", "query": "SELECT 1"}, NOWHERE, ("config.invalid", False, "source")),
        (
            {"kind": "sqlite", "database": "a.db", "table": "t"},
            {"kind": "sqlite", "database": "./x/../a.db", "table": "u"},
            ("config.invalid", False, None),
        ),
    ],
)
def test_what_cannot_work_is_told_with_its_side(
    tmp_path: Path, source: dict[str, Any], target: dict[str, Any], expected: tuple[str, bool, str | None]
) -> None:
    places = Places("", tmp_path)
    assert places.error(source, target) == expected
    assert not (places.folder / "out.csv").exists()


def test_the_source_of_a_server_is_only_read_and_only_as_far_as_needed(places: Places) -> None:
    places.sql("postgres", "CREATE TABLE t (id int CHECK (id < 5)); CREATE SEQUENCE s")
    writing = places.at("postgres", query="SELECT nextval('s') AS n")
    assert places.error(writing, NOWHERE)[0] == "sql.statement"
    assert places.error(places.at("postgres", query="DELETE FROM t"), NOWHERE)[0] == "sql.statement"
    endless = places.at("postgres", query="SELECT generate_series(1, 2000000000) AS id")
    began = time.monotonic()
    assert places.error(endless, places.at("postgres", table="t"), batch_size=2)[0] == "sql.constraint"
    assert time.monotonic() - began < 5


def test_a_connection_that_breaks_may_be_retried_and_leaves_nothing(places: Places) -> None:
    places.sql("postgres", "CREATE TABLE t (id int)")
    kill = "SELECT i, CASE WHEN i = 3 THEN pg_terminate_backend(pg_backend_pid())::int END AS k"
    source = places.at("postgres", query=f"{kill} FROM generate_series(1, 9) i")
    target = places.at("postgres", table="t")
    assert places.error(source, target, columns={"i": "id"}, batch_size=1) == (
        "sql.connection",
        True,
        "source",
    )
    assert places.sql("postgres", "SELECT * FROM t") == []
    places.sql("postgres", """
        CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
        CREATE TRIGGER dies BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION die()
    """)  # fmt: skip
    counted = places.at("postgres", query="SELECT i AS id FROM generate_series(1, 9) i")
    assert places.error(counted, target, batch_size=1) == ("sql.connection", True, "target")
    assert places.sql("postgres", "SELECT * FROM t") == []


def test_many_transfers_on_one_server_do_not_wait_for_each_other_for_ever(places: Places) -> None:
    places.sql("postgres", "CREATE TABLE t (id int)")
    source = places.at("postgres", query="SELECT i AS id FROM generate_series(1, 3) i")

    async def scenario() -> list[Outcome]:
        async with LocalContext(places.outer) as context:
            task = call("transfer", {"source": source, "target": places.at("postgres", table="t")})
            async with asyncio.timeout(20):
                return list(await asyncio.gather(*(transfer.run(task, context) for _ in range(24))))

    assert {outcome.status for outcome in asyncio.run(scenario())} == {"ok"}
    assert places.sql("postgres", "SELECT count(*) FROM t") == [(72,)]


@pytest.mark.parametrize("kind", [*DATABASES, "csv"])
def test_a_transfer_that_is_cancelled_leaves_nothing(places: Places, kind: str) -> None:
    if kind in DATABASES:
        places.sql(kind, "CREATE TABLE t (i BIGINT)")
    slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    source = {"kind": "sqlite", "query": slow}
    target = places.at(kind, table="t") if kind in DATABASES else NOWHERE

    async def scenario() -> None:
        async with LocalContext(places.outer) as context:
            task = call("transfer", {"source": source, "target": target, "batch_size": 500})
            running = asyncio.ensure_future(transfer.run(task, context))
            steps: set[threading.Thread] = set()
            while len(steps) < 10:  # the source never ends, so it is in the middle then
                steps |= {thread for thread in threading.enumerate() if thread.name == "noetl-sql"}
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(scenario())
    if kind in DATABASES:
        assert places.sql(kind, "SELECT count(*) FROM t") == [(0,)]
    else:
        assert not (places.folder / "out.csv").exists()


def test_the_task_s_auth_serves_the_sides_that_have_none_and_passwords_are_kept_out(places: Places) -> None:
    places.sql("postgres", "CREATE TABLE t (a int)")
    assert places.moved(SELECT, {"kind": "postgres", "table": "t"}, auth={"dsn": places.dsn}) == (1, 1)
    dsn = places.dsn.replace("postgres:@", "postgres:hunter22@")
    assert places.moved(SELECT, {"kind": "postgres", "table": "t", "dsn": dsn}, auth="unknown") == (1, 1)
    assert "hunter22" in places.secrets
    broken = {"kind": "postgres", "table": "t", "dsn": "postgres://u:hunter22@host:port:1/x y="}
    assert "hunter22" not in places.message(SELECT, broken)


@pytest.mark.parametrize(
    ("kind", "library"), [("postgres", "psycopg"), ("duckdb", "duckdb"), ("file", "duckdb")]
)
def test_a_library_that_is_not_installed_is_named(
    tmp_path: Path, kind: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places("", tmp_path)
    for name in [name for name in sys.modules if name.startswith("noetl.tools.transfer_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"noetl.tools.{library}_calls", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    target = {"kind": kind, "table": "t"} if kind != "file" else {"kind": kind, "url": "out.parquet"}
    assert places.error(SELECT, target) == ("tool.not_installed", False, "target")
