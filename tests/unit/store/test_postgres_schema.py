"""The schema of a PostgreSQL store: migrations, partitions, and what is said where something is wrong."""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from noetl.cli import main
from noetl.ids import EPOCH_MS
from noetl.store.open import open_any
from noetl.store.postgres import PostgresStore, open_postgres
from noetl.store.postgres_errors import refusal, shown_address
from noetl.store.postgres_schema import examine, migrate
from noetl.store.protocol import StoreError
from noetl.store.queries import FOLDER
from tests.contract.store.changes import change, command, event, execution, timer

WEEK_MS = 604_800_000


def ask(url: str, query: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


def test_an_empty_database_gets_every_migration_once(bare_database: str) -> None:
    names = ["001 tables", "002 registry", "003 functions", "004 lists", "005 token_pools"]
    assert migrate(bare_database) == names
    assert migrate(bare_database) == []
    assert ask(bare_database, "SELECT version FROM noetl.migration ORDER BY 1") == [(n,) for n in range(1, 6)]
    open_postgres(bare_database)


def test_processes_that_migrate_at_once_take_turns(bare_database: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        applied = list(threads.map(lambda _: migrate(bare_database), range(4)))
    assert sorted(map(len, applied)) == [0, 0, 0, 5]


def test_a_migration_that_fails_leaves_nothing_behind(bare_database: str) -> None:
    ask(bare_database, "CREATE SCHEMA noetl")
    ask(bare_database, "CREATE TABLE noetl.timer (of_another_program INT)")
    with pytest.raises(StoreError, match="refused a statement"):
        migrate(bare_database)
    assert ask(bare_database, "SELECT to_regclass('noetl.migration'), to_regclass('noetl.event')") == [
        (None, None)
    ]


@pytest.mark.parametrize("opening", [open_postgres, examine, lambda url: migrate(url, create=False)])
def test_a_database_without_a_schema_says_how_to_make_it(bare_database: str, opening: Any) -> None:
    with pytest.raises(StoreError, match="noetl db init"):
        opening(bare_database)


def test_an_older_schema_says_how_to_migrate_it(database: str) -> None:
    ask(database, "DELETE FROM noetl.migration WHERE version = 3")
    with pytest.raises(StoreError, match=r"003 functions is not applied.*noetl db migrate"):
        open_postgres(database)


def test_a_newer_schema_is_left_alone(database: str) -> None:
    ask(database, "INSERT INTO noetl.migration VALUES (999, 'later', 'x')")
    for opening in (open_postgres, migrate, examine):
        with pytest.raises(StoreError, match=r"999.*does not know"):
            opening(database)


def test_a_migration_that_was_changed_after_it_was_applied_is_found(database: str) -> None:
    ask(database, "UPDATE noetl.migration SET checksum = 'other' WHERE version = 1")
    with pytest.raises(StoreError, match="another text"):
        migrate(database)


def test_a_server_that_is_not_there_is_told_without_the_password(shared_server: Any) -> None:
    with pytest.raises(StoreError, match="does not answer") as refused:
        open_any("postgresql://me:geheim@localhost:1/orders")
    assert "orders at localhost:1" in refused.value.message
    assert "geheim" not in refused.value.message
    with pytest.raises(StoreError, match="no such database"):
        open_any(shared_server.get_uri("nowhere"))
    with pytest.raises(StoreError, match="no such user"):
        open_any(shared_server.get_uri().replace("postgres:@", "nobody:@"))
    with pytest.raises(StoreError, match="cannot be read"):
        open_any("postgresql://host:port/x?nonsense=1")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('FATAL: password authentication failed for user "me"', "password is wrong"),
        ("fe_sendauth: no password supplied", "wants a password"),
        ("FATAL: the database system is starting up", "Try again"),
        ("FATAL: sorry, too many clients already", "max_connections"),
        ('FATAL: no pg_hba.conf entry for host "1.2.3.4"', "pg_hba.conf"),
        ("something in another language", "does not answer"),
    ],
)
def test_a_refused_connection_says_what_to_do(said: str, told: str) -> None:
    assert told in refusal(psycopg.OperationalError(said), "postgresql://me:x@db/orders").message
    assert shown_address("host=db dbname=orders password=x") == "PostgreSQL database orders at db:5432"


