"""How each event changes a state.

The one place where a state changes. It evaluates no template and knows no playbook: an event says what
was decided, so a replay can come to nothing else. Event types that change nothing are not listed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from noetl.engine.facts import Fact
from noetl.engine.frames import (
    NO_LOOP,
    apply_case,
    apply_task_done,
    find_frame,
    finished_result,
    joined_values,
    leave_block,
    open_iteration,
    start_of,
    unreduced,
)
from noetl.engine.reducers import apply_writes, note_writes
from noetl.engine.state import BlockFrame, Frame, LoopRun, SpreadRun, State, StepResult, StepRun, Token, Waits
from noetl.ids import seconds_of
from noetl.records.event import Event

SMALL_RESULTS_BYTES: Final = 48 * 1024
"""A loop's results stay in the state while they are smaller than this together."""


Happened: TypeAlias = Fact | Event
"""A fact that was just made, or an event read from the log: fold takes the same of both."""


HEARD: Final = frozenset({"signal.received", "timer.fired", "step.done", "step.failed", "loop.done"})
"""What a step that waits for events can hear of."""


def fold(state: State, event: Happened) -> None:
    """Applies one event."""
    state.seq += 1
    if event.event_type in HEARD:
        state.heard = state.seq
    handler = HANDLERS.get(event.event_type)
    if handler is not None:
        handler(state, event)


def _requested(state: State, event: Happened) -> None:
    state.requested_at = event.timestamp
    state.payload = event.payload.get("payload", {})
    state.origin = event.payload.get("origin")
    state.trace = event.payload.get("trace")


def _evaluated(state: State, event: Happened) -> None:
    if event.status == "error":
        state.error = event.payload["error"]
        return
    state.workload = event.payload.get("workload", state.workload)
    reused = event.payload.get("reused", {})
    state.ctx.update(reused.get("ctx", {}))
    state.vars.update(reused.get("vars", {}))
    for name, kept in reused.get("steps", {}).items():
        state.steps[name] = msgspec.convert(kept, StepResult)
        # In this log they ended here, before any step of its own.
        state.steps[name].seq = state.seq


def _workflow_started(state: State, event: Happened) -> None:
    state.status = "running"
    state.deadline = event.payload.get("deadline")
    state.owed = {join: dict(origins) for join, origins in event.payload.get("owed", {}).items()}
    for entry in event.payload["tokens"]:
        _put_token(state, entry, entry.get("origin"), entry.get("event"))


def _put_token(state: State, entry: dict[str, Any], origin: str | None, event: dict[str, Any] | None) -> None:
    token = Token(
        token_id=entry["token"],
        step=entry["step"],
        args=entry.get("args", {}),
        scope=entry.get("scope", ""),
        origin=origin,
        event=event,
        not_before=entry.get("not_before"),
    )
    state.tokens[token.token_id] = token
    state.next_token += 1


def _routed(state: State, event: Happened) -> None:
    _sent_item(state, event)
    boundary = event.payload.get("event")
    for entry in event.payload["selected"]:
        if "token" in entry:
            _put_token(state, entry, event.step, boundary)
        elif "joins" in entry:
            _join_item(state, str(event.step), entry)
        elif "discarded" in entry:
            state.owed[entry["step"]][str(event.step)] -= 1


def _join_item(state: State, origin: str, entry: dict[str, Any]) -> None:
    """Keeps what an item's last step gave for the step that joins its loop."""
    joined = entry["joins"]
    run = state.runs.get(joined["run"])
    if run is None or run.spread is None:
        return
    last = state.steps.get(step_key(origin, joined["scope"]))
    result = entry.get("result") if last is None else last.result
    run.spread.arrived.setdefault(joined["index"], []).append((joined.get("place", 0), result))


def _sent_item(state: State, event: Happened) -> None:
    """Counts an item of a spread as sent."""
    item = event.payload.get("item")
    if item is None:
        return
    run = state.runs.get(item["run"])
    if run is not None and run.spread is not None:
        run.spread.cursor = max(run.spread.cursor, item["index"] + 1)


