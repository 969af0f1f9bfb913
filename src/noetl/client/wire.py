"""What the HTTP API takes and answers, where it is not already a record that crosses other boundaries.

Server and client share these structs, so neither can say what the other does not understand. A request
refuses fields it does not know, unless a worker asks; an answer may have more than its reader knows. Users'
own data stands in `payload`, `result` and `ctx`, and in fields that hold any JSON value. What workers say is
in `wire_work`, what is said about tokens and credentials in `wire_access`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from noetl.playbook.diagnostics import Diagnostic
from noetl.records.event import EntityType, EventSource, EventStatus

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Path: TypeAlias = Annotated[str, Meta(min_length=1, max_length=500)]
Key: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
ExecutionId: TypeAlias = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,18}$")]
Version: TypeAlias = Annotated[int, Meta(ge=1, le=2_147_483_647)]
Place: TypeAlias = Annotated[int, Meta(ge=0, le=9_007_199_254_740_991)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=3_600)]
Secrets: TypeAlias = Annotated[dict[Key, Annotated[str, Meta(max_length=65_536)]], Meta(max_length=100)]
"""By the name of the variable."""

Vocabulary: TypeAlias = Literal["canonical", "v2"]
GraphFormat: TypeAlias = Literal["json", "text", "mermaid", "dot", "svg"]
ExecutionStatus: TypeAlias = Literal["requested", "running", "paused", "completed", "failed", "cancelled"]


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every request body is."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer is."""


# --- errors ----------------------------------------------------------------------------------------------


class FieldProblem(Answer, frozen=True, kw_only=True):
    """One thing that is wrong with a request, and where."""

    message: str
    field: str | None = None
    source: str | None = None
    """`body`, `query`, `header` or `path`."""


class Problem(Answer, omit_defaults=True, frozen=True, kw_only=True):
    """An error as RFC 9457 has it; `code` is stable, the texts are not."""

    title: str
    status: int
    code: str
    type: str = "about:blank"
    detail: str | None = None
    instance: str | None = None
    """The id of the request, as the server's log has it."""
    errors: tuple[FieldProblem, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    """Of a playbook that cannot be registered."""


# --- the server itself -------------------------------------------------------------------------------------


class Health(Answer, frozen=True, kw_only=True):
    status: Literal["ok"] = "ok"
    version: str
    protocol: int


class Check(Answer, frozen=True, kw_only=True):
    name: str
    ok: bool
    detail: str | None = None


class Readiness(Answer, frozen=True, kw_only=True):
    ready: bool
    checks: tuple[Check, ...]


# --- the catalog --------------------------------------------------------------------------------------------


class PlaybookSource(Asked, frozen=True, kw_only=True):
    """The YAML text of a playbook; its path and name stand in it."""

    source: Annotated[str, Meta(min_length=1)]


class CatalogRow(Answer, frozen=True, kw_only=True):
    path: str
    version: int
    name: str
    dialect: str
    digest: str
    registered_at: str


class Registered(CatalogRow, frozen=True, kw_only=True):
    warnings: tuple[Diagnostic, ...] = ()


class CatalogText(CatalogRow, frozen=True, kw_only=True):
    source: str


class CatalogPage(Answer, frozen=True, kw_only=True):
    entries: tuple[CatalogRow, ...]


# --- executions ---------------------------------------------------------------------------------------------


class StartRequest(Asked, frozen=True, kw_only=True):
    """A playbook by `playbook_id` (`path` or `path@version`) or by `path` and `version`."""

    playbook_id: Path | None = None
    path: Path | None = None
    version: Version | None = None
    payload: dict[str, Any] = {}
    idempotency_key: Key | None = None
    """A second request with the same key is answered with the execution of the first."""
    parent_execution_id: ExecutionId | None = None
    secrets: Secrets = {}
    """Values for variables that the playbook's keychain names, used and kept for this execution alone."""

    def __repr__(self) -> str:
        """Without the secrets: a request must not bring them into a log by accident."""
        return f"StartRequest(path={self.path or self.playbook_id!r}, secrets of {sorted(self.secrets)})"


class Started(Answer, frozen=True, kw_only=True):
    execution_id: str


class RetryRequest(Asked, frozen=True, kw_only=True):
    """From which step an execution that is over is run again, and what is changed."""

    step: Name | None = None
    """None: the step that failed."""
    failed_items: bool = False
    """Of a loop, only what failed or never ran."""
    payload: dict[str, Any] = {}
    """Workload keys that are changed."""
    source: Annotated[str, Meta(min_length=1)] | None = None
    """An edited playbook to go on with."""
    secrets: Secrets = {}
    """As in `StartRequest`."""

    def __repr__(self) -> str:
        return f"RetryRequest(step={self.step!r}, secrets of {sorted(self.secrets)})"


class CancelRequest(Asked, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=2_000)] | None = None


