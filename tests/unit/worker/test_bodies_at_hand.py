"""An evaluation that needs more stored results than may be at hand finds them all, and then they go."""

from __future__ import annotations

import asyncio
from typing import Any

from noetl.engine.bodies import RECENT_USES, Bodies
from noetl.engine.state import Data
from noetl.worker.calls import with_bodies


class Found:
    def __init__(self) -> None:
        self.bodies = Bodies(15)
        self.loads: list[str] = []

    async def load_body(self, ref: Data) -> None:
        self.loads.append(ref["ref"])
        await asyncio.sleep(0)
        self.bodies.keep(ref, ref["ref"])
        for _ in range(RECENT_USES):  # others use what is theirs meanwhile
            self.bodies.get(ref)
        self.bodies.trim()


def ref(name: str) -> Data:
    return {"kind": "result_ref", "ref": name, "store": "database", "size": 10}


def test_all_that_is_needed_is_there_at_once_however_little_room_there_is() -> None:
    found = Found()

    def joined() -> Any:
        return "".join(found.bodies.get(ref(name)) for name in "abc")

    async def scenario() -> None:
        found.bodies.keep(ref("a"), "a")
        assert await with_bodies(joined, found) == "abc"
        assert found.loads == ["b", "a", "c"]

    asyncio.run(scenario())
    for _ in range(RECENT_USES):
        found.bodies.get(ref("c"))
    found.bodies.trim()
    assert list(found.bodies._loaded) == ["c"]
