"""The one model of a playbook, whatever dialect it was written in.

A step takes a token in (admission, join, args), runs a body, and sends tokens out (router).
The body is a tree of four node types: Task calls a tool, Block repeats or groups nodes, Parallel
runs nodes side by side, and Case reacts to the moments of a call. Everything is frozen; strings
that hold a template are `Template` objects, all other data is plain. `at` is where a thing stands
in its file. Nothing here knows a dialect: `Playbook.dialect` is a name to show, never to ask.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from noetl.playbook.diagnostics import Position
from noetl.template import Template

Value: TypeAlias = Any
"""Plain data (None, bool, int, float, str, list, dict) whose templated strings are `Template`."""

Guard: TypeAlias = Template | bool
Duration: TypeAlias = float | Template
"""Seconds."""
Count: TypeAlias = int | Template

NOWHERE = Position(0, 0)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What every part of the model is: frozen and built by keyword."""


# --- repeating a call ------------------------------------------------------------------------------


class Backoff(Record, frozen=True):
    """The wait before attempt n+1: `delay` grown by `kind`, at most `max_delay`."""

    kind: Literal["none", "linear", "exponential"] = "none"
    delay: Duration = 0.0
    multiplier: float = 2.0
    max_delay: Duration | None = None
    jitter: bool = False


class Retry(Record, frozen=True):
    """Repeats one call (or, with scope `chain`, a whole action chain) after a failure."""

    max_attempts: Count = 3
    backoff: Backoff = Backoff()
    on: tuple[str | int, ...] = ("error",)
    """`error`, `exception`, or status codes."""
    retry_when: Guard | None = None
    stop_when: Guard | None = None
    scope: Literal["tool", "chain"] = "tool"
    at: Position = NOWHERE


class Poll(Record, frozen=True):
    """Repeats a successful call until `until` holds."""

    until: Guard
    interval: Duration = 1.0
    max_attempts: Count = 60
    deadline: Duration | None = None
    at: Position = NOWHERE


# --- what follows a task ----------------------------------------------------------------------------

Do: TypeAlias = Literal["continue", "skip", "retry", "jump", "break", "fail"]


class Directive(Record, frozen=True):
    """What a rule does: where control goes, and the patches that are applied on the way."""

    do: Do
    attempts: Count = 3
    backoff: Backoff = Backoff()
    to: str | None = None
    set_iter: dict[str, Value] = {}
    set_ctx: dict[str, Value] = {}
    at: Position = NOWHERE


class Rule(Record, frozen=True):
    """`when` is None for `else`."""

    when: Guard | None
    then: Directive
    at: Position = NOWHERE


# --- the body: Task, Block, Parallel, Case ----------------------------------------------------------


class Task(Record, frozen=True, tag="task"):
    """One call of a tool, with everything that decides whether and how often it is called."""

    label: str
    kind: str
    at: Position = NOWHERE
    config: dict[str, Value] = {}
    """The tool's own fields; `args` and `spec` are not among them."""
    config_at: dict[str, Position] = {}
    """Where its fields stand; under `kind`, where the kind is named."""
    first_at: Position = NOWHERE
    """Where its first key stands, which is where something missing is reported."""
    args: Value = {}
    spec: dict[str, Value] = {}
    """The knobs written on this task; `layering.effective_spec` adds the outer ones."""
    rules: tuple[Rule, ...] | None = None
    retry: Retry | None = None
    poll: Poll | None = None
    sink: Sink | None = None
    when: Guard | None = None
    """False: the task is skipped with the result null."""
    on_error: Literal["fail", "continue"] = "fail"


class Sink(Record, frozen=True):
    """A task that stores what the thing it belongs to produced."""

    task: Task
    when: Guard | None = None
    at: Position = NOWHERE


