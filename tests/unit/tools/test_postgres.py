"""The `postgres` kind on a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import postgres, sql_rows
from tests.unit.tools.local_context import LocalContext, call

psycopg = pytest.importorskip("psycopg")

OK = {"pg": {"code": None, "sqlstate": None}}


class Database:
    """A server, and a schema of the test's own."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder

    def run(self, *, args: Any = None, **config: Any) -> Outcome:
        async def scenario() -> Outcome:
            async with LocalContext(self.folder) as context:
                return await postgres.run(call("postgres", {"dsn": self.dsn, **config}, args=args), context)

        return asyncio.run(scenario())

    def rows(self, *, args: Any = None, **config: Any) -> Any:
        outcome = self.run(args=args, **config)
        assert outcome.status == "ok", outcome.error
        assert outcome.groups == OK
        return outcome.result

    def error(self, *, args: Any = None, **config: Any) -> tuple[str, bool, str | None, str | None]:
        outcome = self.run(args=args, **config)
        assert outcome.error is not None
        group = outcome.groups["pg"]
        return outcome.error.kind, outcome.error.retryable, group["code"], group["sqlstate"]

    def together(self, scenario: Callable[[LocalContext], Awaitable[Any]]) -> Any:
        async def inner() -> Any:
            async with LocalContext(self.folder) as context:
                return await scenario(context)

        return asyncio.run(inner())

    def call(self, query: str, **config: Any) -> Any:
        return call("postgres", {"dsn": self.dsn, "query": query, **config})


@pytest.fixture
def database(postgres_dsn: str, tmp_path: Path) -> Database:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS test CASCADE; CREATE SCHEMA test")
    return Database(f"{postgres_dsn}&options=-csearch_path%3Dtest", tmp_path)


def test_rows_are_mappings_with_values_as_json(database: Database) -> None:
    query = """
        SELECT 1 AS i, 0.5::float8 AS f, 1.10::numeric AS d, 123456789012345678901.5::numeric AS exact,
               DATE '2024-02-29' AS day, TIMESTAMPTZ '2024-02-29 10:00:00+00' AT TIME ZONE 'UTC' AS t,
               INTERVAL '90 seconds' AS w, '\\x6162'::bytea AS b, ARRAY[1, NULL] AS l,
               '{"k": [1.5, null]}'::jsonb AS j, 'NaN'::float8 AS n, '-Infinity'::float8 AS inf,
               '00000000-0000-0000-0000-000000000001'::uuid AS u, '10.0.0.1'::inet AS a, int4range(1, 5) AS r
    """
    assert database.rows(query=query) == [{
        "i": 1, "f": 0.5, "d": 1.1, "exact": "123456789012345678901.5", "day": "2024-02-29",
        "t": "2024-02-29T10:00:00", "w": 90.0, "b": "YWI=", "l": [1, None], "j": {"k": [1.5, None]},
        "n": None, "inf": "-Infinity", "u": "00000000-0000-0000-0000-000000000001", "a": "10.0.0.1",
        "r": "[1, 5)",
    }]  # fmt: skip


def test_the_result_is_of_the_last_statement_that_returns_rows(database: Database) -> None:
    text = "CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2); SELECT a FROM t; DELETE FROM t"
    assert database.rows(command=text) == [{"a": 1}, {"a": 2}]
    assert database.rows(query="INSERT INTO t VALUES (4) RETURNING a") == [{"a": 4}]
    assert database.rows(query="CREATE TABLE u (a int)") == []
    assert database.rows(query="-- nothing") == []


def test_a_percent_sign_is_only_that(database: Database) -> None:
    assert database.rows(query="SELECT 'a%s %(b)s %%' AS a, 7 % 4 AS b") == [{"a": "a%s %(b)s %%", "b": 3}]


