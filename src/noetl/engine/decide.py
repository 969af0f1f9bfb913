"""What follows from each thing that can happen to an execution: one function for each.

Every function takes a turn, emits facts, and lets tokens run on as far as they go without a worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from noetl.engine.entering import deliver
from noetl.engine.facts import Fact
from noetl.engine.frames import was_taken
from noetl.engine.leases import command_id
from noetl.engine.loops import close_loop, end_iteration, hand_out, is_handed_out, iterations_of
from noetl.engine.parking import child_ended as bring_back_parents
from noetl.engine.parking import expire_due, park, rest, tend_parked, wake_due
from noetl.engine.repeats import seconds
from noetl.engine.reuse import Reuse, as_payloads
from noetl.engine.routing import fail_step, follow, route, skip_step
from noetl.engine.state import Data, StepRun
from noetl.engine.turn import Turn, error_data
from noetl.engine.workload import materialise
from noetl.errors import TemplateError
from noetl.ids import seconds_of
from noetl.template import Scope

MOST_LOSSES = 3
"""Leases lost in a row, without a task finished in between, after which a step fails."""


class Told(NamedTuple):
    """What a worker hears after its report."""

    goes_on: bool
    """There is more for it to do under this lease."""
    iterations: tuple[int, ...] = ()
    """The open iterations of its lease."""


def request(
    turn: Turn,
    payload: Data,
    *,
    problem: Data | None = None,
    reuse: Reuse | None = None,
    trace: str | None = None,
) -> bool:
    """A request for an execution: evaluates it and starts the workflow, or goes on from an earlier one.

    False: somebody else has asked for one under the same id.
    """
    if turn.state.seq > 0:
        return False
    playbook = turn.plan.playbook
    about = {"name": playbook.name, "path": playbook.path, "dialect": playbook.dialect}
    extra: Data = {} if reuse is None else {"origin": reuse.origin}
    if trace is not None:
        extra["trace"] = trace
    turn.playbook_event(
        "playbook.execution.requested", "in_progress", playbook=about, payload=payload, **extra
    )
    workload: Data = {}
    within: float | None = None
    if problem is None:
        try:
            workload = materialise(playbook.workload, payload, turn.state.execution_id)
            limit = playbook.executor.deadline
            within = None if limit is None else seconds(limit, Scope({"workload": workload}), "deadline")
        except TemplateError as error:
            problem = error_data(error.code, error.message)
    if problem is not None:
        turn.playbook_event("playbook.request.evaluated", "error", error=problem)
        turn.playbook_event("playbook.processed", "error")
        return True
    first, *others = [{}] if reuse is None else [{"reused": each} for each in as_payloads(reuse)]
    turn.playbook_event("playbook.request.evaluated", workload=workload, **first)
    for taken_over in others:
        turn.playbook_event("playbook.request.evaluated", **taken_over)
    entries: list[Data] = [{"step": playbook.entry, "args": {}}]
    started: Data = {}
    if reuse is not None:
        entries = list(reuse.tokens) or [{"step": reuse.step, "args": reuse.args}]
        started = {"owed": reuse.owed} if reuse.owed else {}
        turn.reused_items = (reuse.step, reuse.items)
        turn.reused_writes = reuse.writes
    first_token = int(turn.token_id())
    started["tokens"] = [
        {**entry, "token": str(number)} for number, entry in enumerate(entries, start=first_token)
    ]
    turn.playbook_event("playbook.started", "in_progress")
    if within is not None:
        started["deadline"] = seconds_of(turn.now) + within
    turn.playbook_event("workflow.started", "in_progress", **started)
    deliver(turn)
    return True


def report(turn: Turn, run_id: str, facts: Iterable[Fact], *, lease: int = 0, asks: bool = False) -> Told:
    """What a worker tells about a step run under one of its leases; it may ask for iterations.

    The facts become the turn's, which may shorten what they hold.
    """
    told = list(facts)
    run = turn.state.runs.get(run_id)
    if run is not None and not was_taken(run, told):
        if any(_used_signal(turn, fact) for fact in told):
            # Two processes gave one signal away: whoever is later waits on, under a new lease.
            turn.free_command(run_id, lease)
            return Told(goes_on=False)
        for fact in told:
            run = turn.state.runs.get(run_id)
            if run is None:
                break
            _take(turn, run, fact)
            asks = asks or fact.event_type in _ITERATION_ENDS
        deliver(turn)
    run = turn.state.runs.get(run_id)
    if run is None or lease in run.parked:
        return Told(goes_on=False)
    return Told(goes_on=True) if run.loop is None else _supply(turn, run, lease, asks=asks)


def _used_signal(turn: Turn, fact: Fact) -> bool:
    place = fact.payload.get("signal")
    return fact.event_type == "task.done" and place is not None and place not in turn.state.mailbox


_ITERATION_ENDS = ("loop.iteration.done", "loop.iteration.failed")


def _supply(turn: Turn, run: StepRun, lease: int, *, asks: bool) -> Told:
    """Gives a lease of a loop more to do; without more it ends, or is held while the execution is paused."""
    loop = run.loop
    assert loop is not None
    if asks:
        hand_out(turn, run, lease)
    mine = iterations_of(loop, lease)
    if mine or turn.plan.is_closed_by_worker(turn.plan.steps[run.step]):
        is_left = not is_handed_out(loop) and loop.closing is None
        if not mine and is_left and turn.state.status == "paused":
            rest(turn, run, lease)
            return Told(goes_on=False)
        return Told(goes_on=True, iterations=mine)
    if is_handed_out(loop):
        turn.remove_command(run.run_id, lease)
    else:
        rest(turn, run, lease)
    return Told(goes_on=False)


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
    elif kind in _ITERATION_ENDS and "block" not in fact.payload:
        end_iteration(turn, run, fact)
    elif kind == "step.paused":
        park(turn, run, fact)
    else:
        turn.emit(fact)


def lose(turn: Turn, run_id: str, lease: int = 0) -> None:
    """A worker was lost: its work is ready again, unless it has been lost too often."""
    run = turn.state.runs.get(run_id)
    if run is None or turn.state.is_over or lease in run.parked:
        return  # nobody has it any more: it may have been given back in this very turn
    losses = run.losses.get(lease, 0) + 1
    turn.step_event("command.expired", run.step, run_id, "error", losses=losses, lease=lease)
    if losses >= MOST_LOSSES:
        message = f"its worker was lost {losses} times in a row without a task finished in between"
        fail_step(turn, run, error_data("worker.lost", message, step=run.step, retryable=True))
    elif turn.state.status == "paused":
        turn.hold_command(run_id, lease)
    else:
        turn.free_command(run_id, lease)
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


def resume(turn: Turn, idle: Collection[str] = ()) -> None:
    """Goes on with a paused execution, or with one whose process ended.

    `idle`: the commands that nobody has nor can claim, as those of parked leases are anyway; a pause does not
    take a worker's away.
    """
    if turn.state.is_over:
        return
    turn.playbook_event("execution.resumed")
    for run in list(turn.state.runs.values()):
        for lease in run.leases if run.spread is None else ():
            name = command_id(run.run_id, lease)
            if name in idle or lease in run.parked:
                _go_on(turn, run, lease)
    wake(turn)


def _go_on(turn: Turn, run: StepRun, lease: int) -> None:
    """Lets a lease that nobody has go on, unless its share of a loop is done."""
    if lease in run.parked:
        turn.step_event("step.resumed", run.step, run.run_id, "in_progress", lease=lease, cause="resumed")
    if run.loop is not None and not turn.plan.is_closed_by_worker(turn.plan.steps[run.step]):
        hand_out(turn, run, lease)
        if not iterations_of(run.loop, lease):
            turn.remove_command(run.run_id, lease)
            return
    turn.free_command(run.run_id, lease)


def signal(turn: Turn, name: str, data: Any) -> None:  # noqa: ANN401 - plain data
    if not turn.state.is_over:
        turn.playbook_event("signal.received", name=name, data=data)
        tend_parked(turn)


def child_ended(turn: Turn, child_id: str) -> None:
    if not turn.state.is_over:
        bring_back_parents(turn, child_id)


def wake(turn: Turn) -> None:
    """Time has passed: everything that is due by now happens."""
    if turn.state.is_over:
        return
    expire_due(turn)
    if turn.state.status != "paused" and not turn.state.is_over:
        wake_due(turn)
    deliver(turn)
