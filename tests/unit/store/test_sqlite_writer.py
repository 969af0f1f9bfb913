"""The writer of a SQLite store: group commit, and what happens when the world gets in the way."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.store.protocol import AppendConflict, BodyRow, Fence, LeaseFenced, StoreError
from noetl.store.queries import queries
from noetl.store.sqlite import SqliteStore, open_store
from tests.contract.store.changes import change, command, event, execution, timer
from tests.contract.store.conftest import begin_thread


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/noetl.db"


async def hold_writer(store: SqliteStore) -> tuple[threading.Event, asyncio.Future[bool]]:
    """The writer waits until the event is set; what is asked for meanwhile stays queued."""
    await begin_thread(store)
    held, released = threading.Event(), threading.Event()

    def wait(_: sqlite3.Connection) -> bool:
        held.set()
        return released.wait()

    waiting = asyncio.ensure_future(store._writer.look(wait))
    await asyncio.to_thread(held.wait)
    return released, waiting


def test_what_is_queued_during_a_commit_goes_into_one_transaction(tmp_path: Path) -> None:
    statements: list[str] = []

    async def scenario() -> None:
        store = open_store(url(tmp_path))
        await store._writer.look(lambda on: on.set_trace_callback(statements.append))
        released, waiting = await hold_writer(store)
        body = BodyRow(key="b", execution_id="0", media_type="m", checksum="c", body=b"")
        asked = [asyncio.ensure_future(store.append(change(str(number), count=3))) for number in range(50)]
        asked.append(asyncio.ensure_future(store.put_body(body)))
        await asyncio.sleep(0)
        released.set()
        await asyncio.gather(waiting, *asked)
        await store.close()

    asyncio.run(scenario())
    assert statements.count("COMMIT") == 1
    writing = [each for each in statements[: statements.index("COMMIT")] if not each.startswith("SELECT")]
    assert len(writing) < 12


def test_an_append_of_a_running_execution_takes_few_statements(tmp_path: Path) -> None:
    statements: list[str] = []

    async def scenario() -> None:
        store = open_store(url(tmp_path))
        await store.append(change("1", count=4, add_commands=(command("1", "a"),)))
        await store._writer.look(lambda on: on.set_trace_callback(statements.append))
        await store.append(change("1", 4, count=4, remove_commands=("a",), add_commands=(command("1", "b"),)))
        await store.close()

    asyncio.run(scenario())
    words = [statement.split()[0] for statement in statements[: statements.index("COMMIT") + 1]]
    assert words == ["BEGIN", "UPDATE", "INSERT", "DELETE", "INSERT", "COMMIT"]


def test_a_leased_command_and_a_fence_take_no_more_statements(tmp_path: Path) -> None:
    statements: list[str] = []

    async def scenario() -> None:
        store = open_store(url(tmp_path))
        await store.append(change("1", count=4, add_commands=(command("1", "a", worker_id="w"),)))
        await store._writer.look(lambda on: on.set_trace_callback(statements.append))
        await store.append(
            change(
                "1",
                4,
                count=6,
                fences=(Fence(command_id="a", epoch=1),),
                remove_commands=("a",),
                add_commands=(command("1", "b", worker_id="w"),),
            )
        )
        await store.close()

    asyncio.run(scenario())
    words = [statement.split()[0] for statement in statements[: statements.index("COMMIT") + 1]]
    assert words == ["BEGIN", "UPDATE", "INSERT", "DELETE", "INSERT", "COMMIT"]


def test_a_lease_that_was_rolled_back_is_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        await store.append(change("1", add_commands=(command("1", "c"),)))
        released, waiting = await hold_writer(store)
        claiming = asyncio.ensure_future(
            store.claim(pool="default", worker_id="w", limit=1, lease_seconds=30.0)
        )
        odd = change("1", 1, add_commands=(command("1", "half \ud83d"),), hold_commands=("c",))
        holding = asyncio.ensure_future(store.append(odd))
        await asyncio.sleep(0)
        released.set()
        answers = await asyncio.gather(waiting, claiming, holding, return_exceptions=True)
        assert isinstance(answers[2], StoreError)
        (leased,) = await claiming
        await store.append(change("1", 1, fences=(Fence(command_id="c", epoch=leased.epoch),)))
        await store.close()
        again = open_store(url(tmp_path))
        await again.append(change("1", 2, fences=(Fence(command_id="c", epoch=1),), hold_commands=("c",)))
        with pytest.raises(LeaseFenced):
            await again.append(change("1", 3, fences=(Fence(command_id="c", epoch=1),)))
        await again.close()

    asyncio.run(scenario())


def test_closing_writes_what_is_queued_and_refuses_what_comes_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        released, waiting = await hold_writer(store)
        asked = [asyncio.ensure_future(store.append(change(str(number)))) for number in range(20)]
        await asyncio.sleep(0)
        closing_store = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        released.set()
        await asyncio.gather(waiting, closing_store, *asked)
        with pytest.raises(StoreError, match="closed"):
            await store.append(change("late"))
        with pytest.raises(StoreError, match="closed"):
            await store.events("0")
        await store.close()
        again = open_store(url(tmp_path))
        assert len(await again.executions()) == 20
        await again.close()

    asyncio.run(scenario())


def test_a_full_disk_refuses_the_change_and_keeps_the_log(tmp_path: Path) -> None:
    def limit(pages: int) -> str:
        return f"PRAGMA max_page_count = {pages}"

    async def scenario() -> None:
        store = open_store(url(tmp_path))
        await store.append(change("1", count=2))
        pages = await store._writer.look(lambda on: on.execute("PRAGMA page_count").fetchone()[0])
        await store._writer.look(lambda on: on.execute(limit(pages)).fetchone())
        large = change("1", 2, events=(event("1", 3, payload={"text": "x" * 60_000}),))
        answers = await asyncio.gather(
            store.append(large), store.append(change("1", 2)), return_exceptions=True
        )
        assert isinstance(answers[0], StoreError)
        assert "disk is full" in str(answers[0])
        log = await store.events("1")
        assert [each.seq for each in log[:2]] == [1, 2]
        await store._writer.look(lambda on: on.execute(limit(1_000_000)).fetchone())
        await store.append(change("1", len(log)))
        await store.close()
        again = open_store(url(tmp_path))
        assert len(await again.events("1")) == len(log) + 1
        await again.close()

    asyncio.run(scenario())


def test_a_database_locked_by_another_program_is_an_error_until_it_lets_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path), busy_seconds=0.01)
        await store.append(change("1"))
        with closing(sqlite3.connect(tmp_path / "noetl.db", isolation_level=None)) as browser:
            browser.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="locked"):
                await store.append(change("1", 1))
            assert await store.events("1") == [event("1", 1)]
            browser.execute("ROLLBACK")
        await store.append(change("1", 1))
        assert len(await store.events("1")) == 2
        await store.close()

    asyncio.run(scenario())


def test_a_name_with_half_a_character_fails_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        answers = await asyncio.gather(
            store.append(change("1")),
            store.append(change("2", execution=execution("2", name="\ud800"))),
            store.append(change("3")),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [type(None), StoreError, type(None)]
        assert [row.execution_id for row in await store.executions()] == ["3", "1"]
        await store.close()

    asyncio.run(scenario())


def test_a_mistake_in_a_job_reaches_its_caller_and_the_writer_goes_on(tmp_path: Path) -> None:
    def mistaken(_: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        store = open_store(url(tmp_path))
        answers = await asyncio.gather(
            store.append(change("1")),
            store._writer.run(mistaken),
            store._writer.look(mistaken),
            store.append(change("2")),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [
            type(None),
            ZeroDivisionError,
            ZeroDivisionError,
            type(None),
        ]
        assert len(await store.executions()) == 2
        await store.close()

    asyncio.run(scenario())


def test_a_conflict_behind_a_failing_change_is_judged_by_what_was_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        released, waiting = await hold_writer(store)
        bad = change("1", add_timers=(timer("1", "\ud800", 1.0),))
        asked = [asyncio.ensure_future(store.append(each)) for each in (bad, change("1", 1), change("2"))]
        await asyncio.sleep(0)
        released.set()
        await waiting
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreError, AppendConflict, type(None)]
        await store.close()

    asyncio.run(scenario())


def test_the_results_of_a_loop_are_found_by_index(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        events = tuple(
            event(
                "1",
                seq,
                "loop.iteration.done",
                step_run_id="r",
                iteration=5000 - seq,
                payload={"result": seq},
            )
            for seq in range(1, 5001)
        )
        await store.append(change("1", events=events))
        assert await store.iteration_results("1", "r") == [(index, 5000 - index) for index in range(5000)]
        await store.close()

    asyncio.run(scenario())
    with closing(sqlite3.connect(tmp_path / "noetl.db")) as raw:
        plans = raw.execute("EXPLAIN QUERY PLAN " + queries("sqlite")["iteration_results"], ("1", "r"))
        plan = " ".join(row[3] for row in plans)
    assert "event_by_loop" in plan
    assert "loop_run_id=?" in plan


APPEND_UNTIL_KILLED = """
import asyncio, os, sys
from noetl.store.sqlite import open_store
from tests.contract.store.changes import change

