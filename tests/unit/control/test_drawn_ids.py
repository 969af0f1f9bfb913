"""Two servers that draw the same id start two executions all the same."""

from __future__ import annotations

import asyncio

from noetl.control.plane import ControlPlane
from noetl.records.report import Claim
from noetl.store.memory import MemoryStore
from noetl.store.protocol import Append
from noetl.testing import FakeClock
from noetl.tools.registry import builtin_kinds

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: {name}, path: {name}}}
workflow: [{{step: start, tool: {{kind: noop}}}}]
"""


def test_an_id_that_another_server_has_drawn_too_is_drawn_again() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)

    async def started() -> None:
        found = {}
        for name in ("first", "second"):
            # The same node and the same moment: both count from the same number.
            control = ControlPlane(store, builtin_kinds(), clock=clock, shared=True, node=7)
            source = PLAYBOOK.format(name=name).encode()
            entry = await store.register(name, name, "canonical", source, "")
            found[name] = await control.begin(entry, {})
        assert found["first"] != found["second"]
        for name, execution_id in found.items():
            row = await store.execution(execution_id)
            assert row is not None
            assert row.path == name

    clock.run(started())


def test_an_id_that_was_given_is_started_once() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)

    async def started() -> None:
        for _ in range(2):
            control = ControlPlane(store, builtin_kinds(), clock=clock, shared=True)
            entry = await store.register("p", "p", "canonical", PLAYBOOK.format(name="p").encode(), "")
            assert await control.begin(entry, {}, execution_id="5") == "5"
        assert len(await store.executions()) == 1

    clock.run(started())


def test_whoever_asks_for_an_id_that_was_started_hands_out_what_was_started() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)

    async def started() -> None:
        for name in ("first", "second"):
            control = ControlPlane(store, builtin_kinds(), clock=clock, shared=True)
            source = PLAYBOOK.format(name=name).encode()
            entry = await store.register(name, name, "canonical", source, "")
            await control.begin(entry, {}, execution_id="5")
        (work,) = await control.claim(Claim(worker_id="w"))
        assert work.playbook.path == "first"

    clock.run(started())


def test_two_starts_under_one_id_in_one_process_share_what_is_under_way() -> None:
    class SlowStore(MemoryStore):
        """Each change takes longer than the one before it."""

        appends = 0

        async def append(self, change: Append) -> None:
            self.appends += 1
            await asyncio.sleep(self.appends - 1)
            await super().append(change)

    clock = FakeClock()
    store = SlowStore(clock)

    async def started() -> None:
        control = ControlPlane(store, builtin_kinds(), clock=clock)
        entry = await store.register("p", "p", "canonical", PLAYBOOK.format(name="p").encode(), "")
        starting = [asyncio.create_task(control.begin(entry, {}, execution_id="5")) for _ in range(2)]
        await asyncio.sleep(0.5)
        (work,) = await control.claim(Claim(worker_id="w"))
        assert await asyncio.gather(*starting) == ["5", "5"]
        assert control.opened("5").held == {work.lease.command_id: 1}

    clock.run(started())
