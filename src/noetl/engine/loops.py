"""Loop steps on the server: their start, the end of each iteration, and their own end."""

from __future__ import annotations

from typing import Any

from noetl.engine.bodies import is_ref, parted
from noetl.engine.facts import Fact
from noetl.engine.frames import iteration_path
from noetl.engine.reducers import conflicting_key, unfit
from noetl.engine.routing import end_step, fail_step
from noetl.engine.scope import render
from noetl.engine.state import Data, LoopRun, StepRun
from noetl.engine.turn import Turn, error_data
from noetl.errors import TemplateError
from noetl.playbook.model import Loop, Step
from noetl.template import Template

SHOWN_CHARACTERS = 60

LOG_STORE = "log"
"""The store of a loop's result that was too large to be kept: its iterations' events."""


def begin_loop(turn: Turn, step: Step, run: StepRun) -> None:
    """Evaluates the collection; an empty one is done at once."""
    loop = step.loop
    assert loop is not None
    try:
        items = _elements(loop, turn, run)
    except TemplateError as problem:
        fail_step(turn, run, error_data(problem.code, f"the loop's `in`: {problem.message}", step=step.name))
        return
    if not isinstance(items, list):
        shown = type(items).__name__
        message = f"the loop's `in` must give a list, but it gave a value of type {shown}"
        fail_step(turn, run, error_data("loop.not_a_list", message, step=step.name))
        return
    turn.step_event(
        "loop.started",
        step.name,
        run.run_id,
        "in_progress",
        total=len(items),
        items=items,
        mode=loop.mode,
        on_error=loop.on_error,
    )
    reused = turn.reused_items[1] if turn.reused_items[0] == step.name else {}
    if reused and not _take_over(turn, run, reused):
        return
    if not items and not turn.plan.is_closed_by_worker(step):
        end_step(turn, run, [], done=0, failed=0)
    elif not step.body:
        end_step(turn, run, items, done=len(items), failed=0)
    else:
        turn.ready.append(run.run_id)


def _take_over(turn: Turn, run: StepRun, reused: dict[int, Any]) -> bool:
    """Counts iterations as done that an earlier execution has done. False: the loop is over already."""
    loop = run.loop
    assert loop is not None
    if max(reused) >= loop.total:
        message = f"the loop now has {loop.total} elements, fewer than the execution that is repeated"
        fail_step(turn, run, error_data("retry.items_changed", message, step=run.step))
        return False
    for index, result in sorted(reused.items()):
        for event_type, payload in (
            ("loop.iteration.started", {"reused": True}),
            ("loop.iteration.done", {"reused": True, "result": result}),
        ):
            path = iteration_path(run.run_id, index)
            turn.emit(
                Fact(
                    event_type=event_type,
                    timestamp=turn.now,
                    source="server",
                    entity_type="loop",
                    entity_id=path,
                    status="success",
                    parent_id=run.run_id,
                    workflow_run_id=turn.state.execution_id,
                    step=run.step,
                    step_run_id=run.run_id,
                    iteration_id=path,
                    iteration=index,
                    payload=payload,
                )
            )
    if len(reused) == loop.total and not turn.plan.is_closed_by_worker(turn.plan.steps[run.step]):
        end_step(turn, run, loop_results(turn.state.execution_id, run), done=loop.done, failed=0)
        return False
    return True


def _elements(loop: Loop, turn: Turn, run: StepRun) -> Any:  # noqa: ANN401 - plain data
    scope = turn.around(run).boundary(run.event)
    items = loop.source.evaluate(scope) if isinstance(loop.source, Template) else render(loop.source, scope)
    if loop.wrap_scalar and not isinstance(items, list):
        return [items]
    return items


def end_iteration(turn: Turn, run: StepRun, fact: Fact) -> None:
    """Takes the end of an iteration from a worker; its writes may turn a good end into a bad one."""
    loop, step = run.loop, turn.plan.steps[run.step]
    assert loop is not None
    assert step.loop is not None
    assert fact.iteration is not None
    reducers: Data = step.loop.reduce
    if loop.parallel:
        writes = loop.open[fact.iteration].writes
        problem = _write_problem(loop, writes, reducers, run.step)
        if problem is not None:
            _as_failed(fact, problem)
        if reducers:
            fact.payload = {**fact.payload, "reduce": reducers}
    turn.emit(fact)
    if "ends" in fact.payload:
        return
    if fact.event_type == "loop.iteration.failed" and not loop.keeps_going:
        fail_step(turn, run, fact.payload["error"])
    elif loop.done + loop.failed == loop.total and not turn.plan.is_closed_by_worker(step):
        end_step(turn, run, loop_results(turn.state.execution_id, run), done=loop.done, failed=loop.failed)


def _write_problem(loop: LoopRun, writes: Data, reducers: Data, step: str) -> Data | None:
    key = conflicting_key(loop, writes, reducers)
    if key is not None:
        message = (
            f"two parallel iterations wrote different values to ctx key `{key}`; "
            f"name a reducer for it: loop.spec.reduce: {{{key}: last}}"
        )
        return error_data("ctx.conflict", message, step=step)
    for name, value in writes.items():
        if name in reducers and unfit(reducers[name], value):
            message = f"reducer `{reducers[name]}` of ctx key `{name}` cannot take {shown(value)}"
            return error_data("ctx.reduce", message, step=step)
    return None


def shown(value: Any) -> str:  # noqa: ANN401 - plain data
    """A value for a message: short, whatever it is."""
    if is_ref(value):
        return f"a value of {value['size']} bytes"
    text = str(value)
    return f"`{text}`" if len(text) <= SHOWN_CHARACTERS else f"`{text[:SHOWN_CHARACTERS]}…`"


def _as_failed(fact: Fact, problem: Data) -> None:
    """Fails an iteration for what it wrote; one that has failed already keeps its own error."""
    error = fact.payload.get("error", problem)
    fact.event_type = "loop.iteration.failed"
    fact.status = "error"
    fact.payload = {"error": error, "conflict": True}


def close_loop(turn: Turn, run: StepRun, payload: Data) -> None:
    """Ends a loop step whose case or sink a worker has brought to its end."""
    loop = run.loop
    assert loop is not None
    result = payload["result"] if payload.get("has_result") else loop_results(turn.state.execution_id, run)
    end_step(turn, run, result, payload.get("next"), done=loop.done, failed=loop.failed)


def loop_results(execution_id: str, run: StepRun) -> Any:  # noqa: ANN401 - plain data
    """The results in index order, or the reference to them in the log."""
    loop = run.loop
    assert loop is not None
    if loop.results is not None:
        return parted([loop.results.get(index) for index in range(loop.total)])
    return {
        "kind": "result_ref",
        "ref": f"noetl://{execution_id}/loop/{run.run_id}",
        "store": LOG_STORE,
        "key": run.run_id,
        "checksum": "",
        "size": loop.results_size,
        "schema_hint": {"type": "list", "length": loop.total},
        "preview": None,
        "extracted": {},
    }
