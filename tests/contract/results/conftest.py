"""The stores of result bodies that the suite runs on; each can be told to lose or damage a body."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

import pytest

from noetl.bus.nats_connection import NatsConnection
from noetl.cli.stack.nats_server import NatsServer, free_port
from noetl.records.protocols import ResultBodies
from noetl.records.result_ref import ResultRef
from noetl.results.bodies import FileBodies
from noetl.results.chosen import ChosenBodies
from noetl.results.nats_objects import BUCKET, NatsObjectBodies

STORES = ["file", "nats_object", "file url", "chosen nats_object"]


class Tried(NamedTuple):
    bodies: ResultBodies
    store: object
    lose: Callable[[ResultRef], Awaitable[None]]
    damage: Callable[[ResultRef], Awaitable[None]]


Scenario: TypeAlias = Callable[[Tried], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"), free_port(), "secret")
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=STORES)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    async def played(scenario: Scenario) -> None:
        async with asyncio.timeout(60):
            if request.param == "file":
                await scenario(on_files(FileBodies(tmp_path), None, lambda ref: tmp_path / ref.key))
            elif request.param == "file url":
                url = f"file://{tmp_path}/a%20folder"
                await scenario(
                    on_files(ChosenBodies({}), url, lambda ref: Path(unquote(urlsplit(ref.key).path)))
                )
            else:
                await on_nats(request.getfixturevalue("nats"), request.param, scenario)

    return lambda scenario: asyncio.run(played(scenario))


def on_files(bodies: ResultBodies, store: object, path: Callable[[ResultRef], Path]) -> Tried:
    async def lose(ref: ResultRef) -> None:
        path(ref).unlink()

    async def damage(ref: ResultRef) -> None:
        path(ref).write_bytes(b"something else")

    return Tried(bodies, store, lose, damage)


async def on_nats(server: NatsServer, param: str, scenario: Scenario) -> None:
    connection = NatsConnection(server.url)
    assert await connection.open()

    async def lose(ref: ResultRef) -> None:
        await (await connection.jetstream().object_store(BUCKET)).delete(ref.key)

    async def damage(ref: ResultRef) -> None:
        await (await connection.jetstream().object_store(BUCKET)).put(ref.key, b"something else")

    objects: ResultBodies = NatsObjectBodies(connection.jetstream)
    bodies = ChosenBodies({"nats_object": objects}) if param.startswith("chosen") else objects
    try:
        await scenario(Tried(bodies, "nats_object", lose, damage))
    finally:
        await connection.close()
