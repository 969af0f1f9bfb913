"""The PostgreSQL store beside others of its kind, and when the server goes away under it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import psycopg
import pytest

from noetl.store import postgres_housekeeping
from noetl.store.codec import encode_event
from noetl.store.postgres import PostgresStore, open_postgres
from noetl.store.postgres_changes import Batch
from noetl.store.postgres_connections import CONNECTIONS
from noetl.store.postgres_schema import migrate
from noetl.store.postgres_writer import Writer
from noetl.store.protocol import Append, AppendConflict, BodyRow, Fence, LeaseFenced, StoreError
from tests.contract.store.changes import change, command, event, execution
from tests.postgres_server import postgres_server


def play(url: str, scenario: Callable[..., Awaitable[None]], stores: int = 1) -> None:
    async def played() -> None:
        opened = [open_postgres(url) for _ in range(stores)]
        try:
            async with asyncio.timeout(60):
                await scenario(*opened)
        finally:
            for store in opened:
                await store.close()

    asyncio.run(played())


def ask(url: str, query: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


def record_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many changes each call to the database carries."""
    calls: list[int] = []
    original = Batch.parameters

    def parameters(self: Batch, *, check_keys: bool) -> Any:
        calls.append(len(self._rows["changes"]))
        return original(self, check_keys=check_keys)

    monkeypatch.setattr(Batch, "parameters", parameters)
    return calls


