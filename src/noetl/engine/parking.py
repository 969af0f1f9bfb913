"""Work that waits: leases given back until something happens, and all that is due at a moment.

A parked lease holds no worker. What it waits for stands in the state, so any process can bring it back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from noetl.engine.facts import Fact
from noetl.engine.routing import fail, fail_step
from noetl.engine.state import State, StepRun, Waits
from noetl.engine.turn import Turn, error_data
from noetl.ids import seconds_of

ROUNDING: Final = 1e-6
"""What a timestamp may be short of the moment it was taken at."""


def next_due(state: State) -> float | None:
    """The moment at which the next thing is due, in seconds since 1970; None: nothing ever is by itself."""
    return None if state.is_over else min(_moments(state), default=None)


def _moments(state: State) -> Iterator[float]:
    if state.deadline is not None:
        yield state.deadline
    for token in state.tokens.values():
        if token.not_before is not None:
            yield token.not_before
    is_paused = state.status == "paused"
    for run in state.runs.values():
        if run.deadline is not None:
            yield run.deadline
        for waits in () if is_paused else run.parked.values():
            if waits.until is not None:
                yield waits.until
            yield from waits.timers.values()


def expire_due(turn: Turn) -> None:
    """Deadlines that have passed."""
    now, state = seconds_of(turn.now) + ROUNDING, turn.state
    if state.deadline is not None and state.deadline <= now and not state.is_over:
        after = state.deadline - seconds_of(state.requested_at)
        fail(turn, error_data("deadline", f"the execution was not over after {after:g} seconds"))
    for run in list(state.runs.values()):
        if run.deadline is not None and run.deadline <= now and run.run_id in state.runs:
            after = run.deadline - seconds_of(run.scheduled_at)
            message = f"the step was not over after {after:g} seconds"
            fail_step(turn, run, error_data("deadline", message, step=run.step))


def wake_due(turn: Turn) -> None:
    """Parked leases whose moment has come; timers of theirs that have gone off are recorded."""
    now = seconds_of(turn.now) + ROUNDING
    for run in list(turn.state.runs.values()):
        for lease, waits in list(run.parked.items()):
            for name in [name for name, due in waits.timers.items() if due <= now and name not in run.fired]:
                turn.step_event("timer.fired", run.step, run.run_id, timer_id=name)
            if _is_due(waits, now):
                bring_back(turn, run, lease, "time")


def _is_due(waits: Waits, now: float) -> bool:
    return any(due <= now for due in (waits.until, *waits.timers.values()) if due is not None)


def bring_back(turn: Turn, run: StepRun, lease: int, cause: str) -> None:
    """Lets a parked lease go on."""
    turn.step_event("step.resumed", run.step, run.run_id, "in_progress", lease=lease, cause=cause)
    turn.free_command(run.run_id, lease)


def park(turn: Turn, run: StepRun, fact: Fact) -> None:
    """A lease is given back, unless what it waits for has come in the meantime."""
    turn.emit(fact)
    lease = fact.payload["lease"]
    turn.hold_command(run.run_id, lease)
    tend_parked(turn)


def tend_parked(turn: Turn) -> None:
    """Brings back every parked lease that can hear of something."""
    state = turn.state
    if state.status == "paused":
        return
    for run in list(state.runs.values()):
        for lease, waits in list(run.parked.items()):
            if waits.events is not None and state.heard > waits.events:
                bring_back(turn, run, lease, "event")
            elif any(found["name"] in waits.signals for found in state.mailbox.values()):
                bring_back(turn, run, lease, "signal")


def child_ended(turn: Turn, child_id: str) -> None:
    """A child execution is over: whoever waits for it goes on."""
    if turn.state.status == "paused":
        return
    for run in list(turn.state.runs.values()):
        for lease, waits in list(run.parked.items()):
            if child_id in waits.children:
                bring_back(turn, run, lease, "child")


def rest(turn: Turn, run: StepRun, lease: int) -> None:
    """Parks a lease that has nothing to do while the execution is paused."""
    turn.step_event("step.paused", run.step, run.run_id, "in_progress", lease=lease, waits={})
    turn.hold_command(run.run_id, lease)


def waiting_children(state: State) -> set[str]:
    return {child for run in state.runs.values() for waits in run.parked.values() for child in waits.children}


def together(waits: Collection[Waits]) -> Waits:
    """What is waited for by all of them: the first of it ends the waiting."""
    return Waits(
        until=min((each.until for each in waits if each.until is not None), default=None),
        signals=sorted({name for each in waits for name in each.signals}),
        questions={name: asked for each in waits for name, asked in each.questions.items()},
        children=sorted({child for each in waits for child in each.children}),
        events=min((each.events for each in waits if each.events is not None), default=None),
        timers={name: due for each in waits for name, due in each.timers.items()},
    )


def waits_of_steps(state: State) -> dict[str, Waits]:
    """What each step that has given work back waits for, by its name."""
    parked: dict[str, list[Waits]] = {}
    for run in state.runs.values():
        if run.parked:
            parked.setdefault(run.step, []).extend(run.parked.values())
    return {step: together(waits) for step, waits in parked.items()}


def waits_payload(waits: Waits) -> dict[str, object]:
    """The waits as an event tells them; only what is waited for."""
    told: dict[str, object] = {
        name: value for name, value in msgspec.structs.asdict(waits).items() if value not in (None, [], {})
    }
    return told
