"""The log as a stream: followed, broken off, taken up again, and ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from noetl.client.api import Api
from noetl.client.connection import Connection
from noetl.records.protocols import ExecutionRequest
from noetl.server.options import ServerOptions
from tests.contract.control.replicas import Replica, Served, served
from tests.unit.server.conftest import Play

PLAYBOOK = (
    "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
    "workflow: [{step: start, tool: {kind: noop}}]\n"
)
LAST = "playbook.processed"


def over_http(scenario: Callable[[Replica, Served], Awaitable[None]]) -> Callable[[Replica], Awaitable[None]]:
    async def whole(server: Replica) -> None:
        await server.register(PLAYBOOK)
        async with served(server.app) as at:
            await scenario(server, at)

    return whole


async def started(server: Replica) -> str:
    return await server.control.start(ExecutionRequest(path="p"))


async def read_to_end(url: str, **headers: str) -> tuple[int, list[dict[str, Any]]]:
    """What a stream says until it ends: its fields and, under `data`, the event."""
    asked = {"Accept": "text/event-stream", **headers}
    async with aiohttp.ClientSession() as session, session.get(url, headers=asked) as response:
        text = (await response.read()).decode() if response.status == 200 else ""
        told = []
        for block in text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "data" in fields:
                told.append(fields | {"data": json.loads(fields["data"])})
        return response.status, told


def test_a_follower_hears_every_event_until_the_end(play: Play) -> None:
    async def scenario(server: Replica, at: Served) -> None:
        execution_id = await started(server)
        api = Api(Connection(at.url))
        heard = []
        async for event in api.follow(execution_id):
            heard.append(event)
            if event.event_type == "step.scheduled":
                await server.control.cancel(execution_id)
        await api.close()
        log = await server.store.events(execution_id)
        assert [(event.seq, event.event_type) for event in heard] == [
            (event.seq, event.event_type) for event in log
        ]
        assert heard[-1].event_type == LAST

    play(over_http(scenario))


def test_a_stream_is_taken_up_after_the_last_event_that_was_heard(play: Play) -> None:
    async def scenario(server: Replica, at: Served) -> None:
        execution_id = await started(server)
        await server.control.cancel(execution_id)
        url = f"{at.url}/api/executions/{execution_id}/events"
        _, whole = await read_to_end(url)
        assert [int(told["id"]) for told in whole] == list(range(1, len(whole) + 1))
        assert [told["event"] for told in whole] == [told["data"]["event_type"] for told in whole]
        _, rest = await read_to_end(url, **{"Last-Event-ID": whole[2]["id"]})
        assert rest == whole[3:]

    play(over_http(scenario))


def test_a_stream_that_was_heard_to_its_end_is_not_opened_again(play: Play) -> None:
    async def scenario(server: Replica, at: Served) -> None:
        execution_id = await started(server)
        await server.control.cancel(execution_id)
        url = f"{at.url}/api/executions/{execution_id}/events"
        _, whole = await read_to_end(url)
        assert await read_to_end(url, **{"Last-Event-ID": whole[-1]["id"]}) == (204, [])
        assert (await read_to_end(url, **{"Last-Event-ID": "x"}))[0] == 422

    play(over_http(scenario))


def test_an_event_that_is_two_in_older_words_is_passed_only_with_the_second(play: Play) -> None:
    loop = PLAYBOOK.replace("tool:", "loop: {in: '{{ [] }}', iterator: i}, tool:")

    async def scenario(server: Replica, at: Served) -> None:
        await server.register(loop)
        execution_id = await started(server)
        assert (await server.store.execution(execution_id)).finished_at is not None  # type: ignore[union-attr]
        url = f"{at.url}/api/executions/{execution_id}/events?vocabulary=v2"
        _, told = await read_to_end(url)
        names = [each["event"] for each in told]
        both = names.index("loop.finished")
        assert names[both + 1] == "step.finished"
        assert "id" not in told[both]
        assert "id" in told[both + 1]
        assert "tool_run_id" in told[both]["data"]
        assert "task_run_id" not in told[both]["data"]

    play(over_http(scenario))


def test_a_server_that_stops_lets_go_of_those_who_wait(play: Play) -> None:
    async def scenario(server: Replica, at: Served) -> None:
        execution_id = await started(server)
        (taken,) = await _claimed(at, 0.0)
        assert taken
        stream = asyncio.create_task(read_to_end(f"{at.url}/api/executions/{execution_id}/events"))
        claim = asyncio.create_task(_claimed(at, 25.0))
        while not server.app.parts.observer.feed.followers:
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            at.server.should_exit = True
            status, told = await stream
            assert await claim == []
        assert status == 200
        assert told[-1]["event"] != LAST

    play(over_http(scenario))


async def _claimed(at: Served, seconds: float) -> list[Any]:
    body = {"worker_id": "w", "wait_seconds": seconds}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{at.url}/api/commands/claim", json=body) as response,
    ):
        found: list[Any] = (await response.json())["commands"]
        return found


def test_a_stream_ends_when_its_token_is_revoked(play: Play) -> None:
    async def scenario(server: Replica, at: Served) -> None:
        execution_id = await started(server)
        token = await server.token("viewer")
        asked = {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"}
        url = f"{at.url}/api/executions/{execution_id}/events"
        async with aiohttp.ClientSession() as session, session.get(url, headers=asked) as response:
            heard = b""
            while b"step.scheduled" not in heard:
                heard += await response.content.readany()
            await server.tokens.revoke("viewer")
            await server.control.cancel(execution_id)
            async with asyncio.timeout(10):
                rest = await response.read()
        assert LAST.encode() not in heard + rest
        assert b"data:" not in rest

    play(over_http(scenario), ServerOptions(auth=True))


def test_a_quiet_stream_ends_when_its_token_is_revoked(play: Play) -> None:
    async def scenario(server: Replica, at: Served) -> None:
        execution_id = await started(server)
        token = await server.token("viewer")
        asked = {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"}
        url = f"{at.url}/api/executions/{execution_id}/events"
        async with aiohttp.ClientSession() as session, session.get(url, headers=asked) as response:
            await response.content.readuntil(b"\n\n")
            await server.tokens.revoke("viewer")
            async with asyncio.timeout(10):
                await response.read()

    play(over_http(scenario), ServerOptions(auth=True))


def test_a_page_of_the_log_says_where_the_next_one_begins(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(PLAYBOOK)
        execution_id = await started(server)
        await server.control.cancel(execution_id)
        log = await server.store.events(execution_id)
        seen: list[int] = []
        after, more = 0, True
        async with server.client() as client:
            while more:
                query = {"after": after, "limit": 3}
                page = (await client.get(f"/api/executions/{execution_id}/events", params=query)).json()
                seen += [event["seq"] for event in page["events"]]
                after, more = page["after"], page["more"]
        assert seen == [event.seq for event in log]

    play(scenario)
