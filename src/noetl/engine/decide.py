"""What follows from each thing that can happen to an execution: one function for each.

Every function takes a turn, emits facts, and lets tokens run on as far as they go without a worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from noetl.engine.entering import deliver
from noetl.engine.facts import Fact
from noetl.engine.frames import was_taken
from noetl.engine.loops import close_loop, end_iteration
from noetl.engine.reuse import Reuse, as_payload
from noetl.engine.routing import fail, fail_step, follow, route, skip_step
from noetl.engine.state import Data, StepRun
from noetl.engine.turn import Turn, error_data
from noetl.engine.workload import materialise
from noetl.errors import TemplateError

MOST_LOSSES = 3
"""Leases lost in a row, without a task finished in between, after which a step fails."""


def request(turn: Turn, payload: Data, *, problem: Data | None = None, reuse: Reuse | None = None) -> None:
    """A request for an execution: evaluates it and starts the workflow, or goes on from an earlier one."""
    playbook = turn.plan.playbook
    about = {"name": playbook.name, "path": playbook.path, "dialect": playbook.dialect}
    extra = {} if reuse is None else {"origin": reuse.origin}
    turn.playbook_event(
        "playbook.execution.requested", "in_progress", playbook=about, payload=payload, **extra
    )
    workload: Data = {}
    if problem is None:
        try:
            workload = materialise(playbook.workload, payload, turn.state.execution_id)
        except TemplateError as error:
            problem = error_data(error.code, error.message)
    if problem is not None:
        turn.playbook_event("playbook.request.evaluated", "error", error=problem)
        turn.playbook_event("playbook.processed", "error")
        return
    taken_over = {} if reuse is None else {"reused": as_payload(reuse)}
    turn.playbook_event("playbook.request.evaluated", workload=workload, **taken_over)
    entry: Data = {"step": playbook.entry, "args": {}, "token": turn.token_id()}
    if reuse is not None:
        entry |= {"step": reuse.step, "args": reuse.args}
        turn.reused_items = (reuse.step, reuse.items)
    turn.playbook_event("playbook.started", "in_progress")
    turn.playbook_event("workflow.started", "in_progress", tokens=[entry])
    deliver(turn)


def report(turn: Turn, run_id: str, facts: Iterable[Fact]) -> bool:
    """What a worker tells about a step run. False: that run is over, and the worker must stop."""
    told = list(facts)
    run = turn.state.runs.get(run_id)
    if run is not None and was_taken(run, told):
        return True
    for fact in told:
        run = turn.state.runs.get(run_id)
        if run is None:
            break
        # A turn may be taken again from its start, and shortens what it emits: the report stays as it came.
        _take(turn, run, msgspec.structs.replace(fact))
    deliver(turn)
    return run_id in turn.state.runs


def _take(turn: Turn, run: StepRun, fact: Fact) -> None:
    kind = fact.event_type
    if kind == "step.done" and run.loop is not None:
        close_loop(turn, run, fact.payload)
    elif kind == "step.done":
        turn.emit(fact)
        chosen = fact.payload.get("next")
        if chosen is None:
            route(turn, run, "step.done")
        else:
            follow(turn, run, chosen, "step.done")
    elif kind == "step.failed":
        fail_step(turn, run, fact.payload["error"], fact.payload.get("next"))
    elif kind == "step.skipped":
        skip_step(turn, run)
    elif kind in ("loop.iteration.done", "loop.iteration.failed") and "block" not in fact.payload:
        end_iteration(turn, run, fact)
    else:
        turn.emit(fact)


def lose(turn: Turn, run_id: str) -> None:
    """A worker was lost: its work is ready again, unless it has been lost too often."""
    run = turn.state.runs.get(run_id)
    if run is None or turn.state.is_over:
        return
    turn.step_event("command.expired", run.step, run_id, "error", losses=run.losses + 1)
    if run.losses >= MOST_LOSSES:
        message = f"its worker was lost {run.losses} times in a row without a task finished in between"
        fail_step(turn, run, error_data("worker.lost", message, step=run.step, retryable=True))
    else:
        turn.ready.append(run_id)
    deliver(turn)


def cancel(turn: Turn, reason: str | None = None) -> None:
    if turn.state.is_over:
        return
    began = turn.state.status != "requested"
    turn.playbook_event("execution.cancelled", "error", reason=reason)
    error = error_data("execution.cancelled", reason or "the execution was cancelled")
    if began:
        turn.playbook_event("workflow.finished", "error", error=error)
    turn.playbook_event("playbook.processed", "error")


def pause(turn: Turn) -> None:
    if turn.state.status == "running":
        turn.playbook_event("execution.paused")


def resume(turn: Turn, held: Collection[str] = ()) -> None:
    """Goes on with a paused execution, or with one whose process ended.

    `held`: the step runs that a worker still has; a pause does not take its work away.
    """
    if turn.state.is_over:
        return
    turn.playbook_event("execution.resumed")
    given = {*held, *turn.ready}
    turn.ready.extend(
        run_id for run_id, run in turn.state.runs.items() if run_id not in given and run.spread is None
    )
    deliver(turn)


def signal(turn: Turn, name: str, data: Any) -> None:  # noqa: ANN401 - plain data
    if not turn.state.is_over:
        turn.playbook_event("signal.received", name=name, data=data)


def expire(turn: Turn, seconds: float) -> None:
    """The deadline of the execution has passed."""
    if not turn.state.is_over:
        fail(turn, error_data("deadline", f"the execution was not over after {seconds:g} seconds"))


def fail_run(turn: Turn, run_id: str, error: Data) -> None:
    """A step run cannot go on."""
    run = turn.state.runs.get(run_id)
    if run is not None and not turn.state.is_over:
        fail_step(turn, run, error)
        deliver(turn)


def fire(turn: Turn, run_id: str, timer_id: str) -> None:
    """A timer of a step that waits for events has gone off."""
    run = turn.state.runs.get(run_id)
    if run is not None and timer_id not in run.fired and not turn.state.is_over:
        turn.step_event("timer.fired", run.step, run_id, timer_id=timer_id)


def wake(turn: Turn) -> None:
    """A token has waited as long as it should."""
    deliver(turn)


def expire_run(turn: Turn, run_id: str, seconds: float) -> None:
    """The deadline of a step run has passed."""
    run = turn.state.runs.get(run_id)
    if run is None or turn.state.is_over:
        return
    fail_step(
        turn, run, error_data("deadline", f"the step was not over after {seconds:g} seconds", step=run.step)
    )
    deliver(turn)
