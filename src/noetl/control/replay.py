"""The state of an execution by its log alone."""

from __future__ import annotations

import contextlib
from typing import Protocol

import msgspec

from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.records.event import Event


class Log(Protocol):
    """Where logs are read: a store, or a server."""

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None: ...

    async def events(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]: ...


async def replayed(log: Log, execution_id: str) -> State:
    kept = await log.snapshot(execution_id)
    state = State(execution_id=execution_id)
    if kept is not None:
        # A state that another version kept, in a shape of its own, only saves time: the log has it all.
        with contextlib.suppress(msgspec.ValidationError):
            state = msgspec.msgpack.decode(kept[1], type=State)
    for event in await log.events(execution_id, after=state.seq):
        fold(state, event)
    return state
