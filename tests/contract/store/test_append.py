"""Appending: the log stays dense, a change is whole or absent, a repetition counts once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetl.store.idempotency import KeyReusedError
from noetl.store.protocol import AppendConflict, BodyRow, Store
from tests.contract.store.changes import change, command, event, execution, timer
from tests.contract.store.conftest import Play


def test_events_come_back_as_they_were_in_the_order_of_the_log(play: Play) -> None:
    full = event(
        "1",
        2,
        parent_id="p",
        workflow_run_id="w",
        step="s",
        step_run_id="r",
        task_run_id="t",
        task_label="l",
        iteration_id="i",
        iteration=0,
        attempt=1,
        page=3,
        action_id="a",
        payload={"outcome": {"result": [1, 2.5, None, True, 2**70, "ü"]}},
    )

    async def scenario(store: Store) -> None:
        await store.append(change("1", events=(event("1", 1), full)))
        await store.append(change("1", 2))
        assert await store.events("1") == [event("1", 1), full, event("1", 3)]
        assert await store.events("1", after=1) == [full, event("1", 3)]
        assert await store.events("1", after=1, limit=1) == [full]
        assert await store.events("1", after=3) == []
        assert await store.events("other") == []

    play(scenario)


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_change_decided_on_another_version_is_refused_and_writes_nothing(play: Play, version: int) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", count=2))
        with pytest.raises(AppendConflict):
            await store.append(
                change(
                    "1",
                    version,
                    execution=execution("1", "failed"),
                    add_commands=(command("1", "c"),),
                    add_timers=(timer("1", "t", 1.0),),
                    vars={"x": 1},
                )
            )
        assert len(await store.events("1")) == 2
        assert await store.execution("1") == execution("1")
        assert await store.commands() == []
        assert await store.next_timer() is None
        assert await store.vars("1") == {}

    play(scenario)


def test_one_refused_change_does_not_keep_those_beside_it_from_being_written(play: Play) -> None:
    keyed = change("77", idem_keys=("k",))
    late = change("77", 5)
    reused = change("77", 1, events=(event("77", 2, payload={"other": True}),), idem_keys=("k",))
    good = [change(str(number), add_commands=(command(str(number), "c"),)) for number in range(20)]

    async def scenario(store: Store) -> None:
        await store.append(keyed)
        changes = [*good[:10], late, reused, *good[10:]]
        answers = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
        assert [type(answer) for answer in answers] == (
            [type(None)] * 10 + [AppendConflict, KeyReusedError] + [type(None)] * 10
        )
        for each in good:
            assert await store.events(each.execution_id) == list(each.events)
        assert len(await store.commands()) == 20
        assert await store.events("77") == list(keyed.events)

    play(scenario)


def test_changes_to_one_execution_that_are_queued_together_continue_each_other(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await asyncio.gather(*(store.append(change("1", version, count=3)) for version in range(0, 90, 3)))
        assert [each.seq for each in await store.events("1")] == list(range(1, 91))

    play(scenario)


def test_of_changes_that_race_for_one_version_exactly_one_is_written(play: Play) -> None:
    racing = [change("1", events=(event("1", 1, entity_id=f"racer {number}"),)) for number in range(8)]

    async def scenario(store: Store) -> None:
        answers = await asyncio.gather(*map(store.append, racing), return_exceptions=True)
        assert [type(answer) for answer in answers].count(AppendConflict) == 7
        assert len(await store.events("1")) == 1

    play(scenario)


def test_a_repeated_change_succeeds_and_is_not_written_again(play: Play) -> None:
    first = change("1", count=2, idem_keys=("a", None), add_commands=(command("1", "c"),))

    async def scenario(store: Store) -> None:
        await store.append(first)
        await store.append(change("1", 2, remove_commands=("c",)))
        await store.append(first)
        assert len(await store.events("1")) == 3
        assert await store.commands() == []

    play(scenario)


def test_a_change_and_its_repetition_may_be_queued_together(play: Play) -> None:
    first = change("1", count=2, idem_keys=("a", "b"))

    async def scenario(store: Store) -> None:
        await asyncio.gather(*(store.append(first) for _ in range(5)))
        assert await store.events("1") == list(first.events)

    play(scenario)


def test_a_repetition_that_was_decided_anew_is_recognised_by_what_it_says(play: Play) -> None:
    said: dict[str, Any] = {"payload": {"pair": (1, 2)}, "entity_id": "task"}
    again = event("1", 2, event_id="another", timestamp="2026-01-01T00:00:00Z", **said)

    async def scenario(store: Store) -> None:
        await store.append(change("1", events=(event("1", 1, **said),), idem_keys=("k",)))
        await store.append(change("1", 1, events=(again,), idem_keys=("k",)))
        assert [each.seq for each in await store.events("1")] == [1]
        await store.append(change("1", 1))

    play(scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_a_key_that_stands_for_another_event_is_refused(play: Play, version: int) -> None:
    other = event("1", version + 1, payload={"other": True})

    async def scenario(store: Store) -> None:
        await store.append(change("1", idem_keys=("k",)))
        with pytest.raises(KeyReusedError) as refused:
            await store.append(change("1", version, events=(other,), idem_keys=("k",)))
        assert refused.value.key == "k"
        await store.append(change("1", 1, idem_keys=("next",)))
        assert len(await store.events("1")) == 2

    play(scenario)


def test_a_change_that_is_only_in_part_a_repetition_is_refused(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", idem_keys=("a",)))
        both = (event("1", 2, entity_id="entity-1"), event("1", 3))
        with pytest.raises(KeyReusedError):
            await store.append(change("1", 1, events=both, idem_keys=("a", "b")))
        early = (event("1", 1), event("1", 2))
        with pytest.raises(AppendConflict):
            await store.append(change("1", 0, events=early, idem_keys=("a", "b")))
        assert len(await store.events("1")) == 1

    play(scenario)


def test_the_same_key_in_two_executions_is_two_keys(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", idem_keys=("finished",)))
        await store.append(change("2", idem_keys=("finished",)))
        assert await store.events("2") == [event("2", 1)]

    play(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        change("1", events=(event("1", 2),)),
        change("1", events=(event("2", 1),)),
        change("1", execution=execution("2")),
        change("1", count=2, idem_keys=("a",)),
        change("1", count=2, idem_keys=("a", "a")),
    ],
    ids=["a gap", "an event of another", "a projection of another", "keys missing", "one key twice"],
)
def test_a_change_that_contradicts_itself_is_a_mistake_of_the_caller(play: Play, wrong: object) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(ValueError, match=r"\w"):
            await store.append(wrong)  # type: ignore[arg-type] # an Append, typed away by parametrize
        assert await store.events("1") == []

    play(scenario)


def test_a_change_without_events_writes_its_rows(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", count=2))
        await store.append(change("1", 2, count=0, vars={"a": 1}, execution=execution("1", "paused")))
        await store.append(change("1", 2))
        assert await store.vars("1") == {"a": 1}
        assert len(await store.events("1")) == 3

    play(scenario)


def test_a_caller_that_gives_up_waiting_does_not_disturb_the_others(play: Play) -> None:
    async def scenario(store: Store) -> None:
        given_up = asyncio.ensure_future(store.append(change("1")))
        await asyncio.sleep(0)
        given_up.cancel()
        await store.append(change("2"))
        assert await store.events("2") == [event("2", 1)]

    play(scenario)


STRANGE = "nul \x00, half a character \ud83d, \udc00, and a whole one 😀"


def test_text_that_json_can_hold_comes_back_unchanged(play: Play) -> None:
    data = {"key " + STRANGE: [STRANGE, {"deep": STRANGE}]}
    strange = event("1", 1, "loop.iteration.done", step_run_id="r", iteration=0, payload={"result": data})

    async def scenario(store: Store) -> None:
        await store.append(
            change(
                "1",
                events=(strange,),
                idem_keys=("k",),
                execution=execution("1", "failed", error={"message": STRANGE}, name="a\x00b"),
                add_timers=(timer("1", "t", 1.0, note=STRANGE),),
                vars={"v": data},
                bodies=(
                    BodyRow(
                        key="b",
                        execution_id="1",
                        media_type="text/plain",
                        checksum="c",
                        body=b"\x00\xff",
                    ),
                ),
            )
        )
        assert await store.events("1") == [strange]
        assert await store.iteration_results("1", "r") == [(0, data)]
        assert await store.vars("1") == {"v": data}
        row = await store.execution("1")
        assert row is not None
        assert (row.error, row.name) == ({"message": STRANGE}, "a\x00b")
        assert (await store.timers_due(2.0))[0].payload == {"note": STRANGE}
        body = await store.body("b")
        assert body is not None
        assert body.body == b"\x00\xff"
        await store.append(change("1", events=(strange,), idem_keys=("k",)))

    play(scenario)
