"""Whether an execution that is not over has something that will move it on.

Every open step run must have a command that is free or leased, or that is held back while it waits for
something that stands in the state; and what is due at a moment must have its row among the timers.
"""

from __future__ import annotations

from collections.abc import Mapping

from noetl.control.changes import DUE
from noetl.engine.leases import command_id
from noetl.engine.loops import is_handed_out, iterations_of
from noetl.engine.parking import next_due
from noetl.engine.state import State, StepRun, Waits
from noetl.store.protocol import CommandRow, TimerRow

ROUNDING = 1e-3


def left_standing(
    state: State, commands: Mapping[str, CommandRow], timers: Mapping[str, TimerRow]
) -> str | None:
    """What nothing would ever move on, or None."""
    if state.is_over:
        return f"commands are left: {sorted(commands)}" if commands else None
    due, timer = next_due(state), timers.get(DUE)
    if due is not None and (timer is None or timer.due > due + ROUNDING):
        return f"something is due at {due}, the timer is {timer}"
    known = set()
    for run in state.runs.values():
        for lease in run.leases if run.spread is None else ():
            name = command_id(run.run_id, lease)
            known.add(name)
            problem = _of_lease(state, run, lease, commands.get(name))
            if problem is not None:
                return f"{name} of step `{run.step}`: {problem}"
    stray = set(commands) - known
    return f"commands of no open step run: {sorted(stray)}" if stray else None


def _of_lease(state: State, run: StepRun, lease: int, row: CommandRow | None) -> str | None:
    if lease in run.parked:
        if row is None or not row.is_held:
            return f"it is parked, but its command is {row}"
        return None if state.status == "paused" else _of_waits(state, run.parked[lease])
    if row is None:
        is_through = run.loop is not None and is_handed_out(run.loop) and not iterations_of(run.loop, lease)
        return None if is_through else "it has no command"
    if row.is_held and state.status != "paused":
        return "its command is held, but it waits for nothing"
    return None


def _of_waits(state: State, waits: Waits) -> str | None:
    if waits == Waits():
        return "it is parked and waits for nothing"
    if waits.events is not None and state.heard > waits.events:
        return "what it waits for has come"
    if any(found["name"] in waits.signals for found in state.mailbox.values()):
        return "the signal it waits for is there"
    return None