def test_parameters_are_bound_by_name_and_by_position(database: Database) -> None:
    assert database.rows(query="SELECT $1::text AS a, $2::int AS b, '$1' AS c", params=["x'y", 2]) == [
        {"a": "x'y", "b": 2, "c": "$1"}
    ]
    assert database.rows(query="SELECT %s::text AS a, '%s' AS b", params=["x"]) == [{"a": "x", "b": "%s"}]
    text = "SELECT %(a)s::int + :a AS a, :b::jsonb AS b, (ARRAY[1,2,3])[1:2] AS c, ':a' AS d, :l::int[] AS l"
    assert database.rows(query=text, params={"a": 2, "b": {"k": 1}, "l": [1, 2], "spare": 0}) == [
        {"a": 4, "b": {"k": 1}, "c": [1, 2], "d": ":a", "l": [1, 2]}
    ]
    for params in ([1], [1, 2, 3], {"a": 1}):
        assert database.error(query="SELECT %s, %s, %(b)s", params=params)[0] == "config.invalid"


def test_several_statements_with_parameters_are_one_transaction(database: Database) -> None:
    text = """
        CREATE TABLE t (a int UNIQUE); INSERT INTO t VALUES (:a); SELECT a FROM t WHERE a = :a;
        COMMENT ON TABLE t IS 'x;y' -- ; :a
    """
    assert database.rows(query=text, params={"a": 1}) == [{"a": 1}]
    failing = "INSERT INTO t VALUES (%s); INSERT INTO t VALUES (%s)"
    assert database.error(query=failing, params=[2, 2])[0] == "sql.constraint"
    assert database.rows(query="SELECT a FROM t") == [{"a": 1}]


def test_a_text_is_one_transaction_unless_it_manages_its_own(database: Database) -> None:
    database.rows(query="CREATE TABLE t (a int UNIQUE)")
    assert database.error(query="INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)") == (
        "sql.constraint",
        False,
        "unique_violation",
        "23505",
    )
    assert database.rows(query="SELECT a FROM t") == []
    own = "BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (1)"
    assert database.error(query=own)[0] == "sql.constraint"
    assert database.rows(query="SELECT a FROM t") == [{"a": 1}]
    assert database.error(query="BEGIN; DELETE FROM t")[0] == "sql.open_transaction"
    assert database.rows(query="SELECT a FROM t") == [{"a": 1}]
    assert database.rows(query="VACUUM t") == []


