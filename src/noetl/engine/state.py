"""What an execution is at any moment: the fold of its log.

Only `fold.py` changes a state, and only by an event, so replaying the log gives the same state again.
What is finished is forgotten down to what templates can still read: the size of a state depends on
what is open, never on how much has happened.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

Data: TypeAlias = dict[str, Any]
ExecutionStatus: TypeAlias = Literal["requested", "running", "paused", "completed", "failed", "cancelled"]
StepStatus: TypeAlias = Literal["done", "failed", "skipped", "cancelled", "running"]
Phase: TypeAlias = Literal["enter", "call", "after", "waiting", "exit", "end"]

SCHEMA_VERSION = 1


class Part(msgspec.Struct, kw_only=True):
    """What every part of a state is: plain data that a snapshot can hold."""


class BlockFrame(Part):
    """A loop inside a pipeline: its elements, and the iterations that are open."""

    items: Any
    """The elements, or the reference to them."""
    total: int
    cursor: int = 0
    """No iteration from here on has begun."""
    behind: list[int] = []
    """Iterations before the cursor that have not begun: others were reported first."""
    open: dict[int, Frame] = {}
    results: dict[int, Any] = {}
    error: Data | None = None
    """Of the first iteration that failed."""
    args: Any = {}
    """What the pipelines inside see as their arguments."""
    written: Data = {}
    """What its finished iterations wrote to `ctx`, without a reducer."""
    reduce: dict[str, str] = {}
    """The reducers of keys of `ctx`, where its iterations run at once and no loop around it has one."""
    noted: dict[int, dict[str, list[Any]]] = {}
    """What its finished iterations wrote to those keys: combined when the block ends."""


class CaseFrame(Part):
    """Where a case stands: which moment, which chains are still to run, and what they decided so far."""

    phase: Phase = "enter"
    asked: bool = False
    """The branches of this phase were selected: those that are left stand in the queue."""
    told: int = 0
    """How often the case was recorded."""
    event: str = ""
    """The moment whose chains are running: `step.enter`, `call.done`, `call.error`, `step.exit`."""
    queue: list[int] = []
    """The branches that were selected at this moment and have not ended, the running one first."""
    action: int = 0
    """The next action of the running chain."""
    chain_attempt: int = 1
    matched: list[int] = []
    """The branches that were selected at this moment."""
    epoch: int = 0
    """How often branches were selected."""
    calls: int = 0
    page: int = 0
    """How often a chain has asked for another call: which page of a pagination it is."""
    call_attempt: int = 1
    """Attempts of the current call by the retry action."""
    again: Data = {}
    """What a chain asked for: the call once more, after the other selected branches."""
    visits: dict[str, list[int]] = {}
    """Of calls that may be made again as the same action: their entry, and the attempts so far."""
    overrides: Data = {}
    outcome: Data | None = None
    """Of the last call."""
    handled: bool = False
    """A failed call was answered by `result` or `skip`: it is no failure any more."""
    result: list[Any] = []
    """One element where an action set the result."""
    routes: list[Data] = []
    skipped: bool = False
    seen: int = 0
    """The place in the log of the last event a waiting case has looked at."""


class Frame(Part):
    """Where one pipeline stands: a step run without a loop, or one iteration."""

    position: int = 0
    """The index of the task that is next, or running."""
    attempt: int = 1
    entry: int = 1
    """How often control has entered a task: each entry is a task run of its own."""
    task_runs: int = 0
    prev: Any = None
    iter: Data = {}
    results: Data = {}
    """The last result of each task, by its label."""
    last: str | None = None
    """The label of the task that was executed last."""
    writes: Data = {}
    """What a parallel iteration wrote to `ctx`: applied when it ends."""
    reduced: dict[str, list[Any]] = {}
    """What it wrote to keys of `ctx` that have a reducer: every write counts, combined where that can be."""
    polls: int = 0
    """How often a poll has looked without finding what it waits for."""
    polled_since: float | None = None
    since: float | None = None
    """When the running task began, in seconds since 1970: a wait goes on from there."""
    begun: str = ""
    """The start that was told of last: which attempt of which call began when."""
    wake_at: float | None = None
    """A retry waits until then, in seconds since 1970."""
    block: BlockFrame | None = None
    case: CaseFrame | None = None
    values: Data = {}
    """What `set` and `collect` hold: it lives with the step run."""
    stored: bool = False
    """The step's sink has run."""
    sink_attempt: int = 1
    """Attempts of the sink that is running."""
    kept: bool = False
    """The step's variables were set."""
    lease: int = 0
    """Of an iteration of the step's loop: which of the loop's leases runs it."""


