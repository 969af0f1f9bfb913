"""Frames: where the pipelines of an execution stand, and how a finished task moves them.

An iteration's id is the path to its frame: the step run, the index in the step's loop (`-` where it
has none), and the indexes of the blocks inside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from noetl.engine.facts import Fact
from noetl.engine.state import BlockFrame, CaseFrame, Data, Frame, LoopRun, State, StepRun
from noetl.ids import seconds_of
from noetl.records.event import Event

NO_LOOP = "-"


def iteration_path(run_id: str, *indexes: int | None) -> str:
    """The id of an iteration; the first index is that of the step's loop."""
    return "/".join((run_id, *(NO_LOOP if index is None else str(index) for index in indexes)))


def find_frame(state: State, event: Fact | Event, *, outer: bool = False) -> Frame:
    """The frame an event is about, or with `outer` the one around it."""
    found = _place(state.runs[str(event.step_run_id)], event.iteration_id, outer=outer)
    assert found is not None
    return found.frame


class Place(NamedTuple):
    """A frame, and which visits of the blocks around it led there."""

    frame: Frame
    visits: str

    @property
    def visit(self) -> str:
        """The visit of what the frame has come to: a block has the same indexes whenever it is entered."""
        return f"{self.visits}:{self.frame.entry}"


def _place(run: StepRun, iteration_id: str | None, *, outer: bool = False) -> Place | None:
    place = Place(run.frame, "")
    indexes = [] if iteration_id is None else iteration_id.split("/")[1:]
    if outer:
        indexes.pop()
    for depth, index in enumerate(indexes):
        if depth == 0 and index == NO_LOOP:
            continue
        loop = run.loop if depth == 0 else place.frame.block
        found = None if loop is None else loop.open.get(int(index))
        if found is None:
            return None
        place = Place(found, place.visit if depth else "")
    return place


def was_taken(run: StepRun, facts: list[Fact]) -> bool:
    """Whether a report has been taken before: what it would move has moved on since.

    The events of a report are committed together, so the first of them that moves something tells of all.
    """
    for fact in facts:
        kind = fact.event_type
        if "case" in fact.payload:
            place = _place(run, fact.iteration_id)
            return place is None or _was_told(place.frame, fact.payload["case"])
        if kind == "step.started":
            return run.started_at is not None
        if kind == "loop.iteration.started":
            return _has_begun(run, fact)
        if kind in _MOVING or (kind == "sink.processed" and fact.payload.get("again")):
            place = _place(run, fact.iteration_id)
            return place is None or _is_past(run, place, fact)
    if not all(fact.event_type.endswith((".started", ".scheduled", "vars.set")) for fact in facts):
        return False
    return any(_was_begun(run, fact) for fact in facts if fact.event_type in ("task.started", "sink.started"))


def start_of(event: Fact | Event) -> str:
    """What tells a start from all others, those of the same attempt under another lease included."""
    return f"{event.task_run_id}/{event.attempt}/{event.timestamp}"


_MOVING = frozenset(
    {"task.done", "loop.started", "loop.done", "loop.iteration.done", "loop.iteration.failed"}
)


def _was_begun(run: StepRun, fact: Fact) -> bool:
    """Whether a start that was told of by itself is in the log: it was the last one, or others came since."""
    place = _place(run, fact.iteration_id)
    if place is None or place.frame.begun == start_of(fact):
        return True
    return fact.event_type == "task.started" and place.frame.case is None and _is_past(run, place, fact)


def _was_told(frame: Frame, said: Data) -> bool:
    """Whether a case was recorded as it was then, or later."""
    return frame.case is not None and frame.case.told >= said["frame"]["told"]


def _is_past(run: StepRun, place: Place, fact: Fact) -> bool:
    frame, visit = place.frame, fact.payload.get("visit")
    match fact.event_type:
        case "task.done" | "task.started":
            task_run_id = f"{fact.iteration_id or run.run_id}{place.visit}"
            return (fact.task_run_id, fact.attempt) != (task_run_id, frame.attempt)
        case "sink.processed":
            return fact.attempt != frame.sink_attempt
        case "loop.started":
            return visit != place.visit or frame.block is not None
        case "loop.done":
            return visit != place.visit or frame.block is None
    return visit is not None and visit != place.visits


def _has_begun(run: StepRun, fact: Fact) -> bool:
    assert fact.iteration is not None
    if "visit" not in fact.payload:
        return run.loop is not None and has_begun(run.loop, fact.iteration)
    place = _place(run, fact.iteration_id, outer=True)
    if place is None or place.frame.block is None or fact.payload["visit"] != place.visit:
        return True
    return has_begun(place.frame.block, fact.iteration)


def open_iteration(state: State, event: Fact | Event) -> Frame:
    """Begins an iteration of a step's loop or of a block."""
    run = state.runs[str(event.step_run_id)]
    assert event.iteration is not None
    assert event.iteration_id is not None
    is_step_loop = event.iteration_id.count("/") == 1
    loop = run.loop if is_step_loop else find_frame(state, event, outer=True).block
    assert loop is not None
    return begin_iteration(loop, event.iteration)


