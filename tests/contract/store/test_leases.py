"""The queue: rows are free, leased or held; what was decided under a lease that is over is not written."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from noetl.store.idempotency import KeyReusedError
from noetl.store.protocol import AppendConflict, CommandRow, Fence, LeaseFenced, Store
from tests.contract.store.changes import NOW, change, command, event, execution
from tests.contract.store.conftest import Play

OVER = -1.0
"""A lease of so many seconds has run out when it begins."""


async def claim(
    store: Store, limit: int = 10, worker_id: str = "w", seconds: float = 30.0
) -> list[CommandRow]:
    return await store.claim(pool="default", worker_id=worker_id, limit=limit, lease_seconds=seconds)


def fence(row_or_id: CommandRow | str, epoch: int = 1, *, expired: bool = False) -> Fence:
    if isinstance(row_or_id, CommandRow):
        return Fence(command_id=row_or_id.command_id, epoch=row_or_id.epoch, expired=expired)
    return Fence(command_id=row_or_id, epoch=epoch, expired=expired)


def state_of(row: CommandRow | None) -> tuple[str | None, int, bool, bool]:
    """Worker, epoch, whether the lease has an end, whether it is held."""
    assert row is not None
    return row.worker_id, row.epoch, row.lease_until is not None, row.is_held


def test_free_rows_are_claimed_longest_waiting_first_and_only_once(play: Play) -> None:
    made = [command("1", str(number), created_at=f"2025-01-0{9 - number}") for number in range(1, 5)]

    async def scenario(store: Store) -> None:
        await store.append(change("1", add_commands=tuple(made)))
        first = await claim(store, 3)
        assert [row.command_id for row in first] == ["4", "3", "2"]
        assert {(row.worker_id, row.epoch) for row in first} == {("w", 1)}
        second = await claim(store, 3, "v")
        assert [(row.command_id, row.worker_id) for row in second] == [("1", "v")]
        assert await claim(store) == []
        kept = msgspec.structs.replace(first[0], last_seq=None)  # only a claim says how far the log goes
        assert await store.command("1", "4") == kept
        assert await store.commands(limit=1) == [kept]

    play(scenario)


def test_what_was_made_at_one_moment_is_claimed_in_the_order_of_ids(play: Play) -> None:
    async def scenario(store: Store) -> None:
        made = tuple(command("1", each, created_at=NOW) for each in ("10", "9", "100"))
        await store.append(change("1", add_commands=made))
        assert [row.command_id for row in await claim(store, 2)] == ["9", "10"]

    play(scenario)


def test_a_claim_takes_its_own_pool_and_what_is_to_begin_already(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(
            change(
                "1",
                add_commands=(
                    command("1", "gpu", pool="gpu"),
                    command("1", "later", not_before=4e9),
                    command("1", "held", is_held=True),
                    command("1", "now", not_before=1.0),
                ),
            )
        )
        assert [row.command_id for row in await claim(store)] == ["now"]
        taken = await store.claim(pool="gpu", worker_id="g", limit=5, lease_seconds=1.0)
        assert [row.command_id for row in taken] == ["gpu"]

    play(scenario)


def test_claims_that_race_share_the_rows_between_them(play: Play) -> None:
    async def scenario(store: Store) -> None:
        rows = tuple(command("1", str(number), created_at=NOW) for number in range(40))
        await store.append(change("1", add_commands=rows))
        taken = await asyncio.gather(*(claim(store, 7, f"w{number}") for number in range(8)))
        assert sorted(int(row.command_id) for each in taken for row in each) == list(range(40))

    play(scenario)


def test_a_row_may_be_appended_leased_to_its_worker(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(
            change("1", add_commands=(command("1", "c", worker_id="w"), command("1", "free"))),
        )
        leased = await store.command("1", "c")
        assert state_of(leased) == ("w", 1, True, False)
        assert state_of(await store.command("1", "free")) == (None, 0, False, False)
        assert [row.command_id for row in await claim(store)] == ["free"]
        assert await store.expired() == []
        assert await store.command("1", "unknown") is None
        assert await store.command("7", "c") is None

    play(scenario)


def test_a_lease_lasts_as_long_as_the_change_says_by_the_clock_of_the_store(play: Play) -> None:
    async def scenario(store: Store) -> None:
        rows = (command("1", "long", worker_id="w"), command("1", "longer", worker_id="w"))
        await store.append(change("1", add_commands=rows[:1], lease_seconds=1000.0))
        await store.append(change("1", 1, add_commands=rows[1:], lease_seconds=3000.0))
        ends = [row.lease_until or 0.0 for row in await store.commands()]
        assert ends[1] - ends[0] == pytest.approx(2000.0, abs=60.0)

    play(scenario)


def test_leases_that_ran_out_are_found_the_longest_over_first(play: Play) -> None:
    async def scenario(store: Store) -> None:
        rows = tuple(command("1", each, worker_id="w") for each in ("b", "c"))
        await store.append(change("1", add_commands=rows, lease_seconds=OVER))
        await store.append(
            change("1", 1, add_commands=(command("1", "a", worker_id="w"),), lease_seconds=OVER * 100)
        )
        await store.append(change("1", 2, add_commands=(command("1", "alive", worker_id="w"),)))
        await store.append(change("1", 3, add_commands=(command("1", "free"),)))
        assert [row.command_id for row in await store.expired()] == ["a", "b", "c"]
        assert [row.command_id for row in await store.expired(limit=1)] == ["a"]

    play(scenario)


def test_a_beat_prolongs_the_leases_that_are_the_workers_own_and_names_the_lost(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", add_commands=tuple(command("1", each) for each in "abcd")))
        mine = {row.command_id: row for row in await claim(store, 3, seconds=OVER)}
        await claim(store, 1, "v")
        await store.append(change("1", 1, free_commands=("b",)))
        await store.append(change("1", 2, hold_commands=("c",)))
        leases = [fence("a"), fence("b"), fence("c"), fence("d"), fence("gone")]
        assert await store.renew("w", leases, 30.0) == ("b", "c", "d", "gone")
        assert await store.expired() == []
        renewed = await store.command("1", "a")
        assert renewed is not None
        assert renewed.lease_until is not None
        assert renewed.lease_until > (mine["a"].lease_until or 0.0)
        assert await store.renew("w", [fence("a", epoch=2)], 30.0) == ("a",)
        assert await store.renew("w", [], 30.0) == ()

    play(scenario)


def test_a_freed_row_is_claimed_again_under_the_next_epoch(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", add_commands=(command("1", "c", worker_id="w"),)))
        await store.append(change("1", 1, free_commands=("c", "unknown")))
        assert state_of(await store.command("1", "c")) == (None, 1, False, False)
        assert [state_of(row) for row in await claim(store, worker_id="v")] == [("v", 2, True, False)]
        assert await store.command("1", "unknown") is None

    play(scenario)


def test_a_held_row_has_no_worker_and_is_claimed_only_after_it_is_freed(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(
            change("1", add_commands=(command("1", "c", worker_id="w"),), lease_seconds=OVER),
        )
        await store.append(change("1", 1, hold_commands=("c", "unknown")))
        assert state_of(await store.command("1", "c")) == (None, 1, False, True)
        assert await claim(store) == []
        assert await store.expired() == []
        await store.append(change("1", 2, free_commands=("c",)))
        assert [state_of(row) for row in await claim(store)] == [("w", 2, True, False)]

    play(scenario)


def test_holding_what_is_unleased_leaves_leased_rows_and_other_executions_alone(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("2", add_commands=(command("2", "other"),)))
        await store.append(
            change("1", add_commands=(command("1", "leased", worker_id="w"), command("1", "free")))
        )
        await store.append(
            change("1", 1, add_commands=(command("1", "added"),), hold_unleased_commands=True),
        )
        held = {row.command_id: row.is_held for row in await store.commands()}
        assert held == {"other": False, "leased": False, "free": True, "added": True}
        assert [row.command_id for row in await claim(store)] == ["other"]

    play(scenario)


def test_rows_are_held_and_freed_among_changes_that_are_queued_together(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await asyncio.gather(
            store.append(change("1", add_commands=(command("1", "a", worker_id="w"),))),
            store.append(change("1", 1, hold_commands=("a",), add_commands=(command("1", "b"),))),
            store.append(change("1", 2, hold_unleased_commands=True)),
            store.append(change("1", 3, free_commands=("a",), remove_commands=("b",))),
            store.append(change("2", add_commands=(command("2", "c", worker_id="w"),))),
            store.append(change("2", 1, fences=(fence("c"),), remove_commands=("c",))),
        )
        assert [(row.command_id, state_of(row)) for row in await store.commands()] == [
            ("a", (None, 1, False, False))
        ]

    play(scenario)


async def queue_of_each_kind(store: Store) -> int:
    """Rows in all states, of execution 1; gives the version."""
    names = ("free", "held", "freed", "gone", "again")
    await store.append(change("1", add_commands=tuple(command("1", name) for name in names[:1])))
    leased = tuple(command("1", name, worker_id="w") for name in (*names[1:], "leased"))
    await store.append(change("1", 1, add_commands=leased))
    await store.append(
        change("1", 2, hold_commands=("held",), free_commands=("freed", "again"), remove_commands=("gone",))
    )
    await store.append(change("1", 3, remove_commands=("freed",)))
    await store.append(change("1", 4, add_commands=(command("1", "freed", epoch=1),)))
    await claim(store)
    await store.append(change("1", 5, free_commands=("free", "freed")))
    return 6


@pytest.mark.parametrize(
    "over",
    [
        fence("free", 1),
        fence("held", 1),
        fence("freed", 2),
        fence("gone", 1),
        fence("again", 1),
        fence("leased", 2),
        fence("leased", 0),
        fence("unknown", 1),
        fence("leased", 1, expired=True),
    ],
    ids=lambda each: f"{each.command_id} {each.epoch}{' expired' if each.expired else ''}",
)
def test_a_change_under_a_lease_that_is_over_writes_nothing(play: Play, over: Fence) -> None:
    async def scenario(store: Store) -> None:
        version = await queue_of_each_kind(store)
        before = await store.commands()
        with pytest.raises(LeaseFenced) as refused:
            await store.append(
                change(
                    "1",
                    version,
                    fences=(fence("leased"), over),
                    remove_all_commands=True,
                    execution=execution("1", "failed"),
                    vars={"x": 1},
                )
            )
        assert refused.value.command_ids == (over.command_id,)
        assert await store.commands() == before
        assert len(await store.events("1")) == version
        assert await store.execution("1") == execution("1")
        assert await store.vars("1") == {}
        await store.append(change("1", version, fences=(fence("leased"), fence("again", 2))))

    play(scenario)


def test_a_fence_of_a_first_change_does_not_hold(play: Play) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(LeaseFenced):
            await store.append(change("1", fences=(fence("c"),)))
        assert await store.execution("1") is None
        assert await store.executions() == []

    play(scenario)


def test_a_lease_is_taken_away_only_after_it_ran_out(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", add_commands=(command("1", "c"),)))
        (leased,) = await claim(store, seconds=OVER)
        assert await store.renew("w", [fence(leased)], 30.0) == ()
        lost = change("1", 1, fences=(fence(leased, expired=True),), free_commands=("c",))
        with pytest.raises(LeaseFenced):
            await store.append(lost)
        assert await store.renew("w", [fence(leased)], OVER) == ()
        await store.append(lost)
        assert state_of(await store.command("1", "c")) == (None, 1, False, False)

    play(scenario)


def test_a_lease_that_ran_out_still_counts_until_it_is_taken_away(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", add_commands=(command("1", "c"),)))
        (leased,) = await claim(store, seconds=OVER)
        await store.append(change("1", 1, fences=(fence(leased),)))
        await store.append(change("1", 2, fences=(fence(leased, expired=True),), free_commands=("c",)))
        with pytest.raises(LeaseFenced):
            await store.append(change("1", 3, fences=(fence(leased),)))

    play(scenario)


def test_a_repetition_succeeds_although_its_lease_is_over_meanwhile(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", add_commands=(command("1", "c", worker_id="w"),)))
        ending: dict[str, Any] = {
            "fences": (fence("c"),),
            "idem_keys": ("c:1:end",),
            "remove_commands": ("c",),
        }
        said = {"entity_id": "task"}
        first = change("1", 1, events=(event("1", 2, **said),), **ending)
        await store.append(first)
        await store.append(first)
        await store.append(change("1", 2, events=(event("1", 3, **said),), **ending))
        assert len(await store.events("1")) == 2
        other = change("1", 2, events=(event("1", 3, entity_id="other"),), **ending)
        with pytest.raises(KeyReusedError):
            await store.append(other)

    play(scenario)


def test_an_old_version_is_told_before_a_lease_that_is_over(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", count=2))
        with pytest.raises(AppendConflict):
            await store.append(change("1", 1, fences=(fence("gone"),)))

    play(scenario)


def test_changes_written_together_are_answered_each_for_itself(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", add_commands=(command("1", "c", worker_id="w"),)))
        await store.append(change("2", idem_keys=("k",)))
        answers = await store.append_all(
            [
                change("1", 1, fences=(fence("c", 2),)),
                change("2", 5),
                change("3", add_commands=(command("3", "d"),)),
                change("2", 1, events=(event("2", 2, payload={"other": True}),), idem_keys=("k",)),
                change("2", events=(event("2", 1),), idem_keys=("k",)),
            ]
        )
        assert [type(answer) for answer in answers] == [
            LeaseFenced,
            AppendConflict,
            type(None),
            KeyReusedError,
            type(None),
        ]
        assert [len(await store.events(each)) for each in ("1", "2", "3")] == [1, 1, 1]
        assert [row.command_id for row in await store.commands()] == ["c", "d"]
        assert await store.append_all([]) == []

    play(scenario)


def test_one_change_that_contradicts_itself_keeps_all_beside_it_from_being_written(play: Play) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(ValueError, match=r"\w"):
            await store.append_all([change("1"), change("2", events=(event("2", 5),))])
        assert await store.events("1") == []

    play(scenario)


def test_the_children_that_are_not_over_are_known(play: Play) -> None:
    def child(execution_id: str, parent: str, **fields: Any) -> Any:
        return change(execution_id, execution=execution(execution_id, parent_execution_id=parent, **fields))

    async def scenario(store: Store) -> None:
        await store.append(change("1"))
        for each in ("30", "4", "5"):
            await store.append(child(each, "1"))
        await store.append(child("6", "2"))
        assert await store.open_children("1") == ["30", "4", "5"]
        finished = execution("4", "completed", parent_execution_id="1", finished_at=NOW)
        await store.append(change("4", 1, execution=finished))
        assert await store.open_children("1") == ["30", "5"]
        assert await store.open_children("3") == []

    play(scenario)
