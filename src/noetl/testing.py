"""Runs playbooks in tests: tools answer by script, time jumps, and the whole run is there to look at.

`play` runs a playbook to its end on the real engine over a store in memory, without touching the world and
without waiting: whenever everything waits, the clock goes on to the next moment at which something happens.
A tool that is not scripted fails and says so, so a test never calls out by accident.
"""

from __future__ import annotations

import asyncio
import inspect
import selectors
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from noetl.embedded import Embedded
from noetl.engine.state import State
from noetl.errors import NoetlError
from noetl.ids import timestamp
from noetl.playbook.load import load
from noetl.records.event import Event
from noetl.records.outcome import Outcome, OutcomeError, OutcomeMeta
from noetl.records.protocols import ToolCall, ToolContext
from noetl.records.tool import ToolDescription
from noetl.store.memory import MemoryStore
from noetl.tools.registry import builtin_kinds, runnable

Given = TypeVar("Given")

START: Final = 1_750_000_000.0
"""Where a fake clock begins: 15 June 2025, 15:06:40 UTC."""
PATIENCE_SECONDS: Final = 10.0
"""How long a run may stand still, in real time, before it is taken for stalled: a thread may be at work."""


class StalledError(RuntimeError):
    """Everything waits, and nothing will ever happen: a signal that nobody sends."""


# --- time -------------------------------------------------------------------------------------------------


class FakeClock:
    """A clock that stands still while anything runs and jumps when everything waits.

    It owns the event loop: what runs in `FakeClock().run(…)` sleeps without taking time.
    """

    def __init__(self, start: float = START, *, patience: float = PATIENCE_SECONDS) -> None:
        self._start = start
        self._patience = patience
        self.elapsed = 0.0
        """Seconds since the start."""

    def now(self) -> float:
        return self._start + self.elapsed

    def monotonic(self) -> float:
        return self.elapsed

    def loop(self) -> FakeTimeLoop:
        """A new event loop that lives in this clock's time."""
        return FakeTimeLoop(self, self._patience)

    def run(self, work: Coroutine[Any, Any, Given]) -> Given:
        with asyncio.Runner(loop_factory=self.loop) as runner:
            return runner.run(work)


class FakeTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: FakeClock, patience: float) -> None:
        super().__init__(_JumpingSelector(clock, patience))
        self._clock = clock
        # The loop rounds to this; at nought, a moment that has come is never taken for one still to come.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._clock.elapsed


class _JumpingSelector(selectors.DefaultSelector):
    """Lets the time pass at once that a loop would wait for."""

    def __init__(self, clock: FakeClock, patience: float) -> None:
        super().__init__()
        self._clock = clock
        self._patience = patience

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None:
            self._clock.elapsed += timeout
            return []
        ready = super().select(self._patience)
        if not ready:
            raise StalledError("everything waits, and nothing is left that could happen")
        return ready


# --- scripted tools ---------------------------------------------------------------------------------------

Answer: TypeAlias = Any
"""What a script says to a call: the result; `fails(…)`; `after(…)`; or a function of the call that gives one
of these. A `replies(…)` gives them one after another."""


class Failure(msgspec.Struct, frozen=True):
    kind: str
    message: str
    retryable: bool
    result: Any
    groups: dict[str, dict[str, Any]]


class Delayed(msgspec.Struct, frozen=True):
    seconds: float
    answer: Answer


class Answered(msgspec.Struct, frozen=True):
    result: Any
    groups: dict[str, dict[str, Any]]


class Replies:
    def __init__(self, answers: tuple[Answer, ...]) -> None:
        if not answers:
            raise ValueError("replies need at least one answer")
        self._answers = answers
        self._given = 0

    def next(self) -> Answer:
        answer = self._answers[min(self._given, len(self._answers) - 1)]
        self._given += 1
        return answer


def fails(
    kind: str = "test.failed",
    message: str = "the script says so",
    *,
    retryable: bool = False,
    result: object = None,
    **groups: dict[str, Any],
) -> Failure:
    """The call fails; groups are the fields of the kind: `http={"status": 503}`."""
    return Failure(kind, message, retryable, result, groups)


def answers(result: object = None, **groups: dict[str, Any]) -> Answered:
    """The call succeeds; only needed where fields of the kind matter: `http={"status": 201}`."""
    return Answered(result, groups)


def after(seconds: float, answer: Answer = None) -> Delayed:
    """The answer comes that much later on the fake clock."""
    return Delayed(seconds, answer)


def replies(*answers: Answer) -> Replies:
    """One answer for each call; the last one stays."""
    return Replies(answers)


