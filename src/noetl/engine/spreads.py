"""Loops that send one token for each element through the steps that follow.

The run of the looping step stays open, without a worker, while its tokens are under way. Each token has
a scope, the path of (step run, index); results are looked up in it first. The step that joins the loop is
entered once, when the scope has no live token left, with what each item's last step gave.
"""

from __future__ import annotations

from typing import Any

from noetl.engine.bodies import parted
from noetl.engine.plan import templates_in
from noetl.engine.repeats import number
from noetl.engine.routing import fail_step, items_entry, selected_targets
from noetl.engine.scope import render, render_each
from noetl.engine.state import Data, SpreadRun, StepRun
from noetl.engine.turn import Turn, error_data
from noetl.errors import TemplateError
from noetl.playbook.model import Step, Value
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
        most = number(width, scope, "max_in_flight")
    except TemplateError as problem:
        fail_step(turn, run, error_data(problem.code, f"the loop's `in`: {problem.message}", step=step.name))
        return
    if not isinstance(items, list):
        items = [items]
    turn.step_event("step.started", step.name, run.run_id, "in_progress", args=run.args)
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


def args_before_items(step: Step) -> dict[str, Value]:
    """The args of a step that are bound once, before its items are known."""
    spread = step.spread
    if spread is None:
        return step.args
    return {name: value for name, value in step.args.items() if not _reads(value, spread.iterator)}


def _reads(value: Value, name: str) -> bool:
    return any(read.path[0] == name for template in templates_in(value) for read in template.reads)


def _send(turn: Turn, run: StepRun, spread: SpreadRun, index: int) -> None:
    """Sends the token of one item: into the step's own body, or on its way."""
    step = turn.plan.steps[run.step]
    item = StepRun(
        run_id=run.run_id,
        step=run.step,
        scope=item_scope(run, index),
        args={**run.args, spread.iterator: items_entry(turn, spread, index)},
        scheduled_at=run.scheduled_at,
    )
    try:
        _bind_item(turn, step, run, item)
        if not step.body:
            _pass_on(turn, step, run, item, index)
            return
    except TemplateError as problem:
        message = f"an item of the loop of step `{run.step}`: {problem.message}"
        fail_step(turn, run, error_data(problem.code, message, step=run.step))
        return
    run_id = turn.run_id()
    turn.step_event(
        "step.scheduled",
        step.name,
        run_id,
        "in_progress",
        tokens=[],
        args=item.args,
        scope=item.scope,
        item={"run": run.run_id, "index": index},
    )
    turn.add_command(run_id)


def _bind_item(turn: Turn, step: Step, run: StepRun, item: StepRun) -> None:
    """Binds the args that read the element; those that came with the token win."""
    early = args_before_items(step)
    late = {name: value for name, value in step.args.items() if name not in early and name not in run.args}
    if late:
        item.args = {**item.args, **render_each(late, turn.around(item).boundary(run.event))}


def _pass_on(turn: Turn, step: Step, run: StepRun, item: StepRun, index: int) -> None:
    """Sends the token of an item past a step that has nothing to run: the element is its result."""
    assert run.spread is not None
    event: Data = {"name": "step.done", "step": run.step, "timestamp": turn.now, "data": {}, "payload": {}}
    entries = selected_targets(turn, step, item, turn.around(item).boundary(event), failed=False) or []
    element = items_entry(turn, run.spread, index)
    turn.step_event(
        "next.evaluated",
        run.step,
        run.run_id,
        selected=[{**entry, "result": element} if "joins" in entry else entry for entry in entries],
        mode=step.router.mode,
        event=event,
        item={"run": run.run_id, "index": index},
    )


def _end(turn: Turn, run: StepRun, spread: SpreadRun) -> None:
    """Ends the loop and enters the step that joins it."""
    arrived = (
        result
        for index in sorted(spread.arrived)
        for _, result in sorted(spread.arrived[index], key=lambda came: came[0])
    )
    results: Any = parted(list(arrived))
    turn.step_event("loop.done", run.step, run.run_id, result=results, spread=True)
    selected: list[Data] = []
    if spread.join is not None and spread.join in turn.plan.steps:
        entry: Data = {"step": spread.join, "args": {"join_results": results}, "token": turn.token_id()}
        if run.scope:
            entry["scope"] = run.scope
        selected.append(entry)
    event: Data = {"name": "loop.done", "step": run.step, "timestamp": turn.now, "data": {}, "payload": {}}
    turn.step_event("next.evaluated", run.step, run.run_id, selected=selected, mode="exclusive", event=event)
