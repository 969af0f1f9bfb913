"""What must be true of every execution, by name; `docs/engine.md` says the same in prose.

The watcher sees each commit and each call of a tool, and compares what it knows from the log alone with what
the engine has in memory.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from noetl.engine.fold import fold
from noetl.engine.limits import EVENT_BYTES
from noetl.engine.state import State
from noetl.playbook.load import Loaded
from noetl.records.command import HeldLease
from noetl.records.event import Event
from noetl.records.report import LeaseReport, ReportedEvent, Verdict
from noetl.store.codec import decode_event, encode_event

Holds = Callable[[HeldLease], bool]
"""Whether a lease is the current one of its command."""


class Flight(NamedTuple):
    """A call that has not ended."""

    lease: HeldLease
    run_id: str
    iteration: str


RUN_ENDS = ("step.done", "step.failed", "step.skipped", "loop.done")


class Violation(AssertionError):  # noqa: N818 - it is one, not an error in the code that finds it
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def require(holds: bool, invariant: str, what: str) -> None:
    if not holds:
        raise Violation(invariant, what)


INVARIANTS = {
    "log.dense": "the events of an execution are numbered from 1 without gaps",
    "event.small": "no payload of an event is above 64 KiB",
    "replay.equals.live": "folding the log from nothing gives the live state, byte for byte",
    "replay.from.snapshot": "folding the rest of the log onto any earlier state gives the same",
    "token.once": "a token is made once and consumed at most once; those that are left are in the state",
    "run.ends.once": "a scheduled step run ends exactly once, or is revoked by the end of the execution",
    "finished.once": "`workflow.finished` comes once if the workflow began, and `playbook.processed` last",
    "nothing.after.the.end": "nothing is appended to an execution that is over",
    "in.flight": "a step has at most as many calls in flight, over all leases, as `max_in_flight` allows",
    "iteration.once": "no iteration is run under two leases that both hold",
    "done.is.done": "a task whose `task.done` is committed is never run again",
    "values.whole": "a tool is given values, never references to them",
    "calls.bounded": "a task is called at most once more for each crash and each lost lease",
    "never.stuck": "an execution that is not over has something runnable, leased, timed or declared waiting",
    "repeated.reports": "a report that comes again, or late, changes nothing",
    "stale.refused": "a report under a lease that is over is refused",
    "signal.once": "a signal is used at most once",
    "loop.in.order": "the result of a loop has the results of its iterations in index order",
    "cancel.ends": "a cancelled execution is over once that is answered; soon nothing of it runs or waits",
    "same.outcome": "crashes and delays do not change the outcome where the language fixes it",
}


class Watcher:
    def __init__(self, tally: Counter[str], chance: random.Random) -> None:
        self.tally = tally
        self.has_cases = False
        """Dialect v2: a case may replace the result of a loop."""
        self._chance = chance
        self._replica: State | None = None
        self._from_snapshot: State | None = None
        self._tokens: set[str] = set()
        self._consumed: set[str] = set()
        self._open: dict[str, str] = {}
        self._ended: set[str] = set()
        self._iterations: dict[str, dict[int, Any]] = {}
        self._done: set[tuple[str, int]] = set()
        self._calls: Counter[tuple[str, int]] = Counter()
        self._flights: dict[object, Flight] = {}
        self._signals: set[int] = set()
        self._troubles = 0
        self._parks = 0
        self._finished = 0
        self._over = False
        self.events: list[Event] = []

    # --- commits ------------------------------------------------------------------------------------------

    def committed(self, events: Sequence[Event], live: State | None, loaded: Loaded) -> None:
        self.has_cases = loaded.dialect != "canonical"
        for event in events:
            stored = decode_event(encode_event(event))
            self._event(stored)
            self._count(stored, loaded)
        assert self._replica is not None
        replica = msgspec.msgpack.encode(self._replica)
        if live is not None:
            same = replica == msgspec.msgpack.encode(live)
            require(same, "replay.equals.live", "" if same else _difference(self._replica, live))
        if self._from_snapshot is not None:
            require(replica == msgspec.msgpack.encode(self._from_snapshot), "replay.from.snapshot", "")
        if self._chance.randint(0, 4) == 0:
            self._from_snapshot = msgspec.msgpack.decode(replica, type=State)
        if not self._replica.is_over:
            held, left = set(self._replica.tokens), self._tokens - self._consumed
            require(held == left, "token.once", f"in the state {sorted(held)}, in the log {sorted(left)}")
            require(set(self._replica.runs) == set(self._open), "run.ends.once", "open runs differ")

    def _event(self, event: Event) -> None:
        if self._replica is None:
            self._replica = State(execution_id=event.execution_id)
        self.events.append(event)
        require(event.seq == len(self.events), "log.dense", f"{event.seq} after {len(self.events) - 1}")
        size = len(msgspec.json.encode(event.payload))
        require(size <= EVENT_BYTES, "event.small", f"{event.event_type} has {size} bytes")
        require(not self._over, "nothing.after.the.end", event.event_type)
        fold(self._replica, event)
        if self._from_snapshot is not None:
            fold(self._from_snapshot, event)
        self._follow_tokens(event)
        self._follow_runs(event)
        if event.event_type == "task.done":
            self.note_done(str(event.action_id), int(event.attempt or 0))
        elif event.event_type == "command.expired":
            self._troubles += 1
        elif event.event_type == "step.paused":
            self._parks += 1
        if event.event_type == "task.done" and "signal" in event.payload:
            place = event.payload["signal"]
            require(place not in self._signals, "signal.once", f"{place} by {event.step} and before")
            self._signals.add(place)

    @property
    def state(self) -> State:
        """The fold of the log so far."""
        assert self._replica is not None
        return self._replica

    def _follow_tokens(self, event: Event) -> None:
        payload = event.payload
        made = [entry["token"] for entry in payload.get("tokens", ()) if isinstance(entry, dict)]
        if event.event_type == "next.evaluated":
            made = [entry["token"] for entry in payload["selected"] if "token" in entry]
        for token in made:
            require(token not in self._tokens, "token.once", f"token {token} was made twice")
            self._tokens.add(token)
        if event.event_type in ("step.scheduled", "step.skipped"):
            for token in (*payload.get("tokens", ()), *payload.get("discarded", ())):
                known = token in self._tokens and token not in self._consumed
                require(known, "token.once", f"token {token} was consumed twice, or never made")
                self._consumed.add(token)

    def _follow_runs(self, event: Event) -> None:
        run_id = str(event.step_run_id)
        kind = event.event_type
        if kind == "step.scheduled":
            require(run_id not in self._open | dict.fromkeys(self._ended, ""), "run.ends.once", run_id)
            self._open[run_id] = str(event.step)
        elif kind == "step.skipped" and event.step_run_id is None:
            pass  # a token that was not admitted: there is no run
        elif kind in RUN_ENDS and "block" not in event.payload:
            require(self._open.pop(run_id, None) is not None, "run.ends.once", f"{run_id} ended twice")
            self._ended.add(run_id)
            if kind == "loop.done" and not self.has_cases:
                self._check_loop(event)
        elif kind == "loop.iteration.done" and "block" not in event.payload:
            self._iterations.setdefault(run_id, {})[int(event.iteration or 0)] = event.payload.get("result")
        elif kind == "workflow.finished":
            self._finished += 1
            require(self._finished == 1, "finished.once", "twice")
            self._open.clear()
        elif kind == "playbook.processed":
            self._over = True

    def _check_loop(self, event: Event) -> None:
        result = event.payload["result"]
        ended = self._iterations.get(str(event.step_run_id))
        if isinstance(result, list) and ended:
            expected = [ended.get(index) for index in range(len(result))]
            require(result == expected, "loop.in.order", f"{result} instead of {expected}"[:500])

    def _count(self, event: Event, loaded: Loaded) -> None:
        self.tally[f"event: {event.event_type}"] += 1
        if event.event_type == "task.done":
            self.tally[f"directive: {event.payload['then']['do']}"] += 1
        elif event.event_type == "loop.started":
            where = "block" if "block" in event.payload else event.payload.get("mode", "spread")
            self.tally[f"loop: {where}"] += 1
        elif event.event_type == "step.scheduled" and loaded.playbook is not None:
            step = next(each for each in loaded.playbook.steps if each.name == event.step)
            if step.join is not None:
                self.tally[f"join: {step.join.mode}"] += 1
        elif event.event_type == "step.paused":
            for name in event.payload["waits"]:
                self.tally[f"park: for {name}"] += 1
        elif event.event_type == "step.resumed":
            self.tally[f"park: back by {event.payload['cause']}"] += 1
        elif event.event_type == "next.evaluated":
            self.tally[f"routing: {event.payload.get('mode', 'by a case')}"] += 1

    # --- calls ----------------------------------------------------------------------------------------------

    def call_begins(
        self, call: Any, key: object, lease: Any, holds: Holds, *, is_zombie: bool, waits: bool
    ) -> None:
        task = f"{call.step}/{call.task_label}"
        self.note_call(call.action_id, call.attempt, task, is_zombie=is_zombie, waits=waits)
        require(b'"result_ref"' not in msgspec.json.encode(call.args), "values.whole", str(call.args)[:300])
        self._flights[key] = Flight(lease.held, lease.run_id, call.task_run_id.rpartition(":")[0])
        self.tally["calls"] += 1
        if not is_zombie:
            self._check_flights(lease, holds)

    def _check_flights(self, lease: Any, holds: Holds) -> None:
        """Those of leases that are over do not count: nobody hears of what they do."""
        mine = [each for each in self._flights.values() if each.run_id == lease.run_id and holds(each.lease)]
        leases: dict[str, set[str]] = {}
        for each in mine:
            leases.setdefault(each.iteration, set()).add(each.lease.command_id)
        twice = [iteration for iteration, found in leases.items() if len(found) > 1]
        require(not twice, "iteration.once", f"{twice} under {leases}")
        width = self._width(lease)
        if width is not None:
            require(len(mine) <= width, "in.flight", f"{len(mine)} of {width} in {lease.step.name}")
            if len({each.lease.command_id for each in mine}) > 1:
                self.tally["loops under several leases at once"] += 1

    def _width(self, lease: Any) -> int | None:
        """How many calls a step may have in flight: one, or as many as its loop allows."""
        if any(getattr(node, "kind", "workbook") == "workbook" for node in lease.step.body):
            return None  # blocks, branches and what the workbook has: they have widths of their own
        run = self.state.runs.get(lease.run_id)
        return 1 if run is None or run.loop is None else sum(run.loop.widths)

    def note_done(self, action_id: str, attempt: int) -> None:
        self._done.add((action_id, attempt))

    def note_call(
        self, action_id: str, attempt: int, task: str, *, is_zombie: bool = False, waits: bool = False
    ) -> None:
        """A worker that was given up may not know it yet: its calls are bounded, but it may repeat one.

        A call that only waits is taken up again whenever its lease has been parked.
        """
        key = (action_id, attempt)
        require(is_zombie or key not in self._done, "done.is.done", f"{task} attempt {attempt}")
        self._calls[key] += 1
        most = 1 + self._troubles + (self._parks if waits else 0)
        require(self._calls[key] <= most, "calls.bounded", f"{task}: {self._calls[key]} calls")

    def call_ends(self, key: object) -> None:
        self._flights.pop(key, None)

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    # --- troubles -------------------------------------------------------------------------------------------

    def process_died(self) -> None:
        self._troubles += 1
        self._flights.clear()

    def lease_lost(self) -> None:
        self._troubles += 1

    def report_came_again(self, report: LeaseReport, verdict: Verdict, before: int) -> None:
        told = [event.event_type for event in report.events]
        keys = {_identity(event) for event in report.events}
        again = [event for event in self.events[before:] if _identity(event) in keys]
        if self.has_cases or self._troubles:
            # A start by itself moves nothing; that of a call which was begun before is not known again.
            again = [event for event in again if not event.event_type.endswith(".started")]
        if all(event.event_type == "ctx.patched" for event in again) and len(told) > 1:
            again = []  # another iteration may write the very same; were it this one's, more would be there
        shown = [(event.seq, event.event_type) for event in again]
        require(not again, "repeated.reports", f"{told} was taken twice as {shown} ({verdict.verdict})")

    def ended(self, state: State | None = None) -> None:
        """The execution is over; `state` is what the engine has of it."""
        assert self._replica is not None
        if state is not None:
            require(state.is_over, "finished.once", "the engine says it is over, the state does not")
        if not self._over:
            require(state is None, "finished.once", "it is not over")
            return  # a child whose end nobody waited for
        require(self.events[-1].event_type == "playbook.processed", "finished.once", "another event is last")
        began = any(event.event_type == "workflow.started" for event in self.events)
        require(self._finished == int(began), "finished.once", f"{self._finished} times")
        processed = [event for event in self.events if event.event_type == "playbook.processed"]
        require(len(processed) == 1, "finished.once", "playbook.processed")
        require(not self._replica.runs and not self._replica.tokens, "run.ends.once", "left open at the end")


def _identity(event: Event | ReportedEvent) -> tuple[Any, ...]:
    about = event.entity_id, event.task_run_id, event.attempt, event.payload.get("lease")
    return event.event_type, *about, event.timestamp


def _difference(one: State, other: State) -> str:
    left, right = msgspec.to_builtins(one), msgspec.to_builtins(other)
    return (
        "; ".join(
            f"{name}: log {left[name]!r:.600} live {right[name]!r:.600}"
            for name in left
            if left[name] != right[name]
        )
        or "only the order differs"
    )
