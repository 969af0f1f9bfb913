"""What a replica takes away beside its answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from structlog.testing import capture_logs

from noetl.ids import Snowflakes
from noetl.registry.caller_secrets import CallerSecretsInMemory
from noetl.results.bodies import FileBodies
from noetl.server.housekeeping import DAY, NEVER_BEGUN_SECONDS, Chore, Housekeeping
from noetl.store.memory import MemoryStore
from noetl.store.protocol import StoreError
from tests.contract.store.changes import NOW, change, event, execution

ENDED = execution("1", "completed", finished_at=NOW)


class HandClock:
    def __init__(self) -> None:
        self.at = 1_735_689_600.0 + 10 * DAY  # ten days after NOW

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def test_secrets_go_when_the_end_of_their_execution_is_heard_of() -> None:
    async def scenario() -> None:
        clock = HandClock()
        callers = CallerSecretsInMemory(clock)
        housekeeping = Housekeeping(MemoryStore(), clock=clock, callers=callers)
        for name in ("1", "2"):
            await callers.keep(name, {"A": "b"})
        housekeeping.event(event("1", 1, "step.done"))
        await housekeeping.forget_heard_of()
        assert len(await callers.executions()) == 2
        housekeeping.event(event("1", 2, "playbook.processed"))
        await housekeeping.forget_heard_of()
        assert [name for name, _ in await callers.executions()] == ["2"]

    asyncio.run(scenario())


def test_a_sweep_finds_what_nobody_heard_of_and_spares_what_runs_or_is_about_to() -> None:
    async def scenario() -> None:
        clock, store = HandClock(), MemoryStore()
        callers = CallerSecretsInMemory(clock)
        housekeeping = Housekeeping(store, clock=clock, callers=callers)
        await store.append(change("1", execution=ENDED))
        await store.append(change("2"))
        for name in ("1", "2", "3"):
            await callers.keep(name, {"A": "b"})
        await housekeeping.sweep()
        assert [name for name, _ in await callers.executions()] == ["2", "3"]
        clock.at += NEVER_BEGUN_SECONDS + 1
        await housekeeping.sweep()
        assert [name for name, _ in await callers.executions()] == ["2"]

    asyncio.run(scenario())


def test_executions_are_kept_for_ever_unless_it_is_said_for_how_long() -> None:
    async def left(days: float | None) -> int:
        clock, store = HandClock(), MemoryStore()
        await store.append(change("1", execution=ENDED))
        callers = CallerSecretsInMemory(clock)
        await Housekeeping(store, clock=clock, callers=callers, retention_days=days).sweep()
        return len(await store.executions())

    assert [asyncio.run(left(days)) for days in (None, 11, 9)] == [1, 1, 0]


def test_a_chore_that_fails_keeps_no_other_from_being_done() -> None:
    done = []

    async def fails() -> int:
        raise StoreError("the store is away")

    async def works() -> int:
        done.append(1)
        return 3

    async def scenario() -> None:
        clock = HandClock()
        chores = [Chore("first", fails), Chore("second", works)]
        housekeeping = Housekeeping(
            MemoryStore(), clock=clock, callers=CallerSecretsInMemory(clock), chores=chores
        )
        with capture_logs() as lines:
            await housekeeping.sweep()
        assert [(line["what"], line["log_level"]) for line in lines] == [
            ("first", "warning"),
            ("second", "info"),
        ]

    asyncio.run(scenario())
    assert done == [1]


def test_bodies_outside_the_store_go_with_their_executions_and_no_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, store, files = HandClock(), MemoryStore(), FileBodies(tmp_path)
        ids = Snowflakes(clock)
        clock.at -= 5 * DAY
        forgotten, running = ids.many(2)
        clock.at += 5 * DAY
        about_to_begin = ids.next()
        await store.append(change(running, execution=execution(running)))
        for name in (forgotten, running, about_to_begin):
            await files.put(name, b"a large result", media_type="text/plain", store=None)
        (tmp_path / "mine" / "results").mkdir(parents=True)
        (tmp_path / running / "own.txt").write_text("a file of the execution")
        callers = CallerSecretsInMemory(clock)
        housekeeping = Housekeeping(store, clock=clock, callers=callers, retention_days=3, places=[files])
        await housekeeping.sweep()
        assert {each.name for each in tmp_path.iterdir()} == {running, about_to_begin, "mine"}
        assert sorted(await files.executions()) == sorted([running, about_to_begin])
        kept = Housekeeping(store, clock=clock, callers=callers, places=[files])
        clock.at += 100 * DAY
        await kept.sweep()  # without a time of retention nothing is ever forgotten
        assert len(await files.executions()) == 2

    asyncio.run(scenario())