class Loop(Record, frozen=True):
    """Runs what it belongs to once for each element of `source`."""

    source: Value
    iterator: str
    mode: Literal["sequential", "parallel"] = "sequential"
    max_in_flight: Count = 16
    batch_size: Count = 1
    on_error: Literal["fail", "continue"] = "fail"
    execution: Literal["local", "distributed"] | None = None
    reduce: dict[str, str] = {}
    checkpoint: dict[str, Value] = {}
    wrap_scalar: bool = False
    """A source that is not a list is taken as a list of one."""
    spec: dict[str, Value] = {}
    """The task knobs written on this loop."""
    at: Position = NOWHERE
    mode_at: Position = NOWHERE


class Block(Record, frozen=True, tag="block"):
    """A sequence of nodes in a scope of its own, once, or once for each element of a loop."""

    label: str
    body: tuple[Node, ...]
    loop: Loop | None = None
    args: Value = {}
    when: Guard | None = None
    sink: Sink | None = None
    spec: dict[str, Value] = {}
    at: Position = NOWHERE


class ParallelBranch(Record, frozen=True):
    """`after` holds the indexes of the earlier branches whose results this one reads."""

    node: Node
    after: tuple[int, ...] = ()


class Parallel(Record, frozen=True, tag="parallel"):
    """Nodes that start together; the result is that of the last one written."""

    label: str
    branches: tuple[ParallelBranch, ...]
    args: Value = {}
    when: Guard | None = None
    at: Position = NOWHERE


class Case(Record, frozen=True, tag="case"):
    """A call and what to do at its moments: on entry, after the call, on exit, or at any event."""

    call: Task | None
    branches: tuple[CaseBranch, ...]
    mode: Literal["exclusive", "inclusive"] = "exclusive"
    order: Literal["source", "priority"] = "source"
    next_policy: NextPolicy = "end_step"
    on_event: bool = False
    """The step stays open without a worker and sees every event of the execution."""
    timers: dict[str, Duration] = {}
    at: Position = NOWHERE


Node: TypeAlias = Task | Block | Parallel | Case
NextPolicy: TypeAlias = Literal["end_step", "break_chain", "defer"]


class CaseBranch(Record, frozen=True):
    """One entry of a case: `when` is None for `else`."""

    id: str
    when: Guard | None
    every_moment: bool
    """Its guard names `event`, so it is asked at every moment, not only after the call."""
    actions: tuple[Action, ...]
    priority: float = 0
    retry: Retry | None = None
    at: Position = NOWHERE


# --- the actions of a case --------------------------------------------------------------------------


class SetAction(Record, frozen=True, tag="set"):
    """Writes values that live with the step run."""

    values: dict[str, Value]
    at: Position = NOWHERE


class CollectAction(Record, frozen=True, tag="collect"):
    """Adds a value to an accumulator that lives with the step run."""

    source: Value
    into: str
    mode: Literal["append", "extend"] = "append"
    at: Position = NOWHERE


class ResultAction(Record, frozen=True, tag="result"):
    """Sets the result of the step, or of the iteration it runs in."""

    source: Value
    at: Position = NOWHERE


class SinkAction(Record, frozen=True, tag="sink"):
    sink: Sink
    at: Position = NOWHERE


class TaskAction(Record, frozen=True, tag="task"):
    """Runs a named task; its result is visible by that name."""

    task: Task
    at: Position = NOWHERE


class CallAction(Record, frozen=True, tag="call"):
    """Calls the step's tool again, with `overrides` merged into its config."""

    overrides: dict[str, Value]
    at: Position = NOWHERE


class RetryAction(Record, frozen=True, tag="retry"):
    """Repeats the last call."""

    retry: Retry
    at: Position = NOWHERE


class FailAction(Record, frozen=True, tag="fail"):
    message: Value = None
    at: Position = NOWHERE


class SkipAction(Record, frozen=True, tag="skip"):
    at: Position = NOWHERE


