"""What a lease of a step run starts from: all that a worker must know to go on where the log stands.

A step run is one command of the queue; a loop that is shared out among workers is several, numbered from
0, each with iterations of its own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.engine.bodies import is_ref
from noetl.engine.plan import Plan
from noetl.engine.scope import elements_of, result_keys
from noetl.engine.state import Data, Frame, LoopRun, Part, State, StepResult, StepRun

MARK = "~"


def command_id(run_id: str, lease: int) -> str:
    return run_id if lease == 0 else f"{run_id}{MARK}{lease}"


def run_and_lease(command: str) -> tuple[str, int]:
    """The step run a command belongs to, and which of its leases it is."""
    run_id, mark, lease = command.partition(MARK)
    return run_id, int(lease) if mark else 0


class Leased(Part):
    """A lease as a worker begins it."""

    lease: int
    scope: str
    args: Data
    scheduled_at: str
    opened: int
    started: bool
    frame: Frame
    loop: LoopRun | None
    """Only with the open iterations of this lease."""
    fired: dict[str, int]
    mailbox: dict[int, Data]
    """Signals that came before the step was scheduled and that nobody has taken."""
    workload: Data
    ctx: Data
    vars: Data
    steps: dict[str, StepResult]
    """The results that the step can read."""
    bound: dict[str, str]
    """Second names of results."""
    elements: dict[str, tuple[Any, int]] = msgspec.field(default_factory=dict)
    """Of the loops whose items the step is on the way of: their elements, and the index of the item."""


def leased(plan: Plan, state: State, run: StepRun, lease: int) -> Leased:
    """A lease on a step run as it stands; the frames in it are copies."""
    step = plan.steps[run.step]
    read = plan.names_read(step)
    bound = {second: name for second, name in plan.bound(state.steps).items() if second in read}
    steps = {
        key: msgspec.structs.replace(state.steps[key])
        for name in (*read, *bound.values())
        for key in result_keys(name, run.scope)
        if key in state.steps
    }
    return Leased(
        lease=lease,
        scope=run.scope,
        args=run.args,
        scheduled_at=run.scheduled_at,
        opened=run.opened,
        started=run.started_at is not None,
        frame=_copy(run.frame),
        loop=None if run.loop is None else _share(run.loop, lease),
        fired=dict(run.fired),
        mailbox=dict(state.mailbox) if plan.waits_for_events(step) else {},
        workload=state.workload,
        ctx=dict(state.ctx),
        vars=dict(state.vars),
        steps=steps,
        bound=bound,
        elements=_elements(state, run.scope, read),
    )


def _elements(state: State, scope: str, read: frozenset[str]) -> dict[str, tuple[Any, int]]:
    """Only what the step reads, and of elements that are at hand only the one."""
    return {
        name: (items, index) if is_ref(items) else ([items[index]], 0)
        for name, (items, index) in elements_of(state, scope).items()
        if name in read
    }


def _share(loop: LoopRun, lease: int) -> LoopRun:
    """A loop as one of its leases sees it."""
    return LoopRun(
        items=loop.items,
        total=loop.total,
        parallel=loop.parallel,
        keeps_going=loop.keeps_going,
        widths=loop.widths,
        cursor=loop.cursor,
        open={index: _copy(frame) for index, frame in loop.open.items() if frame.lease == lease},
        closing=loop.closing,
    )


_ENCODER = msgspec.msgpack.Encoder()
_FRAMES: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)
_FRESH: Any = Frame()


def _copy(frame: Frame) -> Frame:
    return Frame() if frame == _FRESH else _FRAMES.decode(_ENCODER.encode(frame))
