"""What a store keeps beside the log: projection, queue, timers, variables, bodies, catalog, inbox."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from noetl.ids import Snowflakes, seconds_of, timestamp
from noetl.store.protocol import BodyRow, InboxRow, Store
from tests.contract.store.changes import NOW, change, command, event, execution, timer
from tests.contract.store.conftest import Play


class SetClock:
    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


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


def test_executions_are_listed_by_parent_by_time_and_the_oldest_first(play: Play) -> None:
    def day(number: int) -> str:
        return timestamp(seconds_of(f"2025-01-{number:02}T00:00:00Z"))

    async def scenario(store: Store) -> None:
        for number, days in ((1, 1), (2, 5), (3, 3), (4, 4), (5, 2)):
            row = execution(
                str(number),
                "running" if number < 4 else "completed",
                requested_at=day(days),
                parent_execution_id="1" if number in (2, 4, 5) else None,
            )
            await store.append(change(str(number), execution=row))

        async def ids(**wanted: Any) -> list[str]:
            return [row.execution_id for row in await store.executions(**wanted)]

        assert await ids(parent="1") == ["5", "4", "2"]
        assert await ids(parent="1", status="completed", limit=1) == ["5"]
        assert await ids(parent="1", status="completed", before="5") == ["4"]
        assert await ids(parent="none") == []
        assert await ids(order="oldest") == ["1", "2", "3", "4", "5"]
        assert await ids(order="oldest", before="3", limit=1) == ["4"]
        # From a moment on, by when they were asked for.
        assert await ids(since=day(3)) == ["2", "4", "3"]
        assert await ids(since=day(3), order="oldest") == ["3", "4", "2"]
        assert await ids(since=day(3), limit=1, before="2") == ["4"]
        assert await ids(since=day(3), order="oldest", before="3", parent="1") == ["4", "2"]
        assert await ids(since=day(3), before="unknown") == []
        assert await ids(since=day(6)) == []

    play(scenario)


def test_a_key_stands_for_the_execution_it_was_first_given_with(play: Play) -> None:
    async def scenario(store: Store) -> None:
        assert await store.start_key("a", "11", 1.0) == "11"
        assert await store.start_key("a", "12", 2.0) == "11"
        assert await store.start_key("b", "12", 3.0) == "12"
        asked = [store.start_key("c", str(number), 4.0) for number in range(20, 30)]
        assert len(set(await asyncio.gather(*asked))) == 1

    play(scenario)


def test_what_ended_before_a_moment_is_forgotten_with_all_that_is_its_own(play: Play) -> None:
    def at(days: int) -> float:
        return seconds_of("2025-03-03T00:00:00Z") + days * 86_400.0

    async def scenario(store: Store) -> None:
        ids = Snowflakes(SetClock(at(0)))
        old, running, late = ids.next(), ids.next(), Snowflakes(SetClock(at(60))).next()
        body = BodyRow(key=f"noetl://{old}/a", execution_id=old, media_type="x", checksum="y", body=b"z")
        await store.append(change(old, bodies=(body,), vars={"v": 1}, snapshot=b"state"))
        ended = execution(old, "completed", finished_at=timestamp(at(0)))
        await store.append(change(old, 1, execution=ended))
        await store.append(change(running))
        ended = execution(late, "failed", finished_at=timestamp(at(60)))
        await store.append(change(late, execution=ended))
        for number, (name, days) in enumerate(((old, 0), (running, 0), (late, 60))):
            await store.start_key(f"key {number}", name, at(days))

        assert await store.forget_before(at(30)) == 1
        assert await store.forget_before(at(30)) == 0
        assert {row.execution_id for row in await store.executions()} == {running, late}
        assert await store.events(old) == []
        assert await store.body(body.key) is None
        assert await store.vars(old) == {}
        assert await store.snapshot(old) is None
        assert len(await store.events(running)) == 1
        # A key lasts as long as what it stands for.
        assert await store.start_key("key 0", "77", at(61)) == "77"
        assert await store.start_key("key 1", "77", at(61)) == running
        assert await store.start_key("key 2", "77", at(61)) == late

    play(scenario)


def test_the_queue_is_counted_and_filtered_where_it_lies(play: Play) -> None:
    def at(second: int) -> str:
        return timestamp(seconds_of("2025-01-01T00:00:00Z") + second)

    async def scenario(store: Store) -> None:
        rows = (
            command("1", "a", created_at=at(5)),
            command("1", "b", created_at=at(3), not_before=seconds_of(at(9))),
            command("1", "c", created_at=at(1), worker_id="w"),
            command("1", "d", created_at=at(2)),
        )
        await store.append(change("1", add_commands=rows, hold_commands=("d",)))
        await store.append(change("2", add_commands=(command("2", "e", pool="gpu", created_at=at(4)),)))
        counted = {(each.pool, each.state): (each.depth, each.oldest) for each in await store.queue()}
        assert counted == {
            ("default", "free"): (2, pytest.approx(seconds_of(at(5)), abs=0.01)),
            ("default", "held"): (1, None),
            ("default", "leased"): (1, None),
            ("gpu", "free"): (1, pytest.approx(seconds_of(at(4)), abs=0.01)),
        }
        assert [(each.pool, each.depth) for each in await store.queue(execution_id="2")] == [("gpu", 1)]
        assert await store.queue(execution_id="3") == []

        async def found(**wanted: Any) -> list[str]:
            return [row.command_id for row in await store.commands(**wanted)]

        assert await found(state="free") == ["b", "e", "a"]
        assert await found(state="free", pool="gpu") == ["e"]
        assert await found(state="held") == ["d"]
        assert await found(state="leased", execution_id="1") == ["c"]
        assert await found(pool="default", execution_id="2") == []

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