class NextAction(Record, frozen=True, tag="next"):
    """The routing intent of a chain; None takes the case's policy."""

    targets: tuple[Target, ...]
    policy: NextPolicy | None = None
    priority: float = 0
    delay: Duration = 0.0
    at: Position = NOWHERE


Action: TypeAlias = (
    SetAction
    | CollectAction
    | ResultAction
    | SinkAction
    | TaskAction
    | CallAction
    | RetryAction
    | FailAction
    | SkipAction
    | NextAction
)


# --- steps and the ways between them -----------------------------------------------------------------


class Target(Record, frozen=True):
    """A step a token is sent to, with the args it takes along."""

    step: str | Template
    args: dict[str, Value] = {}
    carry: bool = True
    """The token keeps the args it already has; `args` overwrite them."""
    at: Position = NOWHERE


class Arc(Record, frozen=True):
    """Sends a token to each of its targets when its guard holds at a step's boundary."""

    targets: tuple[Target, ...]
    when: Guard | None = None
    takes_failure: bool = False
    """The guard is asked at `step.failed` too; if it holds, the failure is handled."""
    at: Position = NOWHERE


class Router(Record, frozen=True):
    mode: Literal["exclusive", "inclusive"] = "exclusive"
    arcs: tuple[Arc, ...] = ()
    at: Position = NOWHERE


class AdmitRule(Record, frozen=True):
    """`when` is None for `else`."""

    when: Guard | None
    allow: bool
    at: Position = NOWHERE


class Join(Record, frozen=True):
    """Where tokens wait for each other.

    `all`, `any` and `active` name the steps tokens come from; `spread` names the one step whose
    per-item tokens meet here, and binds `join_results`.
    """

    mode: Literal["all", "any", "active", "spread"]
    of: tuple[str, ...]
    at: Position = NOWHERE
    of_at: tuple[Position, ...] = ()


class Spread(Record, frozen=True):
    """Sends one token for each element of `source` through the steps that follow."""

    source: Value
    iterator: str
    join: str | None
    """The step where those tokens meet; None: nowhere, each ends on its own."""
    max_in_flight: Count = 16
    at: Position = NOWHERE


class Step(Record, frozen=True):
    name: str
    at: Position = NOWHERE
    description: str | None = None
    admit: tuple[AdmitRule, ...] | None = None
    join: Join | None = None
    args: dict[str, Value] = {}
    loop: Loop | None = None
    spread: Spread | None = None
    body: tuple[Node, ...] = ()
    vars: dict[str, Value] = {}
    sink: Sink | None = None
    on_error: Literal["fail", "ignore"] = "fail"
    binds: str | None = None
    """A second name under which later steps see the result."""
    router: Router = Router()
    spec: dict[str, Value] = {}
    deadline: Duration | None = None
    max_task_runs: Count = 10_000


# --- the playbook ------------------------------------------------------------------------------------


class KeychainEntry(Record, frozen=True):
    """A secret the playbook needs, and how it is found."""

    name: str
    kind: str
    fields: dict[str, Value] = {}
    at: Position = NOWHERE


class Executor(Record, frozen=True):
    profile: Literal["local", "distributed"] | None = None
    version: str | None = None
    spec: dict[str, Value] = {}
    deadline: Duration | None = None


class WorkbookEntry(Record, frozen=True):
    """A named body that tasks of kind `workbook` call."""

    name: str
    body: tuple[Node, ...]
    description: str | None = None
    args: dict[str, Value] = {}
    loop: Loop | None = None
    sink: Sink | None = None
    spec: dict[str, Value] = {}
    at: Position = NOWHERE


class Playbook(Record, frozen=True):
    name: str
    path: str
    dialect: Literal["v1", "v2", "canonical"]
    entry: str
    metadata: dict[str, Value] = {}
    keychain: tuple[KeychainEntry, ...] = ()
    executor: Executor = Executor()
    workload: dict[str, Value] = {}
    workbook: tuple[WorkbookEntry, ...] = ()
    steps: tuple[Step, ...] = ()