def _step_scheduled(state: State, event: Happened) -> None:
    assert event.step is not None
    assert event.step_run_id is not None
    taken = [state.tokens.pop(token_id) for token_id in event.payload["tokens"]]
    for token_id in event.payload.get("discarded", ()):
        state.tokens.pop(token_id, None)
    for origin in event.payload.get("owed", ()):
        owed = state.owed.setdefault(event.step, {})
        owed[origin] = owed.get(origin, 0) + 1
    state.runs[event.step_run_id] = StepRun(
        run_id=event.step_run_id,
        step=event.step,
        scope=taken[-1].scope if taken else event.payload["scope"],
        args=event.payload["args"],
        scheduled_at=event.timestamp,
        opened=state.seq,
        event=taken[-1].event if taken else None,
        deadline=event.payload.get("deadline"),
    )
    _sent_item(state, event)
    state.next_run += 1
    run = state.runs[event.step_run_id]
    for summary in (_summary(state, run), _whole(state, run)):
        if summary is not None:
            summary.status = "running"
            summary.runs += 1


def _summary(state: State, run: StepRun) -> StepResult:
    return state.steps.setdefault(step_key(run.step, run.scope), StepResult(status="running"))


def _whole(state: State, run: StepRun) -> StepResult | None:
    """For a run inside a spread, the step as it is seen from outside: all its runs, and the last of them."""
    return state.steps.setdefault(run.step, StepResult(status="running")) if run.scope else None


def _mirror(state: State, run: StepRun, summary: StepResult) -> None:
    whole = _whole(state, run)
    if whole is not None:
        whole.status, whole.seq, whole.duration_ms = summary.status, summary.seq, summary.duration_ms
        whole.result, whole.error = summary.result, summary.error


def step_key(step: str, scope: str) -> str:
    return f"{step}@{scope}" if scope else step


def _step_skipped(state: State, event: Happened) -> None:
    assert event.step is not None
    for token_id in event.payload.get("tokens", ()):
        state.tokens.pop(token_id, None)
    run = state.runs.pop(str(event.step_run_id), None)
    if run is not None:
        skipped = _end_run(state, run, event)
        skipped.status = "skipped"
        _mirror(state, run, skipped)
        return
    summary = state.steps.setdefault(event.step, StepResult(status="skipped"))
    if not summary.runs:
        summary.status = "skipped"


def _step_started(state: State, event: Happened) -> None:
    run = state.runs[str(event.step_run_id)]
    if run.started_at is None:
        run.started_at = event.timestamp


def _step_done(state: State, event: Happened) -> None:
    run = state.runs.pop(str(event.step_run_id))
    summary = _end_run(state, run, event)
    summary.status = "done"
    summary.error = event.payload.get("error")
    summary.result = event.payload.get("result")
    summary.results = event.payload.get("results", run.frame.results)
    _mirror(state, run, summary)


def _loop_done(state: State, event: Happened) -> None:
    if "block" not in event.payload:
        run = state.runs[str(event.step_run_id)]
        _step_done(state, event)
        if run.spread is not None:
            inside = f"@{run.scope}/{run.run_id}:" if run.scope else f"@{run.run_id}:"
            for key in [key for key in state.steps if inside in key]:
                del state.steps[key]
        return
    payload, frame = event.payload, find_frame(state, event)
    frame.writes.update(payload.get("patch", {}))
    leave_block(frame, payload["block"], payload["result"], payload["next"])


def _step_failed(state: State, event: Happened) -> None:
    run = state.runs.pop(str(event.step_run_id))
    summary = _end_run(state, run, event)
    summary.status = "failed"
    summary.error = event.payload["error"]
    summary.result = event.payload.get("result")
    summary.results = run.frame.results
    _mirror(state, run, summary)


def _end_run(state: State, run: StepRun, event: Happened) -> StepResult:
    summary = _summary(state, run)
    began = run.started_at or run.scheduled_at
    summary.duration_ms = round((seconds_of(event.timestamp) - seconds_of(began)) * 1000, 3)
    summary.seq = state.seq
    return summary


def _loop_started(state: State, event: Happened) -> None:
    payload = event.payload
    if "block" in payload:
        frame = find_frame(state, event)
        frame.block = BlockFrame(
            items=payload["items"],
            total=payload["total"],
            args=payload.get("args", {}),
            reduce=payload.get("reduce", {}),
        )
        return
    run = state.runs[str(event.step_run_id)]
    run.started_at = event.timestamp
    if "spread" in payload:
        run.spread = SpreadRun(items=payload["items"], total=payload["total"], **payload["spread"])
        return
    run.loop = LoopRun(
        items=payload["items"],
        total=payload["total"],
        parallel=payload["mode"] == "parallel",
        keeps_going=payload["on_error"] == "continue",
        widths=payload.get("leases", [1]),
        batch=payload.get("batch", 1),
        reduce=payload.get("reduce", {}),
    )