def test_a_user_without_rights_is_told_so(database: str) -> None:
    ask(database, "DO $$ BEGIN CREATE ROLE stranger LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")

    async def scenario() -> None:
        store = PostgresStore(database.replace("postgres:@", "stranger:@"))
        try:
            with pytest.raises(StoreError, match="Grant it"):
                await store.execution("1")
            with pytest.raises(StoreError, match="Grant it"):
                await store.append(change("1"))
        finally:
            await store.close()

    asyncio.run(scenario())


# --- partitions ---------------------------------------------------------------------------------------------


def id_in_week(week: int, place: int = 1) -> str:
    return str(((week * WEEK_MS + place) << 22) + place)


def partitions_of(url: str) -> dict[str, int]:
    query = "SELECT tableoid::regclass::text, count(*) FROM noetl.event GROUP BY 1"
    return dict(ask(url, query))


def drop_weeks(url: str) -> None:
    for (name,) in ask(url, "SELECT partition FROM noetl.weeks()"):
        ask(url, f"DROP TABLE noetl.{name}")


def test_events_lie_in_the_partition_of_their_week_and_hashes_in_the_last(database: str) -> None:
    (first, until) = ask(database, "SELECT min(first_id), max(next_id) FROM noetl.weeks()")[0]
    a_hash = "9000000000000000000"
    assert int(a_hash) > until

    async def scenario() -> None:
        store = open_postgres(database)
        for each in (str(first), str(first + (WEEK_MS << 22)), str(first - 1), a_hash):
            await store.append(change(each))
            assert len(await store.events(each)) == 1
        await store.close()

    asyncio.run(scenario())
    assert sorted(partitions_of(database).values()) == [1, 1, 2]
    assert partitions_of(database)["noetl.event_other"] == 2
    assert ask(database, "SELECT count(*) FROM noetl.weeks()") == [(5,)]


def test_a_store_that_writes_makes_the_partitions_that_are_missing(database: str) -> None:
    drop_weeks(database)

    async def scenario() -> None:
        store = open_postgres(database)
        await store.append(change("1"))
        await store.close()

    asyncio.run(scenario())
    assert ask(database, "SELECT count(*), max(until) > now() + INTERVAL '20 days' FROM noetl.weeks()") == [
        (5, True)
    ]


def test_a_partition_that_is_made_late_takes_over_what_is_its_own(database: str) -> None:
    async def scenario() -> None:
        store = open_postgres(database)
        for week in (2, 3, 4):
            await store.append(change(id_in_week(week), count=3, idem_keys=("a", "b", "c")))
        made = ask(database, "SELECT noetl.ensure_partitions(1, TIMESTAMPTZ '2024-01-22 12:00Z')")
        assert made == [(2,)]
        assert len(await store.events(id_in_week(3))) == 3
        await store.append(change(id_in_week(3), 3))
        await store.append(change(id_in_week(3), count=3, idem_keys=("a", "b", "c")))
        await store.close()

    asyncio.run(scenario())
    assert partitions_of(database) == {
        "noetl.event_20240122": 4,
        "noetl.event_20240129": 3,
        "noetl.event_other": 3,
    }