def test_what_is_asked_for_during_a_call_goes_into_the_next(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(monkeypatch)

    async def scenario(store: PostgresStore) -> None:
        first = asyncio.ensure_future(store.append(change("1")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.gather(first, *(store.append(change(str(number))) for number in range(2, 50)))
        assert await store.append_all([change(str(number), 1) for number in range(1, 41)]) == [None] * 40

    play(database, scenario)
    assert calls == [1, 48, 40]


def test_changes_to_one_execution_go_in_calls_that_follow_each_other(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(monkeypatch)

    async def scenario(store: PostgresStore) -> None:
        changes = [change(each, version) for version in range(3) for each in ("1", "2")]
        await asyncio.gather(*map(store.append, changes))
        assert len(await store.events("1")) == len(await store.events("2")) == 3

    play(database, scenario)
    assert calls == [2, 2, 2]


def test_many_bytes_go_in_several_calls(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = record_calls(monkeypatch)

    def large(number: int) -> Append:
        body = BodyRow(
            key=f"b{number}", execution_id="1", media_type="m", checksum="c", body=bytes([number]) * (5 << 20)
        )
        return change(str(number), bodies=(body,))

    async def scenario(store: PostgresStore) -> None:
        assert await store.append_all([large(number) for number in range(5)]) == [None] * 5
        for number in range(5):
            row = await store.body(f"b{number}")
            assert row is not None
            assert row.body == bytes([number]) * (5 << 20)

    play(database, scenario)
    assert calls == [2, 2, 1]


def test_a_name_that_cannot_be_stored_fails_alone(database: str) -> None:
    async def scenario(store: PostgresStore) -> None:
        odd = change("2", execution=execution("2", name="half \ud83d"))
        answers = await store.append_all([change("1"), odd, change("3")])
        assert [type(answer) for answer in answers] == [type(None), StoreError, type(None)]
        assert "half a character" in str(answers[1])
        assert await store.execution("2") is None

    play(database, scenario)


@pytest.mark.parametrize("wrong", ["", "abc", "-1", "07", "1.5", str(1 << 63), "１"])
def test_an_id_that_is_no_number_belongs_to_no_execution(database: str, wrong: str) -> None:
    async def scenario(store: PostgresStore) -> None:
        with pytest.raises(StoreError, match="ids are numbers"):
            await store.append(change(wrong))
        assert await store.execution(wrong) is None
        assert await store.events(wrong) == []
        assert await store.commands(execution_id=wrong) == []
        await store.append(change(str((1 << 63) - 1)))

    play(database, scenario)


def test_an_event_lies_in_the_table_as_the_bytes_it_was(database: str) -> None:
    odd = event("1", 1, payload={"text": "nul \x00 ü ␀ \\u0000", "number": 1e300, "b": 1, "a": 2})

    async def scenario(store: PostgresStore) -> None:
        await store.append(change("1", events=(odd,)))

    play(database, scenario)
    assert ask(database, "SELECT body FROM noetl.event") == [(encode_event(odd),)]


def test_names_with_a_nul_or_its_sign_come_back_as_they_were(database: str) -> None:
    names = ("a\x00b", "␀", "␀0", "\x000␀", "␀␀")

    async def scenario(store: PostgresStore) -> None:
        rows = tuple(command("1", each, pool=each, created_at=each) for each in names)
        await store.append(
            change("1", add_commands=rows, vars={each: each for each in names}, idem_keys=("key\x00",))
        )
        assert set(await store.commands()) == set(rows)
        assert await store.vars("1") == {each: each for each in names}
        for each in names:
            assert await store.command("1", each) in rows
            (claimed,) = await store.claim(pool=each, worker_id="w\x00", limit=9, lease_seconds=9.0)
            assert (claimed.command_id, claimed.worker_id) == (each, "w\x00")
        await store.append(change("1", idem_keys=("key\x00",)))
        assert await store.renew("w\x00", [Fence(command_id=each, epoch=1) for each in names], 9.0) == ()
        await store.append(change("1", 1, remove_commands=names))
        assert await store.commands() == []

    play(database, scenario)


# --- several servers ----------------------------------------------------------------------------------------


def test_servers_that_race_on_one_execution_leave_a_dense_log_without_doubles(database: str) -> None:
    async def count_up(store: PostgresStore, name: str) -> int:
        conflicts, done = 0, 0
        while done < 20:
            version = len(await store.events("1"))
            added = event("1", version + 1, entity_id=f"{name} {done}")
            try:
                await store.append(change("1", version, events=(added,), idem_keys=(f"{name}:{done}",)))
                done += 1
            except AppendConflict:
                conflicts += 1
        return conflicts

    async def scenario(*stores: PostgresStore) -> None:
        conflicts = await asyncio.gather(*(count_up(store, str(n)) for n, store in enumerate(stores)))
        log = await stores[0].events("1")
        assert [each.seq for each in log] == list(range(1, 61))
        assert len({each.entity_id for each in log}) == 60
        assert sum(conflicts) > 0

    play(database, scenario, stores=3)


def test_of_servers_that_begin_one_execution_one_is_first_and_repetitions_are_recognised(
    database: str,
) -> None:
    async def scenario(*stores: PostgresStore) -> None:
        for number in range(1, 30):
            different = [
                store.append(change(str(number), events=(event(str(number), 1, entity_id=str(place)),)))
                for place, store in enumerate(stores)
            ]
            answers = await asyncio.gather(*different, return_exceptions=True)
            assert sorted(type(answer).__name__ for answer in answers) == ["AppendConflict"] * 2 + [
                "NoneType"
            ]
            same = change(str(100 + number), idem_keys=("requested",))
            assert await asyncio.gather(*(store.append(same) for store in stores)) == [None] * 3

    play(database, scenario, stores=3)


def test_calls_of_several_servers_about_the_same_executions_never_wait_in_a_circle(database: str) -> None:
    ids = [str(number) for number in range(1, 31)]

    async def scenario(*stores: PostgresStore) -> None:
        for version in range(8):
            answers = await asyncio.gather(
                stores[0].append_all([change(each, version) for each in ids]),
                stores[1].append_all([change(each, version) for each in reversed(ids)]),
                stores[2].append_all([change(each, version) for each in ids[15:] + ids[:15]]),
            )
            for each in range(30):
                kinds = [type(answer) for answer in (answers[0][each], answers[1][29 - each])]
                assert set(kinds) <= {type(None), AppendConflict}
            written = sum(answer is None for each in answers for answer in each)
            assert written == 30

    play(database, scenario, stores=3)
    assert ask(database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [
        (0,)
    ]


def test_no_row_is_claimed_by_two_servers(database: str) -> None:
    async def scenario(*stores: PostgresStore) -> None:
        rows = tuple(command("1", str(number), created_at=str(number % 7)) for number in range(300))
        await stores[0].append(change("1", add_commands=rows))
        claims = [
            store.claim(pool="default", worker_id=f"{place}-{turn}", limit=13, lease_seconds=30.0)
            for turn in range(10)
            for place, store in enumerate(stores)
        ]
        taken = [row.command_id for claimed in await asyncio.gather(*claims) for row in claimed]
        assert len(taken) == len(set(taken)) == 300

    play(database, scenario, stores=3)


def test_a_claim_passes_over_what_somebody_is_changing(database: str) -> None:
    async def scenario(store: PostgresStore) -> None:
        rows = tuple(command("1", each, created_at=each) for each in "ab")
        await store.append(change("1", add_commands=rows))
        async with await psycopg.AsyncConnection.connect(database) as other:
            await other.execute("SELECT FROM noetl.command WHERE command_id = 'a' FOR UPDATE")
            claimed = await store.claim(pool="default", worker_id="w", limit=2, lease_seconds=30.0)
            assert [row.command_id for row in claimed] == ["b"]

    play(database, scenario)


def test_a_beat_neither_waits_for_an_append_nor_calls_its_lease_lost(database: str) -> None:
    async def scenario(store: PostgresStore) -> None:
        rows = tuple(command("1", each, worker_id="w") for each in "ab")
        await store.append(change("1", add_commands=rows, lease_seconds=-1.0))
        leases = [Fence(command_id=each, epoch=1) for each in "ab"]
        async with await psycopg.AsyncConnection.connect(database) as other:
            await other.execute("SELECT FROM noetl.command WHERE command_id = 'a' FOR UPDATE")
            assert await store.renew("w", leases, 30.0) == ()
        assert [row.command_id for row in await store.expired()] == ["a"]

    play(database, scenario)


def test_a_lease_that_is_prolonged_while_it_is_taken_away_is_kept(database: str) -> None:
    async def scenario(store: PostgresStore) -> None:
        await store.append(change("1", add_commands=(command("1", "c", worker_id="w"),), lease_seconds=-1.0))
        lost = change("1", 1, fences=(Fence(command_id="c", epoch=1, expired=True),), free_commands=("c",))
        async with await psycopg.AsyncConnection.connect(database) as beat:
            await beat.execute("UPDATE noetl.command SET lease_until = lease_until + 60")
            taking = asyncio.ensure_future(store.append(lost))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while ask(database, waiting) == [(0,)]:
                await asyncio.sleep(0)
            await beat.commit()
            with pytest.raises(LeaseFenced):
                await taking
        row = await store.command("1", "c")
        assert row is not None
        assert row.worker_id == "w"

    play(database, scenario)


# --- a server that goes away --------------------------------------------------------------------------------


def test_connections_that_died_idle_cost_no_call(database: str) -> None:
    async def scenario(store: PostgresStore) -> None:
        await store.append(change("1"))
        await asyncio.gather(*(store.execution("1") for _ in range(6)))
        for version in range(1, 4):
            ask(
                database,
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            await store.append(change("1", version))
            found = await asyncio.gather(*(store.events("1") for _ in range(6)))
            assert {len(each) for each in found} == {version + 1}

    play(database, scenario)


def test_a_commit_whose_answer_was_lost_is_recognised_when_it_is_repeated(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Writer._call
    lost: list[Any] = []

    async def call(self: Writer, batch: Batch, *, check_keys: bool) -> Any:
        answer = await original(self, batch, check_keys=check_keys)
        if not lost:
            lost.append(answer)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return answer

    monkeypatch.setattr(Writer, "_call", call)
    asked = change("1", count=2, idem_keys=("a", "b"), add_commands=(command("1", "c"),))

    async def scenario(store: PostgresStore) -> None:
        with pytest.raises(StoreError, match="asking again is safe"):
            await store.append(asked)
        await store.append(asked)
        decided_anew = tuple(msgspec.structs.replace(each, seq=each.seq + 2) for each in asked.events)
        await store.append(change("1", 2, events=decided_anew, idem_keys=("a", "b")))
        assert len(await store.events("1")) == 2

    play(database, scenario)


def test_a_restart_of_the_server_costs_only_the_calls_during_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.store.postgres_connections.WAIT_SECONDS", 0.5)
    with postgres_server() as server:
        from_wheel = server.get_uri()
        migrate(from_wheel)

        async def scenario(store: PostgresStore) -> None:
            await store.append(change("1", idem_keys=("a",)))
            assert len(await store.events("1")) == 1
            await asyncio.to_thread(server.stop)
            with pytest.raises(StoreError, match="does not answer"):
                await store.append(change("1", 1))
            with pytest.raises(StoreError, match="does not answer"):
                await store.events("1")
            await asyncio.to_thread(server.start)
            await store.append(change("1", idem_keys=("a",)))
            await store.append(change("1", 1))
            while True:
                try:
                    assert len(await store.events("1")) == 2
                    break
                except StoreError:  # the pool tries again within a second or two
                    continue

        play(from_wheel, scenario)


def test_a_queue_through_which_much_passes_is_vacuumed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_housekeeping, "REMOVED_ROWS", 50)
    names = tuple(map(str, range(60)))

    async def scenario(store: PostgresStore) -> None:
        await store.append(change("1", add_commands=tuple(command("1", each) for each in names)))
        await store.append(change("1", 1, remove_commands=names))

    play(database, scenario)
    ask(database, "SELECT pg_stat_force_next_flush()")
    counts = "SELECT vacuum_count FROM pg_stat_all_tables WHERE relid = 'noetl.command'::regclass"
    assert ask(database, counts) == [(1,)]


def test_a_closed_store_says_so(database: str) -> None:
    async def scenario(store: PostgresStore) -> None:
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.append(change("1"))
        with pytest.raises(StoreError, match="closed"):
            await store.events("1")

    play(database, scenario)


@contextmanager
def hanging(url: str) -> Iterator[None]:
    """The processes that serve the store stop without a word."""
    ours = "application_name = 'noetl' AND datname = current_database()"
    found = [pid for (pid,) in ask(url, f"SELECT pid FROM pg_stat_activity WHERE {ours}")]
    assert found
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_server_that_hangs_is_given_up_in_time_and_used_again_when_it_is_back(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.store.postgres_connections.GRACE_SECONDS", 0.1)
    # Housekeeping would have the pool's one connection if it were slow; then that one is given up unseen.
    monkeypatch.setattr(postgres_housekeeping.Housekeeping, "note", lambda self, removed: None)
    store = PostgresStore(database, 0.3)
    lost = change("1", 1, idem_keys=("b",))

    async def scenario() -> None:
        await store.append(change("1"))
        await store.events("1")
        with hanging(database):
            async with asyncio.timeout(3):
                with pytest.raises(StoreError, match="connection was lost"):
                    await store.append(lost)
                # Some of the connections may have been opened since: all are used, and none is waited for.
                claims = [
                    store.claim(pool="default", worker_id="w", limit=1, lease_seconds=30)
                    for _ in range(CONNECTIONS)
                ]
                found = await asyncio.gather(*claims, return_exceptions=True)
                assert "connection was lost" in " ".join(map(str, found))
        await store.append(lost)  # it may have been written when the process went on
        assert len(await store.events("1")) == 2

    async def played() -> None:
        try:
            await scenario()
        finally:
            await store.close()

    asyncio.run(played())


def test_a_statement_that_takes_too_long_is_ended_by_the_server(database: str) -> None:
    store = PostgresStore(database, 0.2)

    async def scenario() -> None:
        pool = await store.pool()
        async with pool.connection() as connection:
            with pytest.raises(psycopg.errors.QueryCanceled):
                await connection.execute("SELECT pg_sleep(5)")
        await store.close()

    asyncio.run(scenario())


def test_an_address_that_has_a_timeout_of_its_own_keeps_it(database: str) -> None:
    mark = "&" if "?" in database else "?"
    store = PostgresStore(f"{database}{mark}options=-c%20statement_timeout%3D7777")

    async def scenario() -> None:
        pool = await store.pool()
        async with pool.connection() as connection:
            found = await (await connection.execute("SHOW statement_timeout")).fetchone()
        await store.close()
        assert found == {"statement_timeout": "7777ms"}

    asyncio.run(scenario())