def _iteration_started(state: State, event: Happened) -> None:
    frame = open_iteration(state, event)
    run = state.runs[str(event.step_run_id)]
    if "block" not in event.payload and run.loop is not None:
        frame.lease = event.payload.get("lease", 0)
        if run.loop.parallel:
            frame.values = dict(run.frame.values)


def _iteration_ended(state: State, event: Happened) -> None:
    run = state.runs[str(event.step_run_id)]
    assert event.iteration is not None
    if "block" in event.payload:
        _block_iteration_ended(state, event)
        return
    loop = run.loop
    assert loop is not None
    frame = loop.open.pop(event.iteration)
    run.losses.clear()
    if event.payload.get("reused"):
        frame.writes, frame.reduced = event.payload.get("patch", {}), event.payload.get("reduced", {})
        if not loop.parallel:
            state.ctx.update(frame.writes)
    if "case" in event.payload:
        apply_case(frame, None, event.payload, event.timestamp, _shared_values(run, frame))
    if "ends" in event.payload:
        loop.closing = event.payload["ends"]
    if loop.parallel and frame.values != run.frame.values:
        loop.collected[event.iteration] = frame.values
    if event.event_type == "loop.iteration.done":
        loop.done += 1
        _keep_result(loop, event.iteration, event.payload.get("result"))
    else:
        loop.failed += 1
        _keep_result(loop, event.iteration, None)
    if loop.parallel:
        writes, every = ({}, {}) if event.payload.get("conflict") else (frame.writes, frame.reduced)
        apply_writes(state, loop, event.iteration, writes, event.payload.get("reduce", {}), every)


def _keep_result(loop: LoopRun, index: int, result: object) -> None:
    loop.results_size += len(msgspec.json.encode(result)) + 1
    if loop.results is None:
        return
    if loop.results_size > SMALL_RESULTS_BYTES:
        loop.results = None
    else:
        loop.results[index] = result


def _block_iteration_ended(state: State, event: Happened) -> None:
    outer = find_frame(state, event, outer=True)
    block = outer.block
    assert block is not None
    assert event.iteration is not None
    frame = block.open.pop(event.iteration)
    if not event.payload.get("conflict"):
        writes = unreduced(frame.writes, block)
        outer.writes.update(writes)
        block.written.update(writes)
        if frame.reduced:
            block.noted[event.iteration] = frame.reduced
    if event.event_type == "loop.iteration.done":
        block.results[event.iteration] = finished_result(frame)
    else:
        block.results[event.iteration] = None
        block.error = block.error or event.payload["error"]


def _task_done(state: State, event: Happened) -> None:
    run = state.runs[str(event.step_run_id)]
    run.losses.clear()
    if "signal" in event.payload:
        state.mailbox.pop(event.payload["signal"], None)
    frame = find_frame(state, event)
    if "case" in event.payload:
        apply_case(frame, event.task_label, event.payload, event.timestamp, _shared_values(run, frame))
    else:
        apply_task_done(frame, str(event.task_label), event.payload, event.timestamp)
        _note_reduced(run, event)


def _note_reduced(run: StepRun, event: Happened) -> None:
    """Keeps what an iteration wrote to reduced keys; blocks inside it write for the iteration."""
    patch = event.payload["then"].get("set_ctx")
    if not patch or event.iteration_id is None:
        return
    loop: LoopRun | BlockFrame | None = run.loop
    frame = run.frame
    for index in event.iteration_id.split("/")[1:]:
        if index != NO_LOOP:
            assert loop is not None
            frame = loop.open[int(index)]
            if loop.reduce:
                note_writes(frame.reduced, patch, loop.reduce)
        loop = frame.block


def _task_started(state: State, event: Happened) -> None:
    frame = find_frame(state, event)
    frame.begun = start_of(event)
    if frame.since is None:
        frame.since = seconds_of(event.timestamp)


def _sink_started(state: State, event: Happened) -> None:
    find_frame(state, event).begun = start_of(event)


def _shared_values(run: StepRun, frame: Frame) -> dict[str, Any]:
    """Where `set` and `collect` write: iterations in sequence share what the step run holds."""
    loop = run.loop
    if loop is not None and not loop.parallel:
        return run.frame.values
    if loop is not None and frame is run.frame and loop.collected:
        # The step itself comes after its iterations: it goes on with what they gathered.
        run.frame.values, loop.collected = joined_values(run.frame.values, loop.collected), {}
    return frame.values


