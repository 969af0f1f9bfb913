"""What the operations of the `nats` kind do, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest

from noetl.cli.stack.nats_server import NatsServer, free_port
from noetl.records.outcome import Outcome
from noetl.records.result_ref import RESULT_REF
from noetl.tools import nats as nats_kind
from tests.unit.tools.local_context import call
from tests.unit.tools.nats_trials import NOTHING, TOKEN, Play, Scenario, Tried, tried


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    started = NatsServer(tmp_path_factory.mktemp("nats"), free_port(), TOKEN)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def play(server: NatsServer, tmp_path: Path) -> Play:
    async def played(scenario: Scenario) -> None:
        async with tried(tmp_path, server.url, {"url": server.url}) as about:
            for bucket in ("keys", "objects"):
                with contextlib.suppress(nats.js.errors.NotFoundError):
                    await about.js.delete_stream(f"{'KV' if bucket == 'keys' else 'OBJ'}_{bucket}")
            await about.js.create_key_value(bucket="keys", history=3)
            await about.js.create_object_store("objects")
            settings = (await about.js.stream_info("KV_keys")).config
            settings.allow_msg_ttl = True
            await about.js.update_stream(settings)
            await scenario(about)

    return lambda scenario: asyncio.run(played(scenario))


# --- key-value pairs --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["a text", {"ok": True, "list": [1, None]}, 5, None, False, "grün"])
def test_a_value_comes_back_as_it_was_put(play: Play, value: Any) -> None:
    async def scenario(about: Tried) -> None:
        revision = await about.revision("kv_put", bucket="keys", key="a.b", value=value)
        found = await about.done("kv_get", bucket="keys", key="a.b")
        assert found.result == value
        assert found.groups["nats"]["revision"] == revision

    play(scenario)


def test_bytes_that_are_no_text_are_stored(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        await (await about.js.key_value("keys")).put("a", b"\xff\x00")
        found = await about.result("kv_get", bucket="keys", key="a")
        assert found["kind"] == RESULT_REF
        assert Path(found["key"]).read_bytes() == b"\xff\x00"

    play(scenario)


def test_a_key_that_is_not_there_or_was_removed_is_null(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        assert (await about.done("kv_get", bucket="keys", key="a")).groups == {"nats": NOTHING}
        await about.revision("kv_put", bucket="keys", key="a", value=1)
        for _ in range(2):
            assert await about.result("kv_delete", bucket="keys", key="a") is None
        assert (await about.done("kv_get", bucket="keys", key="a")).groups == {"nats": NOTHING}
        await (await about.js.key_value("keys")).put("empty", b"")
        assert await about.result("kv_get", bucket="keys", key="empty") is None
        assert await about.result("kv_keys", bucket="keys") == []

    play(scenario)


def test_a_key_is_created_once_and_again_after_it_was_removed(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        first = await about.revision("kv_create", bucket="keys", key="a", value=1)
        other = {**about.login, "operation": "kv_create", "bucket": "keys", "key": "a", "value": 2}

        async def another(action_id: str) -> Outcome:
            made = msgspec.structs.replace(call("nats", other), action_id=action_id)
            return await nats_kind.run(made, about.context)

        taken = await another("other")
        assert taken.error is not None
        assert (taken.error.kind, taken.error.retryable) == ("nats.exists", False)
        await about.done("kv_delete", bucket="keys", key="a")
        again = await another("other")
        assert again.groups["nats"]["revision"] > first
        assert await about.result("kv_get", bucket="keys", key="a") == 2

    play(scenario)


def test_an_attempt_that_repeats_one_whose_answer_was_lost_is_not_refused(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        first = await about.revision("kv_create", bucket="keys", key="a", value=1)
        assert await about.revision("kv_create", bucket="keys", key="a", value=1) == first
        second = await about.revision("kv_update", bucket="keys", key="a", value=2, revision=first)
        assert await about.revision("kv_update", bucket="keys", key="a", value=2, revision=first) == second

    play(scenario)


def test_a_created_key_lives_as_long_as_it_says_in_whole_seconds(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        await about.revision("kv_create", bucket="keys", key="a", value=1, ttl="500ms")
        kept = await about.js.get_last_msg("KV_keys", "$KV.keys.a")
        assert kept.headers["Nats-TTL"] == "1"
        wrong = await about.error("kv_create", bucket="keys", key="b", value=1, ttl="soon")
        assert wrong == ("config.invalid", False)

        await about.js.add_stream(name="KV_plain", subjects=["$KV.plain.>"], max_msgs_per_subject=1)
        refused = await about.error("kv_create", bucket="plain", key="b", value=1, ttl=1)
        assert refused == ("nats.refused", False)
        await about.js.delete_stream("KV_plain")

    play(scenario)


def test_an_update_needs_the_last_revision(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        first = await about.revision("kv_put", bucket="keys", key="a", value=1)
        second = await about.revision("kv_update", bucket="keys", key="a", value=2, revision=first)
        assert second > first
        await about.revision("kv_put", bucket="keys", key="b", value=1)
        refused = await about.error("kv_update", bucket="keys", key="b", value=3, revision=first)
        assert refused == ("nats.revision", False)
        assert await about.result("kv_get", bucket="keys", key="b") == 1

    play(scenario)


def test_keys_are_listed_by_a_pattern(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        names = [f"orders.{number}" for number in range(600)]
        bucket = await about.js.key_value("keys")
        await asyncio.gather(*(bucket.put(name, b"1") for name in [*names, "other", "orders.1.lines"]))
        await about.done("kv_delete", bucket="keys", key="orders.5")
        names.remove("orders.5")
        assert await about.result("kv_keys", bucket="keys", key="orders.*") == sorted(names)
        everything = await about.result("kv_keys", bucket="keys")
        assert everything == sorted([*names, "other", "orders.1.lines"])
        assert await about.result("kv_keys", bucket="keys", key="none.>") == []

    play(scenario)


@pytest.mark.parametrize(
    "config",
    [
        {"operation": "kv_get", "key": "a"},
        {"operation": "kv_put", "key": "a", "value": 1},
        {"operation": "kv_create", "key": "a", "value": 1},
        {"operation": "kv_delete", "key": "a"},
        {"operation": "kv_keys"},
        {"operation": "object_get", "key": "a"},
        {"operation": "object_put", "key": "a", "value": 1},
        {"operation": "object_list"},
    ],
    ids=lambda config: config["operation"],
)
def test_a_bucket_that_does_not_exist_is_not_worth_another_attempt(
    play: Play, config: dict[str, Any]
) -> None:
    async def scenario(about: Tried) -> None:
        assert await about.error(bucket="nowhere", **config) == ("nats.missing", False)

    play(scenario)


# --- objects ----------------------------------------------------------------------------------------


def test_an_object_comes_back_as_it_was_put(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        for value in ({"rows": list(range(50_000))}, "a text", ""):
            assert await about.result("object_put", bucket="objects", key="a/b c", value=value) is None
            assert await about.result("object_get", bucket="objects", key="a/b c") == (value or None)
        await about.done("object_put", bucket="objects", key="other", value=1)
        assert await about.result("object_list", bucket="objects") == ["a/b c", "other"]
        for _ in range(2):
            await about.done("object_delete", bucket="objects", key="other")
        assert await about.result("object_list", bucket="objects") == ["a/b c"]
        assert await about.result("object_get", bucket="objects", key="other") is None

    play(scenario)


def test_an_empty_bucket_has_no_objects_and_a_damaged_one_is_refused(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        assert await about.result("object_list", bucket="objects") == []
        await about.js.publish("$O.objects.M.YQ==", b"[]")
        assert await about.error("object_list", bucket="objects") == ("nats.refused", False)
        assert await about.error("object_get", bucket="objects", key="a") == ("nats.refused", False)

    play(scenario)


def test_a_large_object_goes_to_the_result_store_in_pieces(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        body = bytes(range(256)) * (36 << 10)
        await (await about.js.object_store("objects")).put("large", body)
        found = await about.result("object_get", bucket="objects", key="large")
        assert (found["kind"], found["size"]) == (RESULT_REF, len(body))
        assert Path(found["key"]).read_bytes() == body
        assert about.context.results.largest_piece <= 128 << 10

    play(scenario)


@pytest.mark.parametrize("harm", ["a piece is gone", "a piece is another"])
def test_an_object_without_its_checksum_is_not_taken(play: Play, harm: str) -> None:
    async def scenario(about: Tried) -> None:
        info = await (await about.js.object_store("objects")).put("a", b"x" * 200_000)
        subject = f"$O.objects.C.{info.nuid}"
        last = await about.js.get_last_msg("OBJ_objects", subject)
        await about.js.delete_msg("OBJ_objects", last.seq)
        if harm == "a piece is another":
            await about.js.publish(subject, b"y" * len(last.data))
        assert await about.error("object_get", bucket="objects", key="a") == ("nats.damaged", True)

    play(scenario)


def test_a_cancelled_put_leaves_no_pieces_behind(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        value = "x" * (64 << 20)
        putting = asyncio.create_task(about.run("object_put", bucket="objects", key="a", value=value))
        while not (await about.js.stream_info("OBJ_objects")).state.messages:
            await asyncio.sleep(0)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert (await about.js.stream_info("OBJ_objects")).state.messages == 0

    play(scenario)


# --- messages ---------------------------------------------------------------------------------------


def test_a_stream_confirms_a_message_and_drops_a_repeated_one(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        await about.js.add_stream(name="told", subjects=["told.*"])
        try:
            message = {"subject": "told.a", "stream": "told", "value": {"n": 1}, "headers": {"Kind": 7}}
            for _ in range(2):
                outcome = await about.done("publish", **message)
                assert outcome.groups == {"nats": {**NOTHING, "stream": "told", "sequence": 1}}
            kept = await about.js.get_msg("told", 1)
            assert kept.data == b'{"n":1}'
            assert kept.headers["Nats-Msg-Id"] == "1/start/only/1"
            assert kept.headers["Kind"] == "7"
            other = await about.done("publish", message_id="mine", **message)
            assert other.groups["nats"]["sequence"] == 2
            assert await about.error("publish", subject="told.a", stream="absent") == ("nats.refused", False)
            assert await about.error("publish", subject="silent", stream="absent") == ("nats.missing", False)
            assert await about.error("publish", subject="silent", stream="told") == ("nats.refused", False)
            # Without a stream nobody confirms it, and a stream that listens keeps it all the same.
            assert (await about.done("publish", subject="told.a", message_id="3")).groups == {"nats": NOTHING}
            assert (await about.js.stream_info("told")).state.messages == 3
        finally:
            await about.js.delete_stream("told")

    play(scenario)


def test_a_request_gives_the_data_of_the_answer(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        async def answer(message: Any) -> None:
            await message.respond(b'{"heard": "' + message.data + message.headers["Tone"].encode() + b'"}')

        asked = await about.client.subscribe("asked", cb=answer)
        await about.client.flush()
        found = await about.result("request", subject="asked", value="hello", headers={"Tone": "!"})
        assert found == {"heard": "hello!"}
        await asked.unsubscribe()

    play(scenario)


def test_a_request_without_an_answer_may_be_made_again(play: Play) -> None:
    async def scenario(about: Tried) -> None:
        assert await about.error("request", subject="asked") == ("nats.no_responders", True)
        silent = await about.client.subscribe("asked")
        await about.client.flush()
        assert await about.error("request", subject="asked", spec={"timeout": 0.05}) == ("timeout", True)
        await silent.unsubscribe()

    play(scenario)


# --- what is written wrong --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"operation": "kv_put", "bucket": "keys", "key": "a"}, "`kv_put` needs `value`"),
        ({"operation": "kv_get", "bucket": "keys"}, "`kv_get` needs `key`"),
        ({"operation": "kv_update", "bucket": "keys", "key": "a", "value": 1}, "needs `revision`"),
        ({"operation": "kv_put", "bucket": "keys", "key": "a", "value": 1, "ttl": 5}, "`ttl` means nothing"),
        ({"operation": "kv_put", "bucket": "keys", "key": "a", "value": ""}, "`value` is empty"),
        ({"operation": "kv_put", "bucket": "keys", "key": "a b", "value": 1}, "`key` is not a key"),
        ({"operation": "kv_get", "bucket": "a.b", "key": "a"}, "`bucket` is not the name of one"),
        ({"operation": "kv_keys", "bucket": "keys", "key": "a..b"}, "not a pattern"),
        ({"operation": "publish", "subject": "a b"}, "`subject` is not one"),
        ({"operation": "publish", "subject": "a.>"}, "`subject` is not one"),
        ({"operation": "publish", "subject": "a\r\nPUB b 0"}, "`subject` is not one"),
        ({"operation": "publish", "subject": "a", "headers": {"A": "1\r\nB: 2"}}, "more than one line"),
        ({"operation": "publish", "subject": "a", "headers": {"A B": "1"}}, "a name that cannot be sent"),
        ({"operation": "publish", "subject": "a", "stream": "a.b"}, "`stream` is not the name"),
        ({"operation": "request", "subject": "a", "message_id": "1"}, "`message_id` means nothing"),
        ({"operation": "object_get", "bucket": "objects", "key": ""}, "an object needs a name"),
        ({"operation": "dance", "bucket": "keys"}, "Invalid enum value"),
    ],
)
def test_a_call_that_cannot_work_says_why(
    server: NatsServer, tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    async def scenario() -> None:
        async with tried(tmp_path, server.url, {"url": server.url}) as about:
            outcome = await about.run(**config)
            assert outcome.error is not None
            assert (outcome.error.kind, outcome.error.retryable) == ("config.invalid", False)
            assert said in outcome.error.message

    asyncio.run(scenario())