def test_rows_are_inserted_and_upserted_with_the_columns_types(database: Database) -> None:
    columns = 'id int PRIMARY KEY, "the ""v" text DEFAULT \'d\', l int[], j jsonb, t timestamptz, n numeric'
    database.rows(query=f'CREATE TABLE "odd ""t" ({columns}, g int GENERATED ALWAYS AS (id + 1) STORED)')

    def write(args: Any, **config: Any) -> Any:
        return database.rows(table='test.odd "t', args=args, **config)

    big = 10**30 + 1
    row = {"id": 1, 'the "v': "x'); DROP TABLE t; --", "l": [1, 2], "j": {"a": [1]}, "n": big}
    assert write({**row, "t": "2024-01-01Z"}) == []
    write([{"id": 2}, {"id": 3, "j": [1, "a"]}, {"id": 4, "j": None}])
    write([{"id": 2, 'the "v': "new"}, {"id": 5, 'the "v': None}], mode="upsert", key="id")
    write({"id": 2}, mode="upsert", key=["id"])
    query = 'SELECT id, "the ""v" AS v, l, j, n, g FROM "odd ""t" ORDER BY id'
    assert database.rows(query=query) == [
        {"id": 1, "v": "x'); DROP TABLE t; --", "l": [1, 2], "j": {"a": [1]}, "n": big, "g": 2},
        {"id": 2, "v": "new", "l": None, "j": None, "n": None, "g": 3},
        {"id": 3, "v": "d", "l": None, "j": [1, "a"], "n": None, "g": 4},
        {"id": 4, "v": "d", "l": None, "j": None, "n": None, "g": 5},
        {"id": 5, "v": None, "l": None, "j": None, "n": None, "g": 6},
    ]
    assert database.error(table='odd "t', args=[{"id": 9}, {"id": 1}])[3] == "23505"
    assert database.rows(query='SELECT 1 FROM "odd ""t" WHERE id = 9') == []
    assert database.error(table="t", args={"id": 1}, mode="upsert")[0] == "config.invalid"
    assert database.error(table='odd "t', args={"id": 7, 'the "v': "a\0b"})[:2] == ("sql.statement", False)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELEC 1", ("sql.statement", False, "syntax_error", "42601")),
        ("SELECT * FROM nowhere", ("sql.statement", False, "undefined_table", "42P01")),
        ("SELECT 1 / 0", ("sql.statement", False, "division_by_zero", "22012")),
        ("SET statement_timeout = 20; SELECT pg_sleep(60)", ("timeout", True, "query_canceled", "57014")),
        (
            "SELECT pg_terminate_backend(pg_backend_pid())",
            ("sql.connection", True, "admin_shutdown", "57P01"),
        ),
        (
            "DO $$ BEGIN RAISE serialization_failure; END $$",
            ("sql.conflict", True, "serialization_failure", "40001"),
        ),
        ("DO $$ BEGIN RAISE deadlock_detected; END $$", ("sql.conflict", True, "deadlock_detected", "40P01")),
        (
            "SET ROLE pg_monitor; CREATE TABLE test.x ()",
            ("sql.access", False, "insufficient_privilege", "42501"),
        ),
    ],
)
def test_errors_say_their_code_and_whether_to_retry(
    database: Database, query: str, expected: tuple[str, bool, str, str]
) -> None:
    assert database.error(query=query) == expected


def test_a_server_that_is_not_there_may_be_retried_and_a_missing_database_not(database: Database) -> None:
    nowhere = database.error(dsn="host=/nowhere dbname=x", query="SELECT 1")
    assert nowhere == ("sql.connection", True, None, None)
    assert database.error(query="SELECT 1", database="missing")[:2] == ("sql.access", False)


def test_a_broken_dsn_is_told_without_showing_it(database: Database) -> None:
    outcome = database.run(dsn="postgres://u:hunter22@host:port:1/x y=", query="SELECT 1")
    assert outcome.error is not None
    assert outcome.error.kind == "config.invalid"
    assert "hunter22" not in outcome.error.message


def test_the_connection_comes_from_a_credential_in_any_form(database: Database, tmp_path: Path) -> None:
    host = database.dsn.partition("host=")[2].partition("&")[0]
    fields = {"db_host": host, "username": "postgres", "password": "", "database": "postgres", "type": "x"}
    credentials = {"pg_shop": fields, "pg_text": {"value": database.dsn}}

    async def scenario() -> list[Any]:
        async with LocalContext(tmp_path, credentials=credentials) as context:
            found = []
            whole: dict[str, Any] = {"dsn": database.dsn}
            given: list[Any] = ["pg_shop", "pg_text", fields, whole, database.dsn, "unknown", {}, None]
            for auth in given:
                each = call("postgres", {"query": "SELECT 1 AS a", "auth": auth})
                outcome = await postgres.run(each, context)
                found.append(outcome.result if outcome.error is None else outcome.error.kind)
            assert len(context.made) == 2
            return found

    assert asyncio.run(scenario()) == [[{"a": 1}]] * 5 + ["noetl.error", "config.invalid", "config.invalid"]