class ScriptedTool:
    """A tool kind that answers by a script and remembers the calls."""

    def __init__(
        self, kind: str, scripts: Mapping[str, Answer], clock: FakeClock, calls: list[ToolCall]
    ) -> None:
        self._kind = kind
        self._scripts = scripts
        self._clock = clock
        self._calls = calls

    @property
    def DESCRIPTION(self) -> ToolDescription:  # noqa: N802 - a constant of a tool's module
        return builtin_kinds()[self._kind]

    async def run(self, call: ToolCall, context: ToolContext) -> Outcome:
        self._calls.append(call)
        began = self._clock.elapsed
        answer = await self._answer(call)
        meta = OutcomeMeta(
            attempt=call.attempt,
            duration_ms=round((self._clock.elapsed - began) * 1000, 3),
            ts=timestamp(self._clock.now()),
        )
        if isinstance(answer, Failure):
            error = OutcomeError(kind=answer.kind, message=answer.message, retryable=answer.retryable)
            return Outcome(status="error", meta=meta, error=error, result=answer.result, groups=answer.groups)
        if isinstance(answer, Answered):
            return Outcome(status="ok", meta=meta, result=answer.result, groups=answer.groups)
        return Outcome(status="ok", meta=meta, result=answer)

    async def _answer(self, call: ToolCall) -> Answer:
        for name in (f"{call.step}/{call.task_label}", call.step, self._kind):
            if name in self._scripts:
                answer = self._scripts[name]
                break
        else:
            return fails("test.unscripted", f"no answer is scripted for `{call.step}/{call.task_label}`")
        while True:
            if isinstance(answer, Replies):
                answer = answer.next()
            elif isinstance(answer, Delayed):
                await asyncio.sleep(answer.seconds)
                answer = answer.answer
            elif inspect.isawaitable(answer):
                answer = await answer
            elif callable(answer):
                answer = answer(call)
            else:
                return answer


# --- a run ------------------------------------------------------------------------------------------------


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run."""

    state: State
    events: tuple[Event, ...]
    calls: tuple[ToolCall, ...]
    """The calls of scripted tools, in the order they were made."""
    elapsed: float
    """Seconds it took on the fake clock."""

    @property
    def status(self) -> str:
        return self.state.status

    @property
    def result(self) -> Any:  # noqa: ANN401 - plain data
        return self.state.result

    @property
    def error(self) -> dict[str, Any] | None:
        return self.state.error

    def named(self, event_type: str) -> list[Event]:
        """The events of one type, in the order of the log."""
        return [event for event in self.events if event.event_type == event_type]

    def calls_of(self, step: str) -> list[ToolCall]:
        return [call for call in self.calls if call.step == step]


At: TypeAlias = Callable[[Embedded, str], Coroutine[Any, Any, None]]


def play(
    playbook: str | Path,
    payload: dict[str, Any] | None = None,
    *,
    tools: Mapping[str, Answer] | None = None,
    real: frozenset[str] = frozenset({"noop", "workbook", "playbook", "wait"}),
    at: Mapping[float, At] | None = None,
    clock: FakeClock | None = None,
) -> Run:
    """Runs a playbook, its text or its file, to its end.

    `tools` has the script for a task (`step/label`), a step or a tool kind, the first of these that is there.
    Kinds in `real` run as they are. `at` calls functions with the engine and the execution's id at given
    seconds of the fake clock: to send a signal, to cancel.
    """
    text = playbook.read_bytes() if isinstance(playbook, Path) else playbook.encode()
    loaded = load(text, builtin_kinds())
    if loaded.playbook is None:
        wrong = [
            f"line {each.line}: {each.message}" for each in loaded.diagnostics if each.severity == "error"
        ]
        raise NoetlError("the playbook is not valid: " + "; ".join(wrong))
    clock = clock or FakeClock()
    scripts = tools or {}
    calls: list[ToolCall] = []
    events: list[Event] = []

    def tool(kind: str) -> Any:  # noqa: ANN401 - a module or a scripted tool
        return (
            runnable(kind)
            if kind in real and kind not in scripts
            else ScriptedTool(kind, scripts, clock, calls)
        )

    async def to_its_end() -> State:
        with tempfile.TemporaryDirectory() as folder:
            engine = Embedded(MemoryStore(), Path(folder), clock=clock, on_event=events.append, tool=tool)
            async with engine:
                execution_id = await engine.start(loaded, payload or {})
                acting = asyncio.create_task(_act(at or {}, engine, execution_id))
                state = await engine.finished(execution_id)
                acting.cancel()
                await asyncio.gather(acting, return_exceptions=True)
                return state

    state = clock.run(to_its_end())
    return Run(state=state, events=tuple(events), calls=tuple(calls), elapsed=clock.elapsed)


async def _act(at: Mapping[float, At], engine: Embedded, execution_id: str) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for moment in sorted(at):
        await asyncio.sleep(max(0.0, began + moment - loop.time()))
        await at[moment](engine, execution_id)
