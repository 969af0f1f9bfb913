"""Two servers that draw the same id start two executions all the same."""

from __future__ import annotations

from noetl.control.plane import ControlPlane
from noetl.store.memory import MemoryStore
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
