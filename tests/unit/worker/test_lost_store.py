"""When nothing can be written any more, whoever waits for the execution hears of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noetl.embedded import Embedded
from noetl.errors import NoetlError
from noetl.playbook.load import load
from noetl.store.memory import MemoryStore
from noetl.store.protocol import Append, StoreError
from noetl.testing import FakeClock
from noetl.tools.registry import builtin_kinds

PLAYBOOK = b"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
workflow:
  - step: start
    tool: [{one: {kind: noop}}, {two: {kind: noop}}, {three: {kind: noop}}]
"""


@pytest.mark.parametrize("good", [1, 2, 3])
def test_waiting_ends_with_the_error_of_the_store(good: int, tmp_path: Path) -> None:
    class FillingStore(MemoryStore):
        left = good

        async def append(self, change: Append) -> None:
            self.left -= 1
            if self.left < 0:
                raise StoreError("the disk is full")
            await super().append(change)

    clock = FakeClock()

    async def scenario() -> None:
        async with Embedded(FillingStore(), tmp_path, clock=clock) as engine:
            execution_id = await engine.start(load(PLAYBOOK, builtin_kinds()), {})
            with pytest.raises(NoetlError, match="the disk is full"):
                await asyncio.wait_for(engine.finished(execution_id), 60)

    clock.run(scenario())