def _timer_fired(state: State, event: Happened) -> None:
    run = state.runs.get(str(event.step_run_id))
    if run is not None:
        run.fired[event.payload["timer_id"]] = state.seq


def _case_moved(state: State, event: Happened) -> None:
    run = state.runs.get(str(event.step_run_id))
    if "signal" in event.payload:
        state.mailbox.pop(event.payload["signal"], None)
    if "case" in event.payload and run is not None:
        frame = find_frame(state, event)
        apply_case(frame, None, event.payload, event.timestamp, _shared_values(run, frame))


def _sink_processed(state: State, event: Happened) -> None:
    _case_moved(state, event)
    frame = find_frame(state, event)
    frame.sink_attempt = (event.attempt or 1) + 1 if event.payload.get("again") else 1
    if event.payload.get("of_step"):
        frame.stored = True


def _parked(state: State, event: Happened) -> None:
    run = state.runs[str(event.step_run_id)]
    run.losses.pop(event.payload["lease"], None)  # it came as far as it could
    waits = run.parked[event.payload["lease"]] = msgspec.convert(event.payload["waits"], Waits)
    if waits.events is not None and run.frame.case is not None:
        run.frame.case.seen = max(run.frame.case.seen, waits.events)


def _back(state: State, event: Happened) -> None:
    state.runs[str(event.step_run_id)].parked.pop(event.payload["lease"], None)


def _ctx_patched(state: State, event: Happened) -> None:
    state.ctx.update(event.payload["patch"])


def _vars_set(state: State, event: Happened) -> None:
    state.vars.update(event.payload["vars"])
    run = state.runs.get(str(event.step_run_id))
    if run is not None:
        run.frame.kept = True


def _signal_received(state: State, event: Happened) -> None:
    state.mailbox[state.seq] = {"name": event.payload["name"], "data": event.payload.get("data")}


def _command_expired(state: State, event: Happened) -> None:
    run = state.runs.get(str(event.step_run_id))
    if run is not None:
        lease = event.payload.get("lease", 0)
        run.losses[lease] = run.losses.get(lease, 0) + 1


def _paused(state: State, event: Happened) -> None:
    state.status = "paused"


def _resumed(state: State, event: Happened) -> None:
    state.status = "running"


def _cancelled(state: State, event: Happened) -> None:
    state.status = "cancelled"
    _revoke(state)


def _revoke(state: State) -> None:
    """Ends everything that is open; late reports find nothing to report to."""
    for run in state.runs.values():
        _summary(state, run).status = "cancelled"
    state.runs.clear()
    state.tokens.clear()


def _workflow_finished(state: State, event: Happened) -> None:
    if state.status != "cancelled":
        state.status = "completed" if event.status == "success" else "failed"
    state.error = event.payload.get("error")
    state.result = event.payload.get("result")
    state.result_step = event.payload.get("result_step")
    _revoke(state)


def _processed(state: State, event: Happened) -> None:
    if not state.is_over:
        state.status = "failed"
    state.finished_at = event.timestamp


HANDLERS: Final[dict[str, Callable[[State, Happened], None]]] = {
    "playbook.execution.requested": _requested,
    "playbook.request.evaluated": _evaluated,
    "workflow.started": _workflow_started,
    "next.evaluated": _routed,
    "step.scheduled": _step_scheduled,
    "step.skipped": _step_skipped,
    "step.started": _step_started,
    "step.paused": _parked,
    "step.resumed": _back,
    "step.done": _step_done,
    "step.failed": _step_failed,
    "loop.done": _loop_done,
    "loop.started": _loop_started,
    "loop.iteration.started": _iteration_started,
    "loop.iteration.done": _iteration_ended,
    "loop.iteration.failed": _iteration_ended,
    "task.started": _task_started,
    "task.done": _task_done,
    "timer.fired": _timer_fired,
    "case.evaluated": _case_moved,
    "next.requested": _case_moved,
    "retry.started": _case_moved,
    "sink.started": _sink_started,
    "sink.processed": _sink_processed,
    "ctx.patched": _ctx_patched,
    "vars.set": _vars_set,
    "signal.received": _signal_received,
    "command.expired": _command_expired,
    "execution.paused": _paused,
    "execution.resumed": _resumed,
    "execution.cancelled": _cancelled,
    "workflow.finished": _workflow_finished,
    "playbook.processed": _processed,
}
