"""Signals that tasks wait for: by name, the oldest first, and each in one hand only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from noetl.control.live import Live
from noetl.control.plane import ControlPlane
from noetl.store.memory import MemoryStore
from noetl.testing import FakeClock
from noetl.tools.registry import builtin_kinds

PLAYBOOK = b"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
workflow: [{step: start, tool: {kind: noop}}]
"""


def play(scenario: Callable[[ControlPlane, Live], Awaitable[None]]) -> None:
    clock, store = FakeClock(), MemoryStore()

    async def whole() -> None:
        control = ControlPlane(store, builtin_kinds(), clock=clock)
        entry = await store.register("p", "p", "canonical", PLAYBOOK, "")
        await control.begin(entry, {}, execution_id="1")
        await scenario(control, await control.open("1"))

    clock.run(whole())


def test_a_signal_is_taken_by_its_name_the_oldest_first() -> None:
    async def scenario(control: ControlPlane, live: Live) -> None:
        for name, data in (("stop", 0), ("go", 1), ("go", 2)):
            await control.signal("1", name, data)
        found = [await live.next_signal("go", command, 0.0) for command in ("a", "b", "c")]
        assert [each and each[1] for each in found] == [1, 2, None]
        assert (await live.next_signal("stop", "c", 0.0) or (0, None))[1] == 0

    play(scenario)


def test_a_signal_in_hand_is_given_to_nobody_else_until_it_is_let_go_of() -> None:
    async def scenario(control: ControlPlane, live: Live) -> None:
        await control.signal("1", "go", 1)
        mine = await live.next_signal("go", "a", 0.0)
        assert mine is not None
        assert await live.next_signal("go", "a", 0.0) == mine
        assert await live.next_signal("go", "b", 0.0) is None
        live.let_go_of_signals("b")
        assert await live.next_signal("go", "b", 0.0) is None
        live.let_go_of_signals("a")
        assert await live.next_signal("go", "b", 0.0) == mine

    play(scenario)


def test_whoever_waits_hears_of_a_signal_when_it_comes_and_not_for_longer_than_asked() -> None:
    async def scenario(control: ControlPlane, live: Live) -> None:
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(live.next_signal("go", "a", 60.0))
        await asyncio.sleep(5)
        await control.signal("1", "go", "now")
        assert (await waiting or (0, None))[1] == "now"
        assert loop.time() == 5
        assert await live.next_signal("other", "a", 30.0) is None
        assert loop.time() == 35
        assert live.is_idle

    play(scenario)


def test_a_short_wait_is_a_wait() -> None:
    async def scenario(control: ControlPlane, live: Live) -> None:
        waiting = asyncio.create_task(live.next_signal("go", "a", 0.5))
        await asyncio.sleep(0.3)
        await control.signal("1", "go", "now")
        assert (await waiting or (0, None))[1] == "now"

    play(scenario)
