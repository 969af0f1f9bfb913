"""How tokens leave a step: its arcs at a boundary, and what an end of a step leads to."""

from __future__ import annotations

from typing import Any

from noetl.engine.bodies import is_ref
from noetl.engine.scope import holds, render_each
from noetl.engine.state import Data, SpreadRun, StepRun
from noetl.engine.turn import Turn, error_data
from noetl.errors import TemplateError
from noetl.ids import seconds_of
from noetl.playbook.model import Arc, Step
from noetl.template import Budget, Scope, Template


def end_step(
    turn: Turn,
    run: StepRun,
    result: Any,  # noqa: ANN401 - plain data
    chosen: Data | None = None,
    **payload: Any,  # noqa: ANN401 - plain data
) -> None:
    """Ends a step run well and routes on, by the way its case chose or by its arcs."""
    name = "loop.done" if run.loop is not None else "step.done"
    turn.step_event(name, run.step, run.run_id, result=result, **payload)
    counts: Data = {key: payload[key] for key in ("done", "failed") if key in payload}
    if chosen is None:
        route(turn, run, name, counts=counts)
    else:
        follow(turn, run, chosen, name)


def fail_step(turn: Turn, run: StepRun, error: Data, chosen: Data | None = None) -> None:
    """Ends a step run badly and routes on, unless the step says that its errors do not matter."""
    if turn.plan.steps[run.step].on_error == "ignore":
        end_step(turn, run, None, chosen, error=error)
        return
    turn.step_event("step.failed", run.step, run.run_id, "error", error=error)
    if chosen is None:
        route(turn, run, "step.failed", error)
    else:
        follow(turn, run, chosen, "step.failed", error)


def skip_step(turn: Turn, run: StepRun) -> None:
    """Ends a step run that its case skipped; its structural way out is taken."""
    turn.step_event("step.skipped", run.step, run.run_id, "skipped")
    route(turn, run, "step.done")


def follow(turn: Turn, run: StepRun, chosen: Data, name: str, error: Data | None = None) -> None:
    """Sends tokens the way a case chose."""
    if turn.state.is_over:
        return
    event: Data = {"name": name, "step": run.step, "timestamp": turn.now}
    event["data"] = event["payload"] = {} if error is None else {"error": error}
    number = int(turn.token_id())
    entries: list[Data] = []
    for target in chosen["selected"]:
        entry = _entry(turn, target["step"], target["args"], run, str(number))
        if "token" in entry and chosen.get("delay"):
            entry["not_before"] = seconds_of(turn.now) + chosen["delay"]
        number += "token" in entry
        entries.append(entry)
    turn.step_event(
        "next.evaluated",
        run.step,
        run.run_id,
        selected=entries,
        policy=chosen.get("policy"),
        winner_branch=chosen.get("branch"),
        suppressed_branches=chosen.get("suppressed_branches", []),
        routing_committed=True,
        event=event,
    )


def fail(turn: Turn, error: Data) -> None:
    """Fails the execution at once: what is open is revoked."""
    turn.playbook_event("workflow.finished", "error", error=error)
    turn.playbook_event("playbook.processed", "error")


def route(
    turn: Turn, run: StepRun, name: str, error: Data | None = None, *, counts: Data | None = None
) -> None:
    """Evaluates the arcs of a step whose run has ended with the boundary event `name`."""
    if turn.state.is_over:
        return
    step = turn.plan.steps[run.step]
    event: Data = {"name": name, "step": run.step, "timestamp": turn.now}
    event["data"] = event["payload"] = (counts or {}) if error is None else {"error": error}
    try:
        selected = selected_targets(
            turn, step, run, turn.around(run).boundary(event), failed=error is not None
        )
    except TemplateError as problem:
        fail(
            turn,
            error_data(problem.code, f"a way out of step `{run.step}`: {problem.message}", step=run.step),
        )
        return
    if error is not None and selected is None:
        turn.step_event("next.evaluated", run.step, run.run_id, selected=[], mode=step.router.mode)
        fail(turn, error)
        return
    turn.step_event(
        "next.evaluated", run.step, run.run_id, selected=selected or [], mode=step.router.mode, event=event
    )


def selected_targets(
    turn: Turn, step: Step, run: StepRun, scope: Scope, *, failed: bool
) -> list[Data] | None:
    """The targets of the arcs that fire, as tokens; None where no arc does."""
    # One for all of them: the server decides this, and there is no bound on the number of arcs.
    budget = Budget()
    firing: list[Arc] = []
    for arc in step.router.arcs:
        if failed and not arc.takes_failure:
            continue
        if holds(arc.when, scope, budget):
            firing.append(arc)
            if step.router.mode == "exclusive":
                break
    if not firing:
        return None
    entries: list[Data] = []
    number = int(turn.token_id())
    for arc in firing:
        for target in arc.targets:
            name: object = target.step
            if isinstance(name, Template):
                name = name.evaluate(scope, budget=budget)
            args = render_each(target.args, scope, budget)
            if target.carry:
                args = {**run.args, **args}
            entry = _entry(turn, str(name), args, run, str(number))
            number += "token" in entry
            entries.append(entry)
    return entries


def _entry(turn: Turn, name: str, args: Data, run: StepRun, token: str) -> Data:
    entry: Data = {"step": name, "args": args}
    if name not in turn.plan.steps:
        return {**entry, "ends": True}
    if turn.state.owed.get(name, {}).get(run.step, 0) > 0:
        return {**entry, "discarded": True}
    joined = joined_spread(turn, name, run.scope)
    if joined is not None:
        place = list(turn.plan.steps).index(run.step)
        joins = {"run": joined[0], "index": joined[1], "scope": run.scope, "place": place}
        return {"step": name, "args": {}, "joins": joins}
    if run.scope:
        entry["scope"] = run.scope
    return {**entry, "token": token}


def joined_spread(turn: Turn, name: str, scope: str) -> tuple[str, int] | None:
    """The run and the index of the loop that a token in `scope` leaves by going to step `name`."""
    join = turn.plan.steps[name].join
    if not scope or join is None or join.mode != "spread":
        return None
    run_id, _, index = scope.rpartition("/")[2].rpartition(":")
    looping = turn.state.runs.get(run_id)
    return (run_id, int(index)) if looping is not None and looping.step in join.of else None


def items_entry(turn: Turn, spread: SpreadRun, index: int) -> Any:  # noqa: ANN401 - plain data
    """One element of a loop, loaded if the elements are stored elsewhere."""
    items = turn.bodies.get(spread.items) if is_ref(spread.items) else spread.items
    return items[index]
