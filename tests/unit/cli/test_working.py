"""Where a worker waits for work: on the bus while that is up, at the server while it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from noetl.cli import working
from noetl.cli.working import WokenControl
from noetl.client.connection import Connection, ServerUnreachableError
from noetl.client.wire_work import Claimed
from noetl.records.report import Claim

CLAIM = Claim(worker_id="w", limit=4, wait_seconds=20)
WORK = cast("Any", SimpleNamespace(lease_seconds=30.0))


class ScriptedServer:
    """Stands in for the connection: answers claims in turn, and keeps how long each was ready to wait."""

    def __init__(self, *answers: list[Any] | Exception) -> None:
        self._answers = list(answers)
        self.waits: list[float] = []

    async def call(
        self, method: str, path: str, decoder: object, *, body: Claim, wait_seconds: float
    ) -> Claimed[Any]:
        assert (method, path) == ("POST", "/api/commands/claim")
        self.waits.append(wait_seconds)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Claimed(commands=tuple(answer))


class ScriptedBus:
    def __init__(self, *heard: bool) -> None:
        self._heard = list(heard)
        self.is_up = True
        self.limits: list[int] = []

    async def publish(self, pool: str, command_ids: Sequence[str]) -> None:
        raise AssertionError("a worker publishes nothing")

    async def wait(self, pool: str, timeout: float, limit: int = 1) -> bool:
        self.limits.append(limit)
        return self._heard.pop(0)

    async def close(self) -> None:
        self.is_up = False


def claimed(server: ScriptedServer, bus: ScriptedBus | None, claim: Claim = CLAIM) -> tuple[Any, ...]:
    return asyncio.run(WokenControl(cast(Connection, server), bus).claim(claim))


def test_with_a_bus_the_server_is_asked_without_waiting_and_again_when_woken() -> None:
    server, bus = ScriptedServer([], [WORK]), ScriptedBus(True)
    assert claimed(server, bus) == (WORK,)
    assert server.waits == [0.0, 0.0]
    assert bus.limits == [4]


def test_without_a_bus_the_server_holds_back_its_answer_but_not_for_long() -> None:
    server = ScriptedServer([], [WORK])
    assert claimed(server, None) == (WORK,)
    assert all(0 < wait <= working.POLL_SECONDS for wait in server.waits)


def test_a_bus_that_goes_down_is_replaced_by_waiting_at_the_server() -> None:
    server, bus = ScriptedServer([], [], [WORK]), ScriptedBus(True)

    async def scenario() -> None:
        control = WokenControl(cast(Connection, server), bus)
        bus.is_up = False
        assert await control.claim(CLAIM) == (WORK,)

    asyncio.run(scenario())
    assert bus.limits == []
    assert min(server.waits) > 0


def test_a_claim_that_may_not_wait_is_asked_once() -> None:
    server = ScriptedServer([])
    assert claimed(server, ScriptedBus(), Claim(worker_id="w", wait_seconds=0)) == ()
    assert server.waits == [0.0]


def test_a_server_that_is_away_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(working, "AWAY_SECONDS", 0.0)
    server = ScriptedServer(ServerUnreachableError("nobody answers"), [WORK])
    assert claimed(server, ScriptedBus()) == (WORK,)
    assert [record.getMessage() for record in caplog.records] == ["nobody answers"]


def test_a_worker_that_drains_claims_nothing() -> None:
    async def scenario() -> None:
        control = WokenControl(cast(Connection, ScriptedServer()), ScriptedBus())
        control.is_draining = True
        assert await control.claim(CLAIM) == ()

    asyncio.run(scenario())
