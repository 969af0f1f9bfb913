"""What `/metrics` shows: counters filled by the events this replica commits, and the queue when it is asked.

Nothing here decides anything or fails a request. An event does not say which kind of tool a task is: that
stands in the playbook, so tasks of an execution that is not known yet wait until the page is asked for.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from noetl.playbook.model import Block, Case, Node, Parallel, Playbook, Task, TaskAction
from noetl.records.event import Event
from noetl.store.protocol import QueueCount

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST.partition("; charset")[0]
"""Without its charset, which is added to every text that is answered."""
MOST_EXECUTIONS: Final = 10_000
MOST_WAITING: Final = 50_000
TASK_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
DECIDE_SECONDS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
REQUEST_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)

TaskKinds: TypeAlias = Mapping[tuple[str, str], str]
"""The kind of each task of a playbook, by step and label."""
KindsOf = Callable[[str], Awaitable[TaskKinds | None]]


class _Done(NamedTuple):
    execution_id: str
    step: str
    label: str
    seconds: float
    failed: bool


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made = self.registry
        self._events = Counter(
            "noetl_events", "Events this replica has committed.", ["event_type"], registry=made
        )
        self._expiries = Counter(
            "noetl_lease_expiries", "Leases that ran out because their worker was lost.", registry=made
        )
        self._decide = Histogram(
            "noetl_decide_seconds", "Deciding on one change.", buckets=DECIDE_SECONDS, registry=made
        )
        self._tasks = Histogram(
            "noetl_task_seconds", "Attempts at tasks.", ["kind"], buckets=TASK_SECONDS, registry=made
        )
        self._failures = Counter("noetl_task_failures", "Attempts that failed.", ["kind"], registry=made)
        self._executions = Counter("noetl_executions", "Executions that are over.", ["status"], registry=made)
        self._depth = Gauge("noetl_queue_depth", "Commands in the queue.", ["pool", "state"], registry=made)
        self._age = Gauge(
            "noetl_queue_age_seconds", "How long the oldest free command waits.", ["pool"], registry=made
        )
        self._requests = Histogram(
            "noetl_request_seconds",
            "Requests to the HTTP API.",
            ["method", "route", "status"],
            buckets=REQUEST_SECONDS,
            registry=made,
        )
        # Looking up what labels stand for costs more than counting.
        self._events_of: dict[str, Counter] = {}
        self._requests_of: dict[tuple[str, str, int], Histogram] = {}
        self._kinds: OrderedDict[str, TaskKinds] = OrderedDict()
        self._waiting: deque[_Done] = deque(maxlen=MOST_WAITING)

    def event(self, event: Event) -> None:
        counter = self._events_of.get(event.event_type)
        if counter is None:
            counter = self._events_of[event.event_type] = self._events.labels(event.event_type)
        counter.inc()
        match event.event_type:
            case "command.expired":
                self._expiries.inc()
            case "task.done":
                self._task_done(event)
            case "playbook.processed":
                self._executions.labels(str(event.payload.get("status", event.status))).inc()
                self._kinds.pop(event.execution_id, None)

    def decided(self, seconds: float) -> None:
        self._decide.observe(seconds)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        timer = self._requests_of.get((method, route, status))
        if timer is None:
            timer = self._requests_of[method, route, status] = self._requests.labels(
                method, route, str(status)
            )
        timer.observe(seconds)

    def _task_done(self, event: Event) -> None:
        outcome: Mapping[str, Any] = event.payload.get("outcome") or {}
        meta: Mapping[str, Any] = outcome.get("meta") or {}
        seconds = float(meta.get("duration_ms") or 0.0) / 1000
        done = _Done(
            event.execution_id, str(event.step), str(event.task_label), seconds, event.status == "error"
        )
        kinds = self._kinds.get(event.execution_id)
        if kinds is None:
            self._waiting.append(done)
        else:
            self._observe(done, kinds)

    def _observe(self, done: _Done, kinds: TaskKinds) -> None:
        kind = kinds.get((done.step, done.label), "unknown")
        self._tasks.labels(kind).observe(done.seconds)
        if done.failed:
            self._failures.labels(kind).inc()

    async def settle(self, kinds_of: KindsOf) -> None:
        """Counts the tasks that wait for their playbook to be known."""
        while self._waiting:
            done = self._waiting.popleft()
            kinds = self._kinds.get(done.execution_id)
            if kinds is None:
                kinds = self._kinds[done.execution_id] = await kinds_of(done.execution_id) or {}
                if len(self._kinds) > MOST_EXECUTIONS:
                    self._kinds.popitem(last=False)
            self._observe(done, kinds)

    def queue(self, counted: list[QueueCount], now: float) -> None:
        """Takes the queue as it is now."""
        self._depth.clear()
        self._age.clear()
        for each in counted:
            self._depth.labels(each.pool, each.state).set(each.depth)
            if each.oldest is not None:
                self._age.labels(each.pool).set(max(0.0, now - each.oldest))

    def page(self) -> bytes:
        return generate_latest(self.registry)


def task_kinds(playbook: Playbook) -> TaskKinds:
    """The kind of every task in a playbook, those inside blocks, parallels and cases included."""
    found: dict[tuple[str, str], str] = {}
    for step in playbook.steps:
        pending: list[Node] = list(step.body)
        while pending:
            node = pending.pop()
            if isinstance(node, Task):
                found[step.name, node.label] = node.kind
            elif isinstance(node, Block):
                pending += node.body
            elif isinstance(node, Parallel):
                pending += [branch.node for branch in node.branches]
            else:
                pending += _of_case(node)
    return found


def _of_case(node: Case) -> list[Node]:
    called: list[Node] = [] if node.call is None else [node.call]
    return called + [
        action.task for branch in node.branches for action in branch.actions if isinstance(action, TaskAction)
    ]