def begin_iteration(loop: LoopRun | BlockFrame, index: int) -> Frame:
    """Opens the frame of an iteration; those that run at once may begin in any order."""
    if index >= loop.cursor:
        loop.behind.extend(range(loop.cursor, index))
        loop.cursor = index + 1
    else:
        loop.behind.remove(index)
    frame = loop.open[index] = Frame()
    return frame


def has_begun(loop: LoopRun | BlockFrame, index: int) -> bool:
    return index < loop.cursor and index not in loop.behind


def left_to_run(loop: LoopRun | BlockFrame) -> list[int]:
    """The iterations that have not ended, in index order."""
    return [*sorted([*loop.open, *loop.behind]), *range(loop.cursor, loop.total)]


def writes_of(frame: Frame) -> Data:
    """What a pipeline wrote to `ctx`, its open blocks included but for what these will combine."""
    found = dict(frame.writes)
    if frame.block is not None:
        for inner in frame.block.open.values():
            found.update(unreduced(writes_of(inner), frame.block))
    return found


def unreduced(writes: Data, block: BlockFrame) -> Data:
    """Those of an iteration of a block that count as they are."""
    if not block.reduce:
        return writes
    return {key: value for key, value in writes.items() if key not in block.reduce}


def apply_task_done(frame: Frame, label: str, payload: Data, timestamp: str) -> None:
    """Moves a frame by a finished task: `then` says what was decided."""
    then = payload["then"]
    outcome = payload["outcome"]
    do = then["do"]
    began = frame.polled_since or frame.since or seconds_of(timestamp)
    frame.wake_at = frame.since = None
    frame.iter.update(then.get("set_iter", {}))
    frame.writes.update(then.get("set_ctx", {}))
    frame.block = None
    if outcome["status"] != "skipped":
        frame.task_runs += 1
        frame.results[label] = outcome.get("result")
        frame.last = label
    if do == "retry":
        frame.polled_since = began
        frame.attempt += 1
        frame.wake_at = seconds_of(timestamp) + then.get("delay", 0)
        return
    if do == "poll":
        frame.polls += 1
        frame.polled_since = began
        frame.attempt = 1
        frame.entry += 1
        frame.wake_at = seconds_of(timestamp) + then.get("delay", 0)
        return
    frame.polls, frame.polled_since = 0, None
    if do == "null":
        frame.results[label] = None
        frame.last = label
    if do not in ("skip", "null"):
        frame.prev = outcome.get("result")
    if "next" in then:
        frame.position = then["next"]
        frame.attempt = 1
        frame.entry += 1


def apply_case(frame: Frame, label: str | None, payload: Data, timestamp: str, values: Data) -> None:
    """Moves a case by what its chains did up to an event; `case` in the payload says it."""
    said = payload["case"]
    for change in said.get("changes", ()):
        apply_change(values, change)
    before = frame.case
    frame.case = msgspec.convert(said["frame"], CaseFrame)
    # The outcome of the call stands in its own event, not again in every one that follows.
    if said.get("call"):
        frame.case.outcome = payload["outcome"]
    elif before is not None:
        frame.case.outcome = before.outcome
    began = frame.polled_since or frame.since or seconds_of(timestamp)
    frame.wake_at, frame.since = payload.get("wake_at"), None
    frame.block = None
    then = payload.get("then", {})
    if "outcome" not in payload or label is None:
        return
    frame.task_runs += 1
    if then.get("do") == "retry":
        frame.polled_since = began
        frame.attempt += 1
        frame.wake_at = seconds_of(timestamp) + then.get("delay", 0)
    elif then.get("do") == "poll":
        frame.polls += 1
        frame.polled_since = began
        frame.attempt = 1
        frame.entry += 1
        frame.wake_at = seconds_of(timestamp) + then.get("delay", 0)
    else:
        frame.results[label] = payload["outcome"].get("result")
        frame.last = label
        frame.attempt = 1
        frame.entry += 1
        frame.polls, frame.polled_since = 0, None


def apply_change(values: Data, change: list[Any]) -> None:
    """`set` or `collect`, as it was recorded."""
    if change[0] == "set":
        values.update(change[1])
        return
    _, into, mode, value = change
    held = values.get(into)
    held = list(held) if isinstance(held, list) else []
    if mode == "extend" and isinstance(value, list):
        held.extend(value)
    else:
        held.append(value)
    values[into] = held


def joined_values(base: Data, collected: dict[int, Data]) -> Data:
    """What parallel iterations gathered, joined in index order: lists are added up, else the last wins."""
    joined = dict(base)
    for index in sorted(collected):
        for name, value in collected[index].items():
            before = base.get(name)
            if isinstance(value, list):
                start = len(before) if isinstance(before, list) else 0
                held = joined.get(name)
                joined[name] = [*(held if isinstance(held, list) else []), *value[start:]]
            elif value != before:
                joined[name] = value
    return joined


def leave_block(frame: Frame, label: str, result: Any, position: int) -> None:  # noqa: ANN401 - plain data
    """Moves a frame past a block that ended well."""
    frame.block = None
    frame.results[label] = result
    frame.last = label
    frame.prev = result
    frame.position = position
    frame.attempt = 1
    frame.entry += 1


def finished_result(frame: Frame) -> Any:  # noqa: ANN401 - plain data
    """What a pipeline gives: the result of the task that was executed last."""
    return None if frame.last is None else frame.results[frame.last]