async def append_in_turn(store, name):
    version = 0
    while True:
        await store.append(change(name, version, count=3, idem_keys=(f"{version}", None, None)))
        version += 3
        os.write(1, f"{name} {version}\\n".encode())

async def main():
    store = open_store(sys.argv[1])
    await asyncio.gather(*(append_in_turn(store, f"e{number}") for number in range(8)))

asyncio.run(main())
"""


def test_everything_acknowledged_is_there_after_the_owner_was_killed(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", APPEND_UNTIL_KILLED, url(tmp_path)], stdout=subprocess.PIPE, cwd=root
    )
    with child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(200)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines(keepends=True)
    acknowledged: dict[str, int] = {}
    for line in lines:
        if line.endswith(b"\n"):
            name, version = line.decode().split()
            acknowledged[name] = int(version)
    assert len(acknowledged) == 8

    async def scenario() -> None:
        store = open_store(url(tmp_path))
        for name, version in acknowledged.items():
            log = await store.events(name)
            assert [each.seq for each in log] == list(range(1, len(log) + 1))
            assert len(log) % 3 == 0
            assert len(log) >= version
            await store.append(change(name, len(log)))
        await store.close()

    asyncio.run(scenario())


NAMES = st.sampled_from("abc")
STEPS = st.fixed_dictionaries(
    {
        "execution_id": st.sampled_from("12"),
        "put": st.lists(NAMES, max_size=2),
        "remove": st.lists(NAMES, max_size=2),
        "empty": st.booleans(),
    }
)


@settings(max_examples=50, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=8))
def test_changes_in_one_transaction_leave_what_they_leave_one_after_the_other(steps: list[dict]) -> None:  # type: ignore[type-arg]
    versions = {"1": 0, "2": 0}
    changes, rows = [], dict[tuple[str, str], float]()
    for number, step in enumerate(steps):
        own = step["execution_id"]
        changes.append(
            change(
                own,
                versions[own],
                add_commands=tuple(command(own, name, not_before=float(number)) for name in step["put"]),
                remove_commands=tuple(step["remove"]),
                remove_all_commands=step["empty"],
                add_timers=tuple(timer(own, name, float(number)) for name in step["put"]),
                remove_timers=tuple(step["remove"]),
                remove_all_timers=step["empty"],
            )
        )
        versions[own] += 1
        rows = {key: at for key, at in rows.items() if key[0] != own or not step["empty"]}
        for name in step["remove"]:
            rows.pop((own, name), None)
        rows.update({(own, name): float(number) for name in step["put"]})

    async def scenario() -> None:
        store = open_store("sqlite:///:memory:")
        released, waiting = await hold_writer(store)
        asked = [asyncio.ensure_future(store.append(each)) for each in changes]
        await asyncio.sleep(0)
        released.set()
        await asyncio.gather(waiting, *asked)
        commands = {(row.execution_id, row.command_id): row.not_before for row in await store.commands()}
        timers = {(row.execution_id, row.timer_id): row.due for row in await store.timers_due(99.0)}
        assert commands == rows
        assert timers == rows
        await store.close()

    asyncio.run(scenario())
