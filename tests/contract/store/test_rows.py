"""What a store keeps beside the log: projection, queue, timers, variables, bodies, catalog, inbox."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from noetl.store.protocol import BodyRow, InboxRow, Store
from tests.contract.store.changes import NOW, change, command, event, execution, timer
from tests.contract.store.conftest import Play


def iteration(seq: int, index: int, result: Any, step_run_id: str = "r", **payload: Any) -> Any:
    return event(
        "1",
        seq,
        "loop.iteration.done",
        step_run_id=step_run_id,
        iteration=index,
        payload={"result": result, **payload},
    )


def test_the_results_of_a_loop_come_in_index_order_without_those_of_blocks_and_other_loops(
    play: Play,
) -> None:
    events = (
        iteration(1, 10, "ten"),
        iteration(2, 2, {"two": 2}),
        iteration(3, 0, "of a block", block="inner"),
        iteration(4, 5, "of another run", step_run_id="other"),
        event("1", 5, "loop.iteration.failed", step_run_id="r", iteration=3),
        event("1", 6, "loop.iteration.done", step_run_id="r", iteration=4),
        event("1", 7, "loop.iteration.started", step_run_id="r", iteration=11),
    )

    async def scenario(store: Store) -> None:
        await store.append(change("1", events=events))
        assert await store.iteration_results("1", "r") == [(2, {"two": 2}), (4, None), (10, "ten")]
        assert await store.iteration_results("1", "nothing") == []

    play(scenario)


def test_the_projection_is_that_of_the_last_change(play: Play) -> None:
    finished = execution(
        "1",
        "failed",
        finished_at=NOW,
        parent_execution_id="0",
        error={"kind": "x", "details": [1]},
        playbook_digest="d",
    )

    async def scenario(store: Store) -> None:
        assert await store.execution("1") is None
        await store.append(change("1"))
        await store.append(change("1", 1))
        assert await store.execution("1") == execution("1")
        await store.append(change("1", 2, execution=finished))
        assert await store.execution("1") == finished

    play(scenario)


def test_executions_are_listed_newest_first_and_in_pages(play: Play) -> None:
    async def scenario(store: Store) -> None:
        for number in range(8, 13):  # ids that do not sort as text
            status = "running" if number % 2 else "completed"
            row = execution(str(number), status, path="even" if status == "completed" else "odd")
            await store.append(change(str(number), execution=row))

        async def ids(**wanted: Any) -> list[str]:
            return [row.execution_id for row in await store.executions(**wanted)]

        assert await ids() == ["12", "11", "10", "9", "8"]
        assert await ids(limit=2) == ["12", "11"]
        assert await ids(limit=2, before="11") == ["10", "9"]
        assert await ids(status="running") == ["11", "9"]
        assert await ids(status="running", before="11") == ["9"]
        assert await ids(path="even") == ["12", "10", "8"]
        assert await ids(path="even", status="running") == []
        assert await ids(before="unknown") == []

    play(scenario)


def test_commands_wait_in_the_order_they_were_made_until_they_are_removed(play: Play) -> None:
    made = [command("1", str(number), created_at=f"2025-01-0{number}", pool="gpu") for number in range(1, 4)]
    other = command("2", "1", created_at="2025-01-02T12", not_before=12.5)

    async def scenario(store: Store) -> None:
        await store.append(change("1", add_commands=tuple(reversed(made))))
        await store.append(change("2", add_commands=(other,)))
        assert await store.commands() == [made[0], made[1], other, made[2]]
        assert await store.commands(limit=1) == [made[0]]
        assert await store.commands(execution_id="1", limit=2) == made[:2]
        await store.append(change("1", 1, remove_commands=("1", "unknown")))
        assert await store.commands() == [made[1], other, made[2]]
        await store.append(change("1", 2, remove_all_commands=True, add_commands=(made[0],)))
        assert await store.commands() == [made[0], other]

    play(scenario)


def test_what_is_queued_together_leaves_what_it_would_leave_in_turn(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", add_commands=(command("1", "old"),)))
        await asyncio.gather(
            store.append(change("1", 1, remove_commands=("old",), add_commands=(command("1", "a"),))),
            store.append(change("1", 2, remove_commands=("a",), add_commands=(command("1", "b"),))),
            store.append(change("1", 3, remove_commands=("b",))),
            store.append(change("1", 4, add_commands=(command("1", "b", pool="again"),))),
            store.append(change("2", add_commands=(command("2", "x"),), add_timers=(timer("2", "t", 1.0),))),
            store.append(change("2", 1, remove_all_commands=True, remove_all_timers=True)),
            store.append(change("2", 2, add_commands=(command("2", "y"),), vars={"v": 1})),
            store.append(change("2", 3, vars={"v": 2}, execution=execution("2", "completed"))),
        )
        assert await store.commands() == [command("1", "b", pool="again"), command("2", "y")]
        assert await store.timers_due(9.0) == []
        assert await store.vars("2") == {"v": 2}
        assert await store.execution("2") == execution("2", "completed")
        assert await store.execution("1") == execution("1")

    play(scenario)


def test_timers_are_due_at_their_time_the_earliest_first(play: Play) -> None:
    early, late = timer("1", "early", 10.0, step="a"), timer("1", "late", 20.5)

    async def scenario(store: Store) -> None:
        assert await store.next_timer() is None
        await store.append(change("1", add_timers=(late, early)))
        assert await store.next_timer() == 10.0
        assert await store.timers_due(9.9) == []
        assert await store.timers_due(10.0) == [early]
        assert await store.timers_due(99.0) == [early, late]
        assert await store.timers_due(99.0, limit=1) == [early]
        await store.append(change("1", 1, remove_timers=("early",)))
        assert await store.next_timer() == 20.5
        await store.append(change("1", 2, remove_all_timers=True))
        assert await store.next_timer() is None

    play(scenario)


def test_the_last_snapshot_is_kept_with_its_place_in_the_log(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await store.append(change("1", count=3))
        assert await store.snapshot("1") is None
        await store.append(change("1", 3, count=2, snapshot=b"\x00one"))
        assert await store.snapshot("1") == (5, b"\x00one")
        await store.append(change("1", 5))
        assert await store.snapshot("1") == (5, b"\x00one")
        await store.append(change("1", 6, snapshot=b"two"))
        assert await store.snapshot("1") == (7, b"two")

    play(scenario)


def test_variables_are_kept_by_name_and_the_last_value_counts(play: Play) -> None:
    async def scenario(store: Store) -> None:
        assert await store.vars("1") == {}
        await store.append(change("1", vars={"a": 1, "b": {"c": [None]}}))
        await store.append(change("1", 1, vars={"a": "two"}))
        await store.append(change("2", vars={"a": "other"}))
        assert await store.vars("1") == {"a": "two", "b": {"c": [None]}}

    play(scenario)


def test_bodies_come_back_whichever_way_they_were_stored(play: Play) -> None:
    def row(key: str) -> BodyRow:
        return BodyRow(
            key=key,
            execution_id="1",
            media_type="application/json",
            checksum="c",
            body=key.encode() * 100_000,
        )

    async def scenario(store: Store) -> None:
        await store.put_body(row("alone"))
        await store.put_body(row("alone"))
        await store.append(change("1", bodies=(row("with"),)))
        assert await store.body("alone") == row("alone")
        assert await store.body("with") == row("with")
        assert await store.body("unknown") is None

    play(scenario)


def test_a_playbook_gets_a_new_version_only_when_its_text_changes(play: Play) -> None:
    async def scenario(store: Store) -> None:
        first = await store.register("a/b", "b", "v1", b"one", NOW)
        assert first.version == 1
        assert first.digest == hashlib.sha256(b"one").hexdigest()
        assert await store.register("a/b", "b", "v1", b"one", "later") == first
        second = await store.register("a/b", "b", "v2", b"two", "later")
        assert (second.version, second.source, second.dialect) == (2, b"two", "v2")
        third = await store.register("a/b", "b", "v1", b"one", "last")
        assert third.version == 3
        assert await store.catalog_entry("a/b") == third
        assert await store.catalog_entry("a/b", 2) == second
        assert await store.catalog_entry("a/b", 9) is None
        assert await store.catalog_entry("unknown") is None
        assert await store.catalog_by_digest(second.digest) == second
        assert await store.catalog_by_digest("unknown") is None

    play(scenario)


def test_the_catalog_lists_the_newest_versions_or_all_of_one_without_sources(play: Play) -> None:
    async def scenario(store: Store) -> None:
        for path, source in (("b", b"1"), ("a", b"1"), ("b", b"2")):
            await store.register(path, path, "canonical", source, NOW)
        assert [(each.path, each.version, each.source) for each in await store.catalog()] == [
            ("a", 1, b""),
            ("b", 2, b""),
        ]
        assert [each.version for each in await store.catalog(path="b")] == [2, 1]
        assert [each.version for each in await store.catalog(path="b", limit=1)] == [2]

    play(scenario)


def test_playbooks_registered_at_once_get_versions_of_their_own(play: Play) -> None:
    async def scenario(store: Store) -> None:
        texts = [str(number).encode() for number in range(10)]
        made = await asyncio.gather(*(store.register("p", "p", "v2", text, NOW) for text in texts))
        assert sorted(each.version for each in made) == list(range(1, 11))

    play(scenario)


@pytest.mark.parametrize("play", ["sqlite file", "sqlite memory", "memory"], indirect=True)
def test_requests_are_taken_from_the_inbox_once_in_the_order_they_came(play: Play) -> None:
    signal = InboxRow(request_id="z", kind="signal", execution_id="1", payload={"name": "go", "data": [1]})
    cancel = InboxRow(request_id="a", kind="cancel", execution_id="1")

    async def scenario(store: Store) -> None:
        assert await store.take_inbox() == []
        await store.put_inbox(signal)
        await store.put_inbox(cancel)
        await store.put_inbox(signal)
        assert await store.take_inbox() == [signal, cancel]
        assert await store.take_inbox() == []

    play(scenario)