def test_connections_are_pooled_and_clean_again_for_the_next_call(database: Database) -> None:
    async def scenario(context: LocalContext) -> None:
        async def rows(query: str) -> Any:
            outcome = await postgres.run(database.call(query), context)
            assert outcome.error is None, outcome.error
            return outcome.result

        first = await rows("SELECT pg_backend_pid() AS pid; CREATE TEMP TABLE left_over (a int)")
        await rows("SET standard_conforming_strings = off; SET client_encoding = 'LATIN1'")
        assert await rows("SELECT pg_backend_pid() AS pid") == first
        assert await rows("SHOW standard_conforming_strings") == [{"standard_conforming_strings": "on"}]
        assert await rows("SHOW client_encoding") == [{"client_encoding": "UTF8"}]
        assert await rows("SELECT to_regclass('left_over') AS a") == [{"a": None}]
        slow = "SELECT pg_backend_pid() AS pid FROM pg_sleep(0.01)"
        many = await asyncio.gather(*(rows(slow) for _ in range(40)))
        assert 1 < len({row[0]["pid"] for row in many}) <= 16

    database.together(scenario)


def test_a_role_whose_strings_take_escapes_is_set_right(database: Database) -> None:
    database.rows(
        query="DO $$ BEGIN CREATE ROLE odd_strings LOGIN; EXCEPTION WHEN duplicate_object THEN END $$;"
        "ALTER ROLE odd_strings SET standard_conforming_strings = off"
    )
    dsn = database.dsn.replace("postgres:@", "odd_strings:@")
    assert database.rows(dsn=dsn, query="SELECT '\\' AS a, current_user::text AS u") == [
        {"a": "\\", "u": "odd_strings"}
    ]
    text = "SET standard_conforming_strings = off; SELECT $1"
    assert database.error(dsn=dsn, query=text, params=["x"])[0] == "sql.connection"


def test_a_connection_that_died_while_idle_is_replaced(database: Database) -> None:
    async def scenario(context: LocalContext) -> None:
        first = await postgres.run(database.call("SELECT pg_backend_pid() AS pid"), context)
        with psycopg.connect(database.dsn, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [first.result[0]["pid"]])
        again = await postgres.run(database.call("SELECT pg_backend_pid() AS pid"), context)
        assert again.error is None
        assert again.result != first.result

    database.together(scenario)


def test_cancelling_stops_the_statement_on_the_server(database: Database) -> None:
    async def scenario(context: LocalContext) -> float:
        endless = database.call("SELECT pg_sleep(600) AS marked")
        running = asyncio.ensure_future(postgres.run(endless, context))
        watching = """
            SELECT count(*) AS n FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%AS marked'
        """

        async def active() -> int:
            found: int = (await postgres.run(database.call(watching), context)).result[0]["n"]
            return found

        async with asyncio.timeout(20):
            while await active() == 0:
                await asyncio.sleep(0)
            began = time.monotonic()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            took = time.monotonic() - began
            while await active() > 0:
                await asyncio.sleep(0)
        return took

    assert database.together(scenario) < 5


def test_rows_that_would_fill_the_memory_end_the_call(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_rows, "MAX_BYTES", 1 << 20)
    endless = "SELECT generate_series(1, 1000000000000) AS i"

    async def scenario(context: LocalContext) -> list[Outcome]:
        ways = (
            database.call(endless),
            database.call("SELECT generate_series($1, 1000000000000) AS i", params=[1]),
        )
        return [await postgres.run(each, context) for each in (*ways, database.call("SELECT 1 AS a"))]

    first, second, after = database.together(scenario)
    assert [each.error.kind for each in (first, second)] == ["sql.too_large"] * 2
    assert after.result == [{"a": 1}]
    assert len(database.rows(query=f"{endless} LIMIT 4000")) == 4000


def test_what_looks_like_a_query_and_gives_no_rows_is_run_once(database: Database) -> None:
    assert database.rows(query="SELECT 1 AS a INTO t") == []
    assert database.rows(query="WITH x AS (SELECT 2 AS a) INSERT INTO t SELECT a FROM x") == []
    assert database.rows(query="TABLE t ORDER BY a") == [{"a": 1}, {"a": 2}]
    assert database.rows(query="SELECT a FROM t WHERE a > 2") == []
