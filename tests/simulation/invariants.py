"""What must be true of every execution, by name; `docs/engine.md` says the same in prose.

The watcher sees each commit and each call of a tool, and compares what it knows from the log alone with what
the engine has in memory.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec

from noetl.engine.fold import fold
from noetl.engine.limits import EVENT_BYTES
from noetl.engine.state import State
from noetl.playbook.load import Loaded
from noetl.records.event import Event
from noetl.records.report import LeaseReport, Verdict
from noetl.store.codec import decode_event, encode_event
from noetl.store.protocol import Append

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
    "in.flight": "a loop never has more calls in flight under one lease than `max_in_flight` allows",
    "done.is.done": "a task whose `task.done` is committed is never run again",
    "values.whole": "a tool is given values, never references to them",
    "calls.bounded": "a task is called at most once more for each crash and each lost lease",
    "never.stuck": "an execution that is not over has something that runs, is timed or is waited for",
    "repeated.reports": "a report that comes again, or late, changes nothing",
    "loop.in.order": "the result of a loop has the results of its iterations in index order",
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
        self._flights: Counter[Any] = Counter()
        self._troubles = 0
        self._finished = 0
        self._over = False
        self.events: list[Event] = []

    # --- commits ------------------------------------------------------------------------------------------

    def committed(self, change: Append, live: State | None, loaded: Loaded) -> None:
        self.has_cases = loaded.dialect != "canonical"
        for event in change.events:
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
        elif event.event_type == "next.evaluated":
            self.tally[f"routing: {event.payload.get('mode', 'by a case')}"] += 1

    # --- calls ----------------------------------------------------------------------------------------------

    def call_begins(self, call: Any, flight: Any, lease: Any, *, is_zombie: bool) -> None:
        self.note_call(call.action_id, call.attempt, f"{call.step}/{call.task_label}", is_zombie=is_zombie)
        require(b'"result_ref"' not in msgspec.json.encode(call.args), "values.whole", str(call.args)[:300])
        self._flights[flight] += 1
        width = _width(lease)
        if width is not None:
            require(
                self._flights[flight] <= width,
                "in.flight",
                f"{self._flights[flight]} of {width} in {call.step}",
            )
        self.tally["calls"] += 1

    def note_done(self, action_id: str, attempt: int) -> None:
        self._done.add((action_id, attempt))

    def note_call(self, action_id: str, attempt: int, task: str, *, is_zombie: bool = False) -> None:
        """A worker that was given up may not know it yet: its calls are bounded, but it may repeat one."""
        key = (action_id, attempt)
        require(is_zombie or key not in self._done, "done.is.done", f"{task} attempt {attempt}")
        self._calls[key] += 1
        require(self._calls[key] <= 1 + self._troubles, "calls.bounded", f"{task}: {self._calls[key]} calls")

    def call_ends(self, flight: Any) -> None:
        self._flights[flight] -= 1

    # --- troubles -------------------------------------------------------------------------------------------

    def process_died(self) -> None:
        self._troubles += 1
        self._flights.clear()

    def lease_lost(self) -> None:
        self._troubles += 1

    def report_came_again(self, report: LeaseReport, verdict: Verdict, before: int) -> None:
        told = [event.event_type for event in report.events]
        repeats = [event for event in self.events[before:] if event.event_type in ("task.done", *RUN_ENDS)]
        keys = {
            (event.action_id, event.attempt) for event in report.events if event.event_type == "task.done"
        }
        again = [event for event in repeats if (event.action_id, event.attempt) in keys]
        require(not again, "repeated.reports", f"{told} was taken twice ({verdict.verdict})")

    def ended(self, state: State) -> None:
        assert self._replica is not None
        require(state.is_over, "finished.once", "the engine says it is over, the state does not")
        require(self.events[-1].event_type == "playbook.processed", "finished.once", "another event is last")
        began = any(event.event_type == "workflow.started" for event in self.events)
        require(self._finished == int(began), "finished.once", f"{self._finished} times")
        processed = [event for event in self.events if event.event_type == "playbook.processed"]
        require(len(processed) == 1, "finished.once", "playbook.processed")
        require(not self._replica.runs and not self._replica.tokens, "run.ends.once", "left open at the end")
        self.tally[f"status: {state.status}"] += 1


def _width(lease: Any) -> int | None:
    """How many calls a lease may have in flight: one, or as many as its loops allow together."""
    loop = lease.step.loop
    if any(getattr(node, "kind", "workbook") == "workbook" for node in lease.step.body):
        return None  # blocks, branches and what the workbook has: they have widths of their own
    if loop is None or loop.mode == "sequential":
        return 1
    return int(lease.number(loop.max_in_flight))


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