class LoopRun(Part):
    """The iterations of a loop step. Finished ones leave only counts, and their results in the log."""

    items: Any
    """The elements, or the reference to them."""
    total: int
    parallel: bool
    keeps_going: bool
    """A failed iteration does not end the loop."""
    widths: list[int] = msgspec.field(default_factory=lambda: [1])
    """For each lease of the loop, how many of its iterations may run at once."""
    batch: int = 1
    """How many iterations a lease is given at a time."""
    cursor: int = 0
    """No iteration from here on has begun."""
    behind: list[int] = []
    """Iterations before the cursor that have not begun: others were reported first."""
    open: dict[int, Frame] = {}
    done: int = 0
    failed: int = 0
    results: dict[int, Any] | None = {}
    """Finished results while they are small together; None: only the log has them."""
    results_size: int = 0
    written: Data = {}
    """What finished parallel iterations wrote to `ctx`, without a reducer."""
    applied: int = 0
    """The first iteration whose reduced writes are not in `ctx` yet."""
    collected: dict[int, Data] = {}
    """What `set` and `collect` held in each finished parallel iteration."""
    reduce: dict[str, str] = {}
    """The reducers of keys of `ctx`."""
    closing: Data | None = None
    """A way out that ended the loop early, with the result that was set for the step."""
    waiting: dict[int, Data] = {}
    """Reduced writes that wait for those of earlier iterations."""


class Waits(Part):
    """What a parked lease waits for: the first of these brings it back."""

    until: float | None = None
    """A moment, in seconds since 1970."""
    signals: list[str] = []
    questions: dict[str, str] = {}
    """What a person is asked, by the signal that answers it."""
    children: list[str] = []
    events: int | None = None
    """Anything a waiting step can hear of that comes after this place in the log."""
    timers: dict[str, float] = {}
    """Timers of the step that go off at a moment."""


class SpreadRun(Part):
    """A step that sends one token for each element, and waits for them."""

    items: Any
    """The elements, or the reference to them."""
    total: int
    iterator: str
    join: str | None
    width: int
    cursor: int = 0
    """The first element whose token has not been sent."""
    arrived: dict[int, list[tuple[int, Any]]] = {}
    """What came to the join, by index: of each token the place of the step it came from, and its result.

    An item that ended elsewhere is not there.
    """


class StepRun(Part):
    """A step that was admitted and has not ended."""

    run_id: str
    step: str
    scope: str
    args: Data
    scheduled_at: str
    opened: int = 0
    """The place in the log where it was scheduled."""
    event: Data | None = None
    """The boundary event that led here."""
    started_at: str | None = None
    frame: Frame = msgspec.field(default_factory=Frame)
    loop: LoopRun | None = None
    spread: SpreadRun | None = None
    fired: dict[str, int] = {}
    """The timers of the step that have gone off."""
    losses: dict[int, int] = {}
    """How often each lease, by number, was lost in a row without a finished task."""
    deadline: float | None = None
    """When it must be over, in seconds since 1970."""
    parked: dict[int, Waits] = {}
    """The leases that were given back because all they had left was waiting, by number."""

    @property
    def leases(self) -> range:
        """The numbers of its leases: a loop may have several."""
        return range(1 if self.loop is None else len(self.loop.widths))


class Token(Part):
    """A token on its way: to be admitted, or waiting at a join."""

    token_id: str
    step: str
    args: Data
    scope: str = ""
    origin: str | None = None
    """The step it came from."""
    event: Data | None = None
    not_before: float | None = None
    """It waits until then, in seconds since 1970."""


class StepResult(Part):
    """The last run of a step, as later templates see it."""

    status: StepStatus
    runs: int = 0
    result: Any = None
    error: Data | None = None
    results: Data = {}
    duration_ms: float | None = None
    seq: int = 0
    """The place of its boundary in the log."""


class State(Part):
    """One execution."""

    execution_id: str
    schema: int = SCHEMA_VERSION
    seq: int = 0
    status: ExecutionStatus = "requested"
    requested_at: str = ""
    finished_at: str | None = None
    payload: Data = {}
    workload: Data = {}
    ctx: Data = {}
    vars: Data = {}
    runs: dict[str, StepRun] = {}
    tokens: dict[str, Token] = {}
    owed: dict[str, dict[str, int]] = {}
    """For each join of mode `any`: how many tokens of each origin are to be discarded."""
    mailbox: dict[int, Data] = {}
    """Signals that nobody has taken yet, by their place in the log: `name` and `data`."""
    steps: dict[str, StepResult] = {}
    """By step and, inside a spread, by scope: `name` or `name@scope`."""
    heard: int = 0
    """The place of the last event that a waiting step can hear of."""
    deadline: float | None = None
    """When the execution must be over, in seconds since 1970."""
    next_run: int = 1
    next_token: int = 1
    error: Data | None = None
    result: Any = None
    result_step: str | None = None
    origin: Data | None = None
    """The execution this one repeats, and from where."""
    trace: str | None = None
    """The W3C trace context of whoever asked for it."""

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")
