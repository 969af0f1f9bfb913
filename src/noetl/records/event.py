"""The event envelope, and the table of event types.

Every decision of an execution is one of these events. The table is data: the checks on what is
written, the reference and the translation of names for older playbooks are made from it. An event on
paper always has every field of the envelope; those that do not apply are null.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

EventSource: TypeAlias = Literal["server", "worker"]
EventStatus: TypeAlias = Literal["in_progress", "success", "error", "skipped"]
EntityType: TypeAlias = Literal["playbook", "workflow", "step", "tool", "loop", "sink", "retry", "case"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the log. Encoded as it is, as stores do, it leaves out the fields that do not apply."""

    event_id: str
    """A snowflake, as text: it does not fit the numbers of JavaScript."""
    execution_id: str
    seq: int
    """The place in the log of its execution: from 1, without gaps."""
    event_type: str
    timestamp: str
    """RFC 3339."""
    source: EventSource
    entity_type: EntityType
    entity_id: str
    status: EventStatus
    parent_id: str | None = None
    """The entity this one belongs to: of a task its step run, of a step run its workflow run."""
    workflow_run_id: str | None = None
    step: str | None = None
    step_run_id: str | None = None
    task_run_id: str | None = None
    task_label: str | None = None
    iteration_id: str | None = None
    iteration: int | None = None
    """The index of the iteration, from 0."""
    attempt: int | None = None
    page: int | None = None
    action_id: str | None = None
    """The same for all attempts of one call."""
    payload: dict[str, Any] = {}


class EventType(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the table: what an event of this type says, of what, and who writes it."""

    name: str
    summary: str
    entity: EntityType
    source: Literal["server", "worker", "either"]
    """`either`: whichever of the two ran what the event is about."""


def _type(
    name: str, entity: EntityType, source: Literal["server", "worker", "either"], summary: str
) -> EventType:
    return EventType(name=name, summary=summary, entity=entity, source=source)


_TYPES: Final = (
    _type("playbook.execution.requested", "playbook", "server", "An execution was asked for."),
    _type(
        "playbook.request.evaluated",
        "playbook",
        "server",
        "The request was checked: the playbook loaded, the payload merged, the keychain resolved.",
    ),
    _type("playbook.started", "playbook", "server", "The execution was accepted."),
    _type("workflow.started", "workflow", "server", "The workflow began; a token is on its entry step."),
    _type("step.scheduled", "step", "server", "A token was admitted, and a step run waits to be run."),
    _type("step.skipped", "step", "server", "Admission refused the token, or a case skipped the step."),
    _type("step.started", "step", "either", "A step run began; the payload has its bound args."),
    _type("step.paused", "step", "either", "A step run was parked until a timer, a signal or a child."),
    _type("step.resumed", "step", "either", "A parked step run goes on."),
    _type("step.done", "step", "either", "A step run ended well; a boundary, its arcs are evaluated."),
    _type("step.failed", "step", "either", "A step run ended badly; a boundary, its arcs are evaluated."),
    _type("task.started", "tool", "worker", "One attempt at a task began."),
    _type(
        "task.done",
        "tool",
        "worker",
        "One attempt at a task ended; the payload has the outcome and what followed from it.",
    ),
    _type("next.requested", "step", "either", "An action of a case asked for a transition."),
    _type("next.evaluated", "step", "server", "The arcs of a step were evaluated at its boundary."),
    _type("vars.set", "step", "either", "A step stored variables of the execution."),
    _type("ctx.patched", "step", "either", "Keys of `ctx` were written."),
    _type("loop.started", "loop", "server", "A loop began; the payload has the number of its elements."),
    _type("loop.iteration.started", "loop", "either", "An iteration began."),
    _type("loop.iteration.done", "loop", "either", "An iteration ended well."),
    _type("loop.iteration.failed", "loop", "either", "An iteration ended badly."),
    _type("loop.done", "loop", "server", "A loop ended; the boundary of a loop step."),
    _type("retry.started", "retry", "worker", "A call is to be repeated after a failed attempt."),
    _type("retry.processed", "retry", "worker", "The repeating of a call ended; the payload says how."),
    _type("case.started", "case", "either", "The entries of a case are asked about a moment."),
    _type("case.evaluated", "case", "either", "The entries of a case were asked; the payload has the match."),
    _type(
        "case.branch.suppressed",
        "case",
        "either",
        "An entry matched but was not run, because another one came first.",
    ),
    _type("poll.started", "retry", "worker", "A call is repeated until a condition holds."),
    _type("poll.iteration", "retry", "worker", "A polled call was made and its condition asked."),
    _type("poll.finished", "retry", "worker", "The condition held, or the poll gave up."),
    _type("sink.started", "sink", "worker", "A sink began to store what was produced."),
    _type("sink.processed", "sink", "worker", "A sink ended; the payload has its outcome."),
    _type("timer.scheduled", "step", "either", "A durable timer was set."),
    _type("timer.fired", "step", "server", "A durable timer went off."),
    _type("signal.received", "workflow", "server", "A signal from outside arrived for the execution."),
    _type("command.expired", "step", "server", "A lease ran out: its worker was lost."),
    _type("execution.paused", "playbook", "server", "The execution was paused: nothing more is scheduled."),
    _type("execution.resumed", "playbook", "server", "A paused or interrupted execution goes on."),
    _type("execution.cancelled", "playbook", "server", "The execution was cancelled."),
    _type("workflow.finished", "workflow", "server", "No token is left, or a failure ended the workflow."),
    _type("playbook.processed", "playbook", "server", "The execution is over; always the last event."),
)

EVENT_TYPES: Final[dict[str, EventType]] = {each.name: each for each in _TYPES}
"""Every type of the canonical vocabulary, by name, roughly in the order of a run."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event)


def to_line(event: Event) -> bytes:
    """The event as one line of JSON with every field of the envelope, line end included."""
    return _ENCODER.encode(msgspec.structs.asdict(event)) + b"\n"


def from_line(line: bytes | str) -> Event:
    """The event on one line; msgspec.DecodeError where it is none. Keys it does not know are left out."""
    return _DECODER.decode(line)
