"""Loop steps on the server: their start, the end of each iteration, and their own end."""

from __future__ import annotations

from typing import Any

from noetl.engine.bodies import parted
from noetl.engine.facts import Fact
from noetl.engine.frames import iteration_path
from noetl.engine.masking import shown
from noetl.engine.reducers import conflicting_key, unfit
from noetl.engine.routing import end_step, fail_step
from noetl.engine.scope import render
from noetl.engine.state import Data, Frame, LoopRun, StepRun
from noetl.engine.turn import Turn, error_data
from noetl.errors import TemplateError, TemplateValueError
from noetl.playbook.model import Loop, Step
from noetl.records.event import EventStatus
from noetl.template import Scope, Template

MOST_LEASES = 8
"""A loop that is shared out has at most this many leases; each may run several iterations at once."""

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
    try:
        shares = _shares(turn, step, run, len(items))
    except TemplateError as problem:
        fail_step(turn, run, error_data(problem.code, f"the loop: {problem.message}", step=step.name))
        return
    turn.step_event("step.started", step.name, run.run_id, "in_progress", args=run.args)
    turn.step_event(
        "loop.started",
        step.name,
        run.run_id,
        "in_progress",
        total=len(items),
        items=items,
        mode=loop.mode,
        on_error=loop.on_error,
        **shares,
    )
    reused: dict[int, Any] = {}
    if turn.reused_items[0] == step.name:
        reused = turn.reused_items[1]
        turn.reused_items = ("", {})  # another token may come to the same step
    if reused and not _take_over(turn, run, reused):
        return
    if not items and not turn.plan.is_closed_by_worker(step):
        end_step(turn, run, [], done=0, failed=0)
    elif not step.body and not turn.plan.is_closed_by_worker(step):
        end_step(turn, run, items, done=len(items), failed=0)
    else:
        share_out(turn, run)


def _shares(turn: Turn, step: Step, run: StepRun, total: int) -> Data:
    """How many iterations run at once, and in how many leases: one, where a worker closes the loop."""
    loop = step.loop
    assert loop is not None
    if loop.mode == "sequential":
        return {}
    scope = turn.around(run).boundary(run.event)
    width = max(1, min(count(loop.max_in_flight, "max_in_flight", scope), total))
    shares: Data = {"leases": [width]}
    wished = loop.execution or turn.plan.playbook.executor.profile
    if turn.distributed and wished != "local" and not turn.plan.is_closed_by_worker(step):
        leases = min(width, MOST_LEASES)
        shares["leases"] = [width // leases + (number < width % leases) for number in range(leases)]
    if loop.reduce:
        shares["reduce"] = dict(loop.reduce)
    batch = count(loop.batch_size, "batch_size", scope)
    return shares if batch == 1 else {**shares, "batch": batch}


def count(written: int | Template, name: str, scope: Scope) -> int:
    """A whole number of at least 1, which may be a template."""
    if not isinstance(written, Template):
        return written
    found = written.evaluate(scope)
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise TemplateValueError(
            f"`{name}` must be a whole number of at least 1, but `{written.source}` gave `{found}`"
        )
    return found


def share_out(turn: Turn, run: StepRun) -> None:
    """Makes the commands of a loop; each has its first iterations unless a case comes before them."""
    loop = run.loop
    assert loop is not None
    for lease in run.leases:
        if not turn.plan.is_closed_by_worker(turn.plan.steps[run.step]):
            hand_out(turn, run, lease)
            if not iterations_of(loop, lease):
                continue  # the others have all there is
        turn.add_command(run.run_id, lease)


def hand_out(turn: Turn, run: StepRun, lease: int) -> None:
    """Gives a lease its next iterations, up to what it may run at once."""
    loop = run.loop
    assert loop is not None
    if loop.closing is not None or turn.state.status == "paused":
        return
    here = sum(frame.lease == lease for frame in loop.open.values())
    if here >= loop.widths[lease]:
        return
    wanted = loop.widths[lease] - here
    if loop.batch > 1:
        wanted = -(-wanted // loop.batch) * loop.batch
    extra = {} if lease == 0 else {"lease": lease}
    for _ in range(min(wanted, len(loop.behind) + loop.total - loop.cursor)):
        index = min(loop.behind) if loop.behind else loop.cursor
        turn.emit(_of_iteration(turn, run, index, "loop.iteration.started", "in_progress", extra))


def is_handed_out(loop: LoopRun) -> bool:
    """Whether every iteration has begun."""
    return loop.cursor >= loop.total and not loop.behind


def iterations_of(loop: LoopRun, lease: int) -> tuple[int, ...]:
    """The open iterations of a lease."""
    return tuple(index for index, frame in loop.open.items() if frame.lease == lease)


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
            (
                "loop.iteration.done",
                {"reused": True, "result": result, **turn.reused_writes.get(index, {})},
            ),
        ):
            turn.emit(_of_iteration(turn, run, index, event_type, "success", payload))
    if len(reused) == loop.total and not turn.plan.is_closed_by_worker(turn.plan.steps[run.step]):
        end_step(turn, run, loop_results(turn.state.execution_id, run), done=loop.done, failed=0)
        return False
    return True


def _of_iteration(
    turn: Turn, run: StepRun, index: int, event_type: str, status: EventStatus, payload: Data
) -> Fact:
    path = iteration_path(run.run_id, index)
    return Fact(
        event_type=event_type,
        timestamp=turn.now,
        source="server",
        entity_type="loop",
        entity_id=path,
        status=status,
        parent_id=run.run_id,
        workflow_run_id=turn.state.execution_id,
        step=run.step,
        step_run_id=run.run_id,
        iteration_id=path,
        iteration=index,
        payload=payload,
    )


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
        problem = _write_problem(loop, loop.open[fact.iteration], reducers, run.step)
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


def _write_problem(loop: LoopRun, frame: Frame, reducers: Data, step: str) -> Data | None:
    key = conflicting_key(loop, frame.writes, reducers)
    if key is not None:
        message = f"{conflict(key)}; name a reducer for it: loop.spec.reduce: {{{key}: last}}"
        return error_data("ctx.conflict", message, step=step)
    problem = unfit_write(frame, reducers)
    return None if problem is None else error_data(problem["kind"], problem["message"], step=step)


def unfit_write(frame: Frame, reducers: Data) -> Data | None:
    """The error of an iteration that wrote what a reducer cannot take."""
    for name, values in frame.reduced.items():
        for value in values:
            if unfit(reducers[name], value):
                message = f"reducer `{reducers[name]}` of ctx key `{name}` cannot take {shown(value)}"
                return {"kind": "ctx.reduce", "message": message}
    return None


def conflict(key: str) -> str:
    return f"two parallel iterations wrote different values to ctx key `{key}`"


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
    # Without a body there are no iterations: the elements are the results.
    done = loop.done if turn.plan.steps[run.step].body else loop.total
    end_step(turn, run, result, payload.get("next"), done=done, failed=loop.failed)


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
