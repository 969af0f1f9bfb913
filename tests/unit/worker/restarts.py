"""Plays a playbook again and again, each time with a process that dies right after another commit.

After each death a fresh process goes on from the store. What came of it must be what comes of it undisturbed,
and no call whose outcome was recorded may be made again.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from noetl.embedded import Embedded
from noetl.engine.fold import fold
from noetl.engine.limits import EVENT_BYTES
from noetl.engine.state import State
from noetl.playbook.load import Loaded, load
from noetl.records.event import Event
from noetl.records.protocols import ToolCall
from noetl.store.memory import MemoryStore
from noetl.store.protocol import Append, StoreError
from noetl.testing import Answer, FakeClock, ScriptedTool
from noetl.tools.registry import builtin_kinds, runnable

EXECUTION = "7"
REAL = frozenset({"noop", "workbook", "playbook", "wait"})
ENDED = ("task.done", "sink.processed")


class DyingStore:
    """A store as a process sees it that dies right after a commit."""

    def __init__(self, store: MemoryStore, dies_after: int | None, died: asyncio.Event) -> None:
        self._store = store
        self._left = dies_after
        self._died = died

    def __getattr__(self, name: str) -> Any:
        self._require_life()
        return getattr(self._store, name)

    def _require_life(self) -> None:
        if self._died.is_set():
            raise StoreError("this process is dead")

    async def append(self, change: Append) -> None:
        self._require_life()
        await self._store.append(change)
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._died.set()
                raise StoreError("the process died right after this commit")


class Play:
    """One playbook, its script, and the signals that come from outside."""

    def __init__(
        self, text: str, tools: Mapping[str, Answer], signals: Mapping[float, tuple[str, Any]] | None = None
    ) -> None:
        self.loaded: Loaded = load(text.encode(), builtin_kinds())
        wrong = [each.message for each in self.loaded.diagnostics if each.severity == "error"]
        assert self.loaded.playbook is not None, wrong
        self._tools = tools
        self._signals = signals or {}
        self.store = MemoryStore()
        self.calls: list[ToolCall] = []
        self._engine: Embedded | None = None

    def run(self, dies_after: int | None = None) -> State:
        self.store, self.calls = MemoryStore(), []
        clock = FakeClock(patience=1.0)
        return clock.run(self._run(clock, dies_after))

    async def _run(self, clock: FakeClock, dies_after: int | None) -> State:
        outside = asyncio.create_task(self._send())
        try:
            state = await self._process(clock, dies_after)
            if state is None:
                state = await self._process(clock, None)
            assert state is not None
            return state
        finally:
            outside.cancel()
            await asyncio.gather(outside, return_exceptions=True)

    async def _process(self, clock: FakeClock, dies_after: int | None) -> State | None:
        died = asyncio.Event()
        store: Any = DyingStore(self.store, dies_after, died)
        with tempfile.TemporaryDirectory() as folder:
            engine = Embedded(store, Path(folder), clock=clock, tool=lambda kind: self._tool(kind, clock))
            self._engine = engine
            running = asyncio.create_task(self._to_its_end(engine))
            death = asyncio.create_task(died.wait())
            await asyncio.wait({running, death}, return_when=asyncio.FIRST_COMPLETED)
            dead = death.done()
            for task in (running, death):
                if dead or task is death:
                    task.cancel()
            ended = await asyncio.gather(running, death, return_exceptions=True)
            if dead:
                return None
            if isinstance(ended[0], BaseException):
                raise ended[0]
            return ended[0]

    async def _to_its_end(self, engine: Embedded) -> State:
        async with engine:
            if await self.store.execution(EXECUTION) is None:
                await engine.start(self.loaded, {}, execution_id=EXECUTION)
            else:
                await engine.resume(EXECUTION)
            return await engine.finished(EXECUTION)

    async def _send(self) -> None:
        """Sends each signal until it is in the log."""
        loop = asyncio.get_running_loop()
        for moment, (name, data) in sorted(self._signals.items()):
            await asyncio.sleep(moment - loop.time())
            while not await self._is_sent(name):
                assert self._engine is not None
                try:
                    await self._engine.control.signal(EXECUTION, name, data)
                except StoreError:
                    await asyncio.sleep(0.001)
                except Exception as error:
                    if "dead" not in str(error) and "died" not in str(error):
                        raise
                    await asyncio.sleep(0.001)

    async def _is_sent(self, name: str) -> bool:
        events = await self.store.events(EXECUTION)
        return any(e.event_type == "signal.received" and e.payload["name"] == name for e in events)

    def _tool(self, kind: str, clock: FakeClock) -> Any:
        if kind in REAL and kind not in self._tools:
            return runnable(kind)
        return _Watched(kind, self._tools, clock, self)

    def events(self) -> list[Event]:
        return asyncio.run(self.store.events(EXECUTION))


class _Watched(ScriptedTool):
    def __init__(self, kind: str, tools: Mapping[str, Answer], clock: FakeClock, play: Play) -> None:
        super().__init__(kind, tools, clock, play.calls)
        self._play = play

    async def run(self, call: ToolCall, context: Any) -> Any:
        for event in await self._play.store.events(EXECUTION):
            if event.event_type in ENDED and (event.action_id, event.attempt) == (
                call.action_id,
                call.attempt,
            ):
                raise AssertionError(
                    f"`{call.step}/{call.task_label}` was called again after it was recorded"
                )
        return await super().run(call, context)


def outcome(state: State) -> Any:
    """What must not depend on deaths."""
    steps = {
        name: (found.status, found.runs, found.result, (found.error or {}).get("kind"))
        for name, found in state.steps.items()
    }
    told = (state.status, state.result, state.ctx, state.vars, (state.error or {}).get("kind"), steps)
    return msgspec.json.decode(msgspec.json.encode(told))


def replayed(events: list[Event]) -> State:
    state = State(execution_id=EXECUTION)
    for event in events:
        fold(state, event)
    return state


def check_log(play: Play, state: State) -> None:
    """The log alone gives the state, and no event is too large."""
    events = play.events()
    assert msgspec.msgpack.encode(replayed(events)) == msgspec.msgpack.encode(state)
    for event in events:
        size = len(msgspec.json.encode(event.payload))
        assert size <= EVENT_BYTES, f"{event.event_type} has {size} bytes"


def survives_death_after_every_commit(play: Play) -> State:
    """Plays it once for each commit, dying after it; the undisturbed end."""
    calm = play.run()
    check_log(play, calm)
    meant = outcome(calm)
    commits = 1
    while True:
        state = play.run(dies_after=commits)
        check_log(play, state)
        met = outcome(state)
        assert met == meant, f"dying after commit {commits}: {met} instead of {meant}"
        if not any(event.event_type == "execution.resumed" for event in play.events()):
            return calm
        commits += 1
        assert commits < 200