def test_what_ended_long_ago_is_forgotten_and_what_runs_is_kept(database: str) -> None:
    ask(database, "SELECT noetl.ensure_partitions(3, TIMESTAMPTZ '2024-01-01Z')")
    long_ago, later = "2024-01-09T00:00:00.000000Z", "2024-02-20T00:00:00.000000Z"
    ended, runs, a_hash, recent = id_in_week(0, 1), id_in_week(0, 2), id_in_week(1, 3), id_in_week(3)
    ended_hash, waiting = "9000000000000000000", id_in_week(2)

    def finished(execution_id: str, at: str) -> Any:
        return execution(execution_id, "completed", finished_at=at)

    async def scenario() -> None:
        store = open_postgres(database)
        kept: dict[str, Any] = {"vars": {"a": 1}, "snapshot": b"s"}
        await store.append(change(ended, count=2, execution=finished(ended, long_ago), **kept))
        await store.append(change(runs, count=2, **kept))
        await store.append(change(a_hash, count=2, execution=finished(a_hash, later), **kept))
        await store.append(change(recent, count=2, execution=finished(recent, later), **kept))
        for each in (ended_hash, waiting):
            await store.append(change(each, execution=finished(each, long_ago), **kept))
        moment = (EPOCH_MS + 2 * WEEK_MS) / 1000
        assert await store.forget_before(moment) == 2
        assert [row.execution_id for row in await store.executions()] == [waiting, recent, a_hash, runs]
        assert [len(await store.events(each)) for each in (ended, runs, a_hash, recent)] == [0, 2, 2, 2]
        assert [len(await store.events(each)) for each in (ended_hash, waiting)] == [0, 1]
        assert await store.vars(ended) == {}
        assert await store.snapshot(ended) is None
        await store.append(change(runs, 2))
        await store.close()

    asyncio.run(scenario())
    assert partitions_of(database) == {
        "noetl.event_other": 5,
        "noetl.event_20240115": 1,
        "noetl.event_20240122": 2,
    }
    assert ask(
        database, "SELECT to_regclass('noetl.event_20240101'), to_regclass('noetl.event_20240108')"
    ) == [(None, None)]


# --- noetl db -----------------------------------------------------------------------------------------------


def test_the_command_line_makes_and_checks_a_database(
    bare_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "check", "--store", bare_database]) == 2
    assert "noetl db init" in capsys.readouterr().err
    assert main(["db", "migrate", "--store", bare_database]) == 2
    capsys.readouterr()
    assert main(["db", "init", "--store", bare_database]) == 0
    assert (
        capsys.readouterr().out
        == "applied 001 tables, 002 registry, 003 functions, 004 lists, 005 token_pools\n"
    )
    assert main(["db", "migrate", "--store", bare_database]) == 0
    assert capsys.readouterr().out == "the schema is up to date\n"
    assert main(["db", "check", "--store", bare_database]) == 0
    assert "free commands          0\n" in capsys.readouterr().out


def test_the_command_line_says_what_is_wrong_with_a_database(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        store = open_postgres(database)
        await store.append(
            change(
                "1",
                events=(event("1", 1),),
                add_commands=(command("1", "free"), command("1", "lost", worker_id="w")),
                lease_seconds=-3600.0,
                add_timers=(timer("1", "due", 1.0),),
            )
        )
        await store.close()

    asyncio.run(scenario())
    ask(database, "DELETE FROM noetl.migration WHERE version = 3")
    assert main(["db", "check", "--store", database]) == 2
    assert "noetl db init" in capsys.readouterr().err
    checksum = hashlib.sha256((FOLDER / "postgres" / "003_functions.sql").read_bytes()).hexdigest()
    ask(database, f"INSERT INTO noetl.migration VALUES (3, 'functions', '{checksum}')")
    drop_weeks(database)
    assert main(["db", "check", "--store", database]) == 1
    told = capsys.readouterr()
    assert "leased commands        1\n" in told.out
    assert "expired leases         1\n" in told.out
    assert "1 leases ran out" in told.err
    assert "1 timers are due" in told.err
    assert "no partition for today" in told.err
    assert main(["db", "check", "--json", "--store", database]) == 1
    assert '"free_commands": 1' in capsys.readouterr().out


def test_the_command_line_looks_after_a_sqlite_file_too(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    assert main(["db", "check", "--store", url]) == 2
    assert main(["db", "init", "--store", url]) == 0
    assert main(["db", "check", "--store", url]) == 0
    assert "free commands          0\n" in capsys.readouterr().out
