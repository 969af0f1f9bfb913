"""Loops that send one token for each element through the steps that follow.

The run of the looping step stays open, without a worker, while its tokens are under way. Each token has
a scope, the path of (step run, index); results are looked up in it first. The step that joins the loop is
entered once, when the scope has no live token left, with what each item's last step gave.
"""

from __future__ import annotations

from typing import Any

from noetl.engine.repeats import number
from noetl.engine.routing import fail_step, items_entry, selected_targets
from noetl.engine.scope import render
from noetl.engine.state import Data, SpreadRun, StepRun
from noetl.engine.turn import Turn, error_data
from noetl.errors import TemplateError
from noetl.playbook.model import Step
from noetl.template import Template


def begin_spread(turn: Turn, step: Step, run: StepRun) -> None:
    """Evaluates the collection; the tokens are sent by `tend_spreads`."""
    spread = step.spread
    assert spread is not None
    scope = turn.around(run).boundary(run.event)
    try:
        source = spread.source
        items = source.evaluate(scope) if isinstance(source, Template) else render(source, scope)
        width = spread.max_in_flight
        most = number(width, scope)
    except TemplateError as problem:
        fail_step(turn, run, error_data(problem.code, f"the loop's `in`: {problem.message}", step=step.name))
        return
    if not isinstance(items, list):
        items = [items]
    turn.step_event(
        "loop.started",
        step.name,
        run.run_id,
        "in_progress",
        spread={"iterator": spread.iterator, "join": spread.join, "width": max(1, int(most))},
        items=items,
        total=len(items),
    )


def tend_spreads(turn: Turn) -> bool:
    """Sends the next tokens, or ends loops whose tokens are all through. Whether anything was done."""
    for run in list(turn.state.runs.values()):
        if run.spread is not None and _tend(turn, run, run.spread):
            return True
    return False


def _tend(turn: Turn, run: StepRun, spread: SpreadRun) -> bool:
    live = _live_indexes(turn, run)
    if spread.cursor < spread.total:
        if len(live) >= spread.width:
            return False
        _send(turn, run, spread, spread.cursor)
        return True
    if live:
        return False
    _end(turn, run, spread)
    return True


def _live_indexes(turn: Turn, run: StepRun) -> set[str]:
    """The items that have a token or an open step run."""
    prefix = item_scope(run, "")
    found: set[str] = set()
    for scope in (
        *(token.scope for token in turn.state.tokens.values()),
        *(each.scope for each in turn.state.runs.values()),
    ):
        if scope.startswith(prefix):
            found.add(scope[len(prefix) :].partition("/")[0])
    return found


def item_scope(run: StepRun, index: int | str) -> str:
    return f"{run.scope}/{run.run_id}:{index}" if run.scope else f"{run.run_id}:{index}"


def _send(turn: Turn, run: StepRun, spread: SpreadRun, index: int) -> None:
    """Sends the token of one item: into the step's own body, or on its way."""
    step = turn.plan.steps[run.step]
    scope = item_scope(run, index)
    args: Data = {**run.args, spread.iterator: items_entry(turn, spread, index)}
    if step.body:
        run_id = turn.run_id()
        turn.step_event(
            "step.scheduled",
            step.name,
            run_id,
            "in_progress",
            tokens=[],
            args=args,
            scope=scope,
            item={"run": run.run_id, "index": index},
        )
        turn.add_command(run_id)
        return
    item = StepRun(run_id=run.run_id, step=run.step, scope=scope, args=args, scheduled_at=run.scheduled_at)
    event: Data = {"name": "step.done", "step": run.step, "timestamp": turn.now, "data": {}, "payload": {}}
    try:
        entries = selected_targets(turn, step, item, turn.around(item).boundary(event), failed=False) or []
    except TemplateError as problem:
        message = f"a way out of step `{run.step}`: {problem.message}"
        fail_step(turn, run, error_data(problem.code, message, step=run.step))
        return
    turn.step_event(
        "next.evaluated",
        run.step,
        run.run_id,
        selected=entries,
        mode=step.router.mode,
        event=event,
        item={"run": run.run_id, "index": index},
    )


def _end(turn: Turn, run: StepRun, spread: SpreadRun) -> None:
    """Ends the loop and enters the step that joins it."""
    results: list[Any] = [spread.results[index] for index in sorted(spread.results)]
    turn.step_event("loop.done", run.step, run.run_id, result=results, spread=True)
    selected: list[Data] = []
    if spread.join is not None and spread.join in turn.plan.steps:
        entry: Data = {"step": spread.join, "args": {"join_results": results}, "token": turn.token_id()}
        if run.scope:
            entry["scope"] = run.scope
        selected.append(entry)
    event: Data = {"name": "loop.done", "step": run.step, "timestamp": turn.now, "data": {}, "payload": {}}
    turn.step_event("next.evaluated", run.step, run.run_id, selected=selected, mode="exclusive", event=event)
