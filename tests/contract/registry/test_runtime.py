"""Servers, pools and workers on every database: known, alive, gone."""

from __future__ import annotations

import pytest

from noetl.ids import timestamp
from noetl.registry.runtime import Registration, RuntimeInvalidError, Runtimes
from noetl.store.registry_protocol import RegistryStore
from tests.contract.registry.conftest import START, Play, SetClock


def worker(name: str = "w1", **fields: object) -> Registration:
    given: dict[str, object] = {
        "pool": "default",
        "slots": 4,
        "labels": {"zone": "a"},
        "version": "0.1.0",
        **fields,
    }
    return Registration(kind="worker", name=name, **given)  # type: ignore[arg-type]


def test_a_runtime_is_alive_while_its_beats_come(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        runtimes = Runtimes(store, clock=clock, alive_seconds=30)
        made = await runtimes.register(worker())
        assert (made.pool, made.slots, made.labels, made.is_alive) == ("default", 4, {"zone": "a"}, True)
        clock.at += 30
        assert [each.is_alive for each in await runtimes.list()] == [True]
        clock.at += 1
        assert [each.is_alive for each in await runtimes.list()] == [False]
        assert await runtimes.beat("worker", "w1")
        (seen,) = await runtimes.list()
        assert (seen.is_alive, seen.started_at, seen.last_beat) == (
            True,
            timestamp(START),
            timestamp(START + 31),
        )

    play(scenario)


def test_who_is_not_known_is_told_to_register(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        runtimes = Runtimes(store, clock=clock)
        assert not await runtimes.beat("worker", "w1")
        await runtimes.register(worker())
        assert not await runtimes.beat("server", "w1")
        assert await runtimes.leave("worker", "w1")
        assert not await runtimes.leave("worker", "w1")
        assert not await runtimes.beat("worker", "w1")

    play(scenario)


def test_a_clock_that_goes_back_makes_nobody_look_silent(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        runtimes = Runtimes(store, clock=clock)
        await runtimes.register(worker())
        clock.at -= 1000
        await runtimes.beat("worker", "w1")
        clock.at += 1000
        assert [each.is_alive for each in await runtimes.list()] == [True]

    play(scenario)


def test_starting_again_under_a_name_replaces_what_was_said(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        runtimes = Runtimes(store, clock=clock)
        await runtimes.register(worker())
        clock.at += 100
        await runtimes.register(worker(slots=8, pool="gpu", protocol=2))
        (seen,) = await runtimes.list()
        assert (seen.slots, seen.pool, seen.protocol, seen.started_at) == (
            8,
            "gpu",
            2,
            timestamp(START + 100),
        )

    play(scenario)


def test_runtimes_are_listed_by_kind_and_pool_and_the_long_silent_are_forgotten(
    play: Play, clock: SetClock
) -> None:
    async def scenario(store: RegistryStore) -> None:
        runtimes = Runtimes(store, clock=clock)
        await runtimes.register(worker("b"))
        await runtimes.register(worker("A", pool="gpu"))
        await runtimes.register(Registration(kind="server", name="s1", version="0.1.0"))
        await runtimes.register(Registration(kind="pool", name="gpu", pool="gpu"))
        assert [(each.kind, each.name) for each in await runtimes.list()] == [
            ("pool", "gpu"),
            ("server", "s1"),
            ("worker", "A"),
            ("worker", "b"),
        ]
        assert [each.name for each in await runtimes.list(kind="worker", pool="gpu")] == ["A"]
        clock.at += 86_401
        await runtimes.beat("server", "s1")
        assert await runtimes.clean_up() == 3
        assert [each.name for each in await runtimes.list()] == ["s1"]

    play(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        worker(""),
        worker("a b"),
        worker(pool=None),
        worker(pool="a/b"),
        worker(slots=-1),
        worker(protocol=-1),
        worker(labels={"a": "b\n"}),
        worker(version="x" * 201),
        worker(labels={str(number): "x" for number in range(51)}),
    ],
    ids=range(9),
)
def test_a_registration_that_makes_no_sense_is_refused(
    play: Play, clock: SetClock, wrong: Registration
) -> None:
    async def scenario(store: RegistryStore) -> None:
        runtimes = Runtimes(store, clock=clock)
        with pytest.raises(RuntimeInvalidError):
            await runtimes.register(wrong)
        assert await runtimes.list() == []

    play(scenario)
