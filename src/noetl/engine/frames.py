"""Frames: where the pipelines of an execution stand, and how a finished task moves them.

An iteration's id is the path to its frame: the step run, the index in the step's loop (`-` where it
has none), and the indexes of the blocks inside.
"""

from __future__ import annotations

from typing import Any

from noetl.engine.facts import Fact
from noetl.engine.state import Data, Frame, State
from noetl.ids import seconds_of
from noetl.records.event import Event

NO_LOOP = "-"


def iteration_path(run_id: str, *indexes: int | None) -> str:
    """The id of an iteration; the first index is that of the step's loop."""
    return "/".join((run_id, *(NO_LOOP if index is None else str(index) for index in indexes)))


def find_frame(state: State, event: Fact | Event, *, outer: bool = False) -> Frame:
    """The frame an event is about, or with `outer` the one around it."""
    run = state.runs[str(event.step_run_id)]
    frame = run.frame
    if event.iteration_id is None:
        return frame
    indexes = event.iteration_id.split("/")[1:]
    if outer:
        indexes.pop()
    for depth, index in enumerate(indexes):
        if depth == 0:
            if index != NO_LOOP:
                assert run.loop is not None
                frame = run.loop.open[int(index)]
        else:
            assert frame.block is not None
            frame = frame.block.open[int(index)]
    return frame


def open_iteration(state: State, event: Fact | Event) -> None:
    """Begins an iteration of a step's loop or of a block."""
    run = state.runs[str(event.step_run_id)]
    assert event.iteration is not None
    assert event.iteration_id is not None
    if event.iteration_id.count("/") == 1:
        loop = run.loop
        assert loop is not None
        loop.open[event.iteration] = Frame(begun=True)
        loop.cursor = max(loop.cursor, event.iteration + 1)
        return
    block = find_frame(state, event, outer=True).block
    assert block is not None
    block.open[event.iteration] = Frame(begun=True)
    block.cursor = max(block.cursor, event.iteration + 1)


def apply_task_done(frame: Frame, label: str, payload: Data, timestamp: str) -> None:
    """Moves a frame by a finished task: `then` says what was decided."""
    then = payload["then"]
    outcome = payload["outcome"]
    do = then["do"]
    frame.wake_at = None
    frame.iter.update(then.get("set_iter", {}))
    frame.writes.update(then.get("set_ctx", {}))
    if outcome["status"] != "skipped":
        frame.task_runs += 1
        frame.results[label] = outcome.get("result")
        frame.last = label
    if do == "retry":
        frame.attempt += 1
        frame.wake_at = seconds_of(timestamp) + then.get("delay", 0)
        return
    if do != "skip":
        frame.prev = outcome.get("result")
    if "next" in then:
        frame.position = then["next"]
        frame.attempt = 1
        frame.entry += 1


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