class SignalRequest(Asked, frozen=True, kw_only=True):
    name: Name
    payload: Any = None


class OutsideEvent(Asked, frozen=True, kw_only=True):
    """Something that happened outside; the execution takes it as a signal of that name."""

    execution_id: ExecutionId
    name: Name
    step: Name | None = None
    payload: dict[str, Any] = {}


class Accepted(Answer, frozen=True, kw_only=True):
    execution_id: str
    status: str
    """Of the execution, after what was asked for."""


class ErrorView(Answer, frozen=True, kw_only=True):
    kind: str | None = None
    message: str | None = None
    step: str | None = None
    task: str | None = None
    retryable: bool = False
    details: Any = None


class PlaybookView(Answer, frozen=True, kw_only=True):
    name: str
    path: str
    version: int
    dialect: str


class ExecutionSummary(Answer, frozen=True, kw_only=True):
    execution_id: str
    status: str
    playbook: PlaybookView
    started_at: str
    finished_at: str | None = None
    parent_execution_id: str | None = None
    error: ErrorView | None = None


class ExecutionPage(Answer, frozen=True, kw_only=True):
    executions: tuple[ExecutionSummary, ...]
    cursor: str | None = None
    """What gets the next page; None: this was the last one."""


class LoopProgress(Answer, frozen=True, kw_only=True):
    """How far the open loop of a step is."""

    total: int
    done: int
    failed: int
    in_flight: int


class WaitsView(Answer, frozen=True, kw_only=True):
    """What work of a step waits for, without a worker: the first of these brings it back."""

    until: float | None = None
    """A moment, in seconds since 1970."""
    signals: tuple[str, ...] = ()
    questions: dict[str, str] = {}
    """What a person is asked, by the signal that answers it."""
    children: tuple[str, ...] = ()
    """Executions that were started by it."""


class StepView(Answer, frozen=True, kw_only=True):
    name: str
    status: str
    runs: int
    result: Any = None
    error: ErrorView | None = None
    duration_ms: float | None = None
    loop: LoopProgress | None = None
    waits: tuple[WaitsView, ...] = ()


class StepList(Answer, frozen=True, kw_only=True):
    execution_id: str
    steps: tuple[StepView, ...]


class ExecutionView(ExecutionSummary, frozen=True, kw_only=True):
    """All that is known of an execution; stored results stand as their references."""

    duration_ms: float | None = None
    workload: Any = None
    ctx: Any = None
    vars: Any = None
    steps: tuple[StepView, ...] = ()
    result: Any = None


class ResultView(Answer, frozen=True, kw_only=True):
    execution_id: str
    step: str | None = None
    result: Any = None


class GraphNodeView(Answer, frozen=True, kw_only=True):
    name: str
    role: str
    is_entry: bool
    marks: tuple[str, ...]
    tasks: tuple[str, ...]
    status: str | None = None
    runs: int = 0


class GraphEdgeView(Answer, frozen=True, kw_only=True):
    source: str
    target: str
    label: str
    route: str
    forks: bool


class GraphView(Answer, frozen=True, kw_only=True):
    name: str
    dialect: str
    nodes: tuple[GraphNodeView, ...]
    edges: tuple[GraphEdgeView, ...]


class EventView(Answer, frozen=True, kw_only=True):
    """The envelope of an event. In the words of v2 `task_run_id` is called `tool_run_id`."""

    event_id: str
    execution_id: str
    seq: int
    event_type: str
    timestamp: str
    source: EventSource
    entity_type: EntityType
    entity_id: str
    status: EventStatus
    parent_id: str | None = None
    workflow_run_id: str | None = None
    step: str | None = None
    step_run_id: str | None = None
    task_run_id: str | UnsetType | None = UNSET
    tool_run_id: str | UnsetType | None = UNSET
    task_label: str | None = None
    iteration_id: str | None = None
    iteration: int | None = None
    attempt: int | None = None
    page: int | None = None
    action_id: str | None = None
    payload: dict[str, Any] = {}


class EventPage(Answer, frozen=True, kw_only=True):
    events: tuple[EventView, ...]
    after: int
    """The place in the log up to which this page goes: where the next one begins."""
    more: bool
    """Whether the log has more by now."""


# --- variables and templates --------------------------------------------------------------------------------


class VariableValue(Asked, frozen=True, kw_only=True):
    value: Any = None


class Variable(Answer, frozen=True, kw_only=True):
    name: str
    value: Any = None


class VariableList(Answer, frozen=True, kw_only=True):
    execution_id: str
    variables: tuple[Variable, ...]


class RenderRequest(Asked, frozen=True, kw_only=True):
    """A value whose texts are templates, to be rendered with what an execution has by now."""

    execution_id: ExecutionId
    template: Any
    payload: dict[str, Any] = {}
    """Names that the templates see besides."""


class Rendered(Answer, frozen=True, kw_only=True):
    execution_id: str
    result: Any = None
