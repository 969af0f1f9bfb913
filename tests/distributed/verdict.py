"""What must be true of executions, whatever became of the processes that carried them out.

Each check takes what the database and the world outside have kept, and asserts.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from noetl.cli.report import document
from noetl.engine.fold import fold
from noetl.engine.leases import run_and_lease
from noetl.engine.state import State
from noetl.ids import seconds_of
from noetl.store.protocol import ExecutionRow
from tests.distributed.outside import Call, Outside
from tests.distributed.stack import Logged, Row, Stack
from tests.distributed.witness import leases_of

TIMES = ("execution_id", "started_at", "finished_at", "duration_ms")
ON_ITS_WAY = 0.1
"""Seconds that a call may have been on its way before it was seen to come."""
HEARS_SECONDS = 1.0
"""Within so long a worker that stood still has heard which of its leases are over."""


class Resumed(NamedTuple):
    """A worker that had stood still, and the moment at which it went on."""

    worker: str
    at: float


class Found(NamedTuple):
    """What became of executions and of those that they called, by id."""

    logs: dict[str, list[Logged]]
    outcomes: dict[str, dict[str, Any]]
    parents: dict[str, str | None]


def assert_sound(
    stack: Stack, outside: Outside, execution_ids: Iterable[str], *, resumed: Sequence[Resumed] = ()
) -> Found:
    """All checks of executions that are over, and of their children.

    `resumed`: which workers went on that had stood still. Such a one may make the call it was about to make
    before it hears that its lease is over.
    """
    rows = _family(stack, set(execution_ids))
    found = Found({}, {}, {row.execution_id: row.parent for row in rows})
    for row in rows:
        found.logs[row.execution_id] = stack.log(row.execution_id)
        state = assert_log(row, found.logs[row.execution_id])
        found.outcomes[row.execution_id] = outcome(state, row)
    with outside.changed:
        calls = list(outside.calls)
    assert_calls(found.logs, calls, resumed, _holders(stack, found.logs) if resumed else {})
    left = stack.query(
        "SELECT count(*) FROM noetl.command WHERE execution_id = ANY(%s)",
        ([int(each) for each in found.logs],),
    )
    assert left[0][0] == 0, "executions that are over have work in the queue"
    return found


def _family(stack: Stack, wanted: set[str]) -> list[Row]:
    """Executions, and those that they called, and so on."""
    rows: dict[str, Row] = {}
    ask = "execution_id"
    asked = wanted
    while asked:
        met = stack.rows(f"WHERE {ask} = ANY(%s)", [int(each) for each in asked])
        asked = {row.execution_id for row in met} - set(rows)
        rows |= {row.execution_id: row for row in met}
        ask = "parent_execution_id"
    assert wanted <= set(rows), "an execution is not in the database"
    return list(rows.values())


def assert_log(row: Row, log: list[Logged]) -> State:
    """The log is dense, ends once, tells of each task's end once, and folds to what the row says."""
    assert [each.event.seq for each in log] == list(range(1, len(log) + 1))
    types = Counter(each.event.event_type for each in log)
    assert types["workflow.finished"] == 1, types
    assert types["playbook.processed"] == 1, types
    assert log[-1].event.event_type == "playbook.processed"
    assert len({each.event.event_id for each in log}) == len(log)
    ends = Counter(
        (each.event.task_run_id, each.event.attempt) for each in log if each.event.event_type == "task.done"
    )
    assert all(count == 1 for count in ends.values()), [key for key, count in ends.items() if count > 1]
    rounds = Counter(
        (each.event.iteration_id, json.dumps(each.event.payload.get("block")))
        for each in log
        if each.event.event_type in ("loop.iteration.done", "loop.iteration.failed")
    )
    assert all(count == 1 for count in rounds.values()), [key for key, count in rounds.items() if count > 1]
    state = State(execution_id=row.execution_id)
    for each in log:
        fold(state, each.event)
    known = (row.status, row.requested_at, row.finished_at, row.error)
    assert known == (state.status, state.requested_at, state.finished_at, state.error)
    assert not state.runs
    assert not state.tokens
    return state


def _holders(stack: Stack, execution_ids: Iterable[str]) -> dict[str, set[str]]:
    """Of each step run the workers that have ever had it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for lease in leases_of(stack, execution_ids):
        found[run_and_lease(lease.command)[0]].add(lease.worker)
    return found


def assert_calls(
    logs: dict[str, list[Logged]],
    calls: list[Call],
    resumed: Sequence[Resumed],
    holders: dict[str, set[str]],
) -> None:
    """Each call is made once, and once more at most for each loss of its step's worker; ended ones never.

    What may come from a worker that had the step, stood still and has just gone on is not counted.
    """
    losses: Counter[str] = Counter()
    done: dict[tuple[str, int], tuple[float, str]] = {}
    for log in logs.values():
        for event, committed in log:
            if event.event_type == "command.expired":
                losses[str(event.step_run_id)] += 1
            elif event.event_type == "task.done" and event.action_id is not None:
                done[event.action_id, event.attempt or 1] = (committed, str(event.step_run_id))
    made: defaultdict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in calls:
        made[call.action, call.attempt].append(call)
    for key, (committed, run_id) in done.items():
        moments = [each.at for each in resumed if each.worker in holders.get(run_id, ())]
        counted = [
            call for call in made[key] if not any(0.0 <= call.at - at < HEARS_SECONDS for at in moments)
        ]
        count = len(counted)
        assert count <= 1 + losses[run_id], (
            f"{key} of {run_id} was called {count} times, with {losses[run_id]} losses"
        )
        late = [call for call in counted if call.at > committed + ON_ITS_WAY]
        assert not late, f"called again after its end was committed at {committed}: {late}"


def outcome(state: State, row: Row) -> dict[str, Any]:
    """What an execution came to, without what differs from run to run: ids, times, addresses."""
    execution = ExecutionRow(
        execution_id=row.execution_id,
        status=row.status,
        name="",
        path="",
        version=1,
        dialect="v2",
        requested_at=row.requested_at,
        finished_at=row.finished_at,
        parent_execution_id=row.parent,
        error=row.error,
    )
    shown: dict[str, Any] = msgspec.to_builtins(document(state, execution))
    steps = {
        name: {key: value for key, value in step.items() if key != "duration_ms"}
        for name, step in shown["steps"].items()
    }
    rest = {key: value for key, value in shown.items() if key not in TIMES}
    rest["workload"] = {key: value for key, value in shown["workload"].items() if key != "api"}
    text = json.dumps({**rest, "steps": steps}, sort_keys=True)
    found: dict[str, Any] = json.loads(text.replace(row.execution_id, "ID"))
    return found


def seconds_between(log: list[Logged], first: str, second: str) -> float:
    """From the first event of one type to the first of another."""
    at = {each.event.event_type: seconds_of(each.event.timestamp) for each in reversed(log)}
    return at[second] - at[first]
