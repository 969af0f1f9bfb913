"""The bucket in a real NATS server: times to live survive every kind of write, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from noetl.bus.kv import HISTORY, NatsKeyValue
from noetl.bus.nats_connection import NatsConnection, NatsDownError
from noetl.cli.stack.nats_server import NatsServer, free_port
from noetl.ids import Snowflakes
from noetl.registry.sessions import KeyValueSessions, Login, Sessions
from tests.contract.registry.conftest import SetClock

Play = Callable[[Callable[[NatsKeyValue, NatsConnection], Awaitable[None]]], None]


@pytest.fixture
def play_bucket(nats_server: NatsServer, request: pytest.FixtureRequest) -> Play:
    def play(scenario: Callable[[NatsKeyValue, NatsConnection], Awaitable[None]]) -> None:
        async def played() -> None:
            connection = NatsConnection(nats_server.url)
            assert await connection.open()
            try:
                async with asyncio.timeout(60):
                    await scenario(NatsKeyValue(connection, request.node.name[:40]), connection)
            finally:
                await connection.close()

        asyncio.run(played())

    return play


async def time_to_live(connection: NatsConnection, bucket: str, key: str) -> str | None:
    """What the last message of a key carries."""
    found = await connection.jetstream().get_last_msg(f"KV_{bucket}", f"$KV.{bucket}.{key}")
    return (found.headers or {}).get("Nats-TTL")


def test_every_write_sets_the_time_to_live_in_whole_seconds_rounded_up(
    play_bucket: Play, request: pytest.FixtureRequest
) -> None:
    name = request.node.name[:40]

    async def scenario(bucket: NatsKeyValue, connection: NatsConnection) -> None:
        first = await bucket.create("a.b", b"1", 99.2)
        assert first is not None
        assert await time_to_live(connection, name, "a.b") == "100"
        second = await bucket.update("a.b", b"2", first, 50.0)
        assert second is not None
        assert await time_to_live(connection, name, "a.b") == "50"
        await bucket.put("a.b", b"3", 0.1)
        assert await time_to_live(connection, name, "a.b") == "1"

    play_bucket(scenario)


def test_a_key_is_gone_when_the_time_of_its_last_write_is_over(play_bucket: Play) -> None:
    async def scenario(bucket: NatsKeyValue, connection: NatsConnection) -> None:
        first = await bucket.create("kept", b"1", 1)
        assert first is not None
        assert await bucket.update("kept", b"2", first, 100) is not None
        await bucket.create("gone", b"1", 1)
        while await bucket.get("gone") is not None:  # the server's own clock runs
            await asyncio.sleep(0)
        assert await bucket.keys(">") == ["kept"]
        found = await bucket.get("kept")
        assert found is not None
        assert found[0] == b"2"

    play_bucket(scenario)


def test_a_write_with_another_revision_is_refused(play_bucket: Play) -> None:
    async def scenario(bucket: NatsKeyValue, connection: NatsConnection) -> None:
        revision = await bucket.create("k", b"1", 60)
        assert revision is not None
        assert await bucket.create("k", b"2", 60) is None
        assert await bucket.update("k", b"2", revision + 1, 60) is None
        following = await bucket.update("k", b"2", revision, 60)
        assert following is not None
        assert await bucket.update("k", b"3", revision, 60) is None
        assert await bucket.get("k") == (b"2", following)
        await bucket.delete("k")
        assert await bucket.get("k") is None
        assert await bucket.update("k", b"4", following, 60) is None
        assert await bucket.create("k", b"5", 60) is not None

    play_bucket(scenario)


def test_a_removal_leaves_no_value_behind(play_bucket: Play, request: pytest.FixtureRequest) -> None:
    name = request.node.name[:40]

    async def scenario(bucket: NatsKeyValue, connection: NatsConnection) -> None:
        for _ in range(HISTORY):
            await bucket.put("k", b"secret", 60)
        await bucket.delete("k")
        state = (await connection.jetstream().stream_info(f"KV_{name}")).state
        assert state.messages == 1  # the mark of the removal
        assert await time_to_live(connection, name, "k") is not None

    play_bucket(scenario)


def test_an_empty_value_is_absent_and_cannot_be_written(
    play_bucket: Play, request: pytest.FixtureRequest
) -> None:
    name = request.node.name[:40]

    async def scenario(bucket: NatsKeyValue, connection: NatsConnection) -> None:
        await bucket.put("k", b"1", 60)
        await connection.jetstream().publish(f"$KV.{name}.k", b"")
        assert await bucket.get("k") is None
        with pytest.raises(ValueError, match="empty"):
            await bucket.put("k", b"", 60)

    play_bucket(scenario)


def test_a_pattern_lists_what_matches_and_nothing_else(play_bucket: Play) -> None:
    async def scenario(bucket: NatsKeyValue, connection: NatsConnection) -> None:
        assert await bucket.keys("user.4.*") == []
        for key in ("user.4.a", "user.4.b", "user.45.c", "user.4.d.e", "other"):
            await bucket.put(key, b"1", 60)
        await bucket.put("user.4.a", b"2", 60)
        await bucket.delete("user.4.b")
        assert await bucket.keys("user.4.*") == ["user.4.a"]
        for number in range(300):
            await bucket.put(f"many.1.{number}", b"1", 60)
        assert len(await bucket.keys("many.1.*")) == 300

    play_bucket(scenario)


def test_the_index_of_a_user_lives_as_long_as_the_session(
    play_bucket: Play, request: pytest.FixtureRequest, clock: SetClock
) -> None:
    name = request.node.name[:40]

    async def scenario(bucket: NatsKeyValue, connection: NatsConnection) -> None:
        sessions = Sessions(
            KeyValueSessions(bucket),
            clock=clock,
            ids=Snowflakes(clock),
            sliding_seconds=1000,
            longest_seconds=1050,
        )
        token, _ = await sessions.create(Login(user_id=7))
        clock.at += 100
        assert await sessions.get(token) is not None
        keys = await bucket.keys("noetl.sessions.>")
        assert len(keys) == 2
        index, session = sorted(keys, key=lambda key: "user" not in key)
        assert index.startswith("noetl.sessions.user.7.")
        assert index.rpartition(".")[2] == session.removeprefix("noetl.sessions.")
        assert {await time_to_live(connection, name, key) for key in keys} == {"950"}

    play_bucket(scenario)


def test_without_nats_it_says_so_at_once_and_a_wiped_bucket_is_made_again(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats", free_port(), "secret")
    server.start()

    async def scenario() -> None:
        connection = NatsConnection(server.url)
        bucket = NatsKeyValue(connection, "sessions")
        with pytest.raises(NatsDownError):
            await bucket.get("k")
        assert await connection.open()
        try:
            await bucket.put("k", b"1", 60)
            await connection.jetstream().delete_stream("KV_sessions")
            with pytest.raises(NatsDownError):
                await bucket.put("k", b"1", 60)
            await bucket.put("k", b"2", 60)
            found = await bucket.get("k")
            assert found is not None
            assert found[0] == b"2"
        finally:
            await connection.close()

    try:
        asyncio.run(scenario())
    finally:
        server.stop()
