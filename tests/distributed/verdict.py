"""What must be true of executions, whatever became of the processes that carried them out.

Each check takes what the database and the world outside have kept, and asserts.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from noetl.cli.report import document
from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.ids import seconds_of
from noetl.store.protocol import ExecutionRow
from tests.distributed.outside import Call, Outside
from tests.distributed.stack import Logged, Row, Stack

TIMES = ("execution_id", "started_at", "finished_at", "duration_ms")
ON_ITS_WAY = 0.1
"""Seconds that a call may have been on its way before it was seen to come."""


def assert_sound(
    stack: Stack, outside: Outside, execution_ids: Iterable[str], *, pauses: int = 0
) -> dict[str, dict[str, Any]]:
    """All checks of executions that are over, and of their children; the outcome of each by its id.

    `pauses`: how often a worker stood still. Such a one may make the call it was about to make when it goes
    on, before it hears that its lease is over.
    """
    wanted = set(execution_ids)
    logs: dict[str, list[Logged]] = {}
    outcomes: dict[str, dict[str, Any]] = {}
    for row in stack.rows():
        if row.execution_id not in wanted and row.parent not in wanted:
            continue
        wanted.add(row.execution_id)  # a child of a child comes after it
        logs[row.execution_id] = stack.log(row.execution_id)
        state = assert_log(row, logs[row.execution_id])
        outcomes[row.execution_id] = outcome(state, row)
    assert wanted == set(logs), "an execution is not in the database"
    with outside.changed:
        calls = list(outside.calls)
    assert_calls(logs, calls, pauses=pauses)
    left = stack.query(
        "SELECT count(*) FROM noetl.command WHERE execution_id = ANY(%s)", ([int(each) for each in wanted],)
    )
    assert left[0][0] == 0, "executions that are over have work in the queue"
    return outcomes


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


def assert_calls(logs: dict[str, list[Logged]], calls: list[Call], *, pauses: int) -> None:
    """Each call is made once, and once more at most for each loss of its step's worker; ended ones never."""
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
    late = []
    for key, (committed, run_id) in done.items():
        count = len(made[key])
        assert count <= 1 + losses[run_id] + pauses, (
            f"{key} of {run_id} was called {count} times, with {losses[run_id]} losses"
        )
        late += [call for call in made[key] if call.at > committed + ON_ITS_WAY]
    assert len(late) <= pauses * 8, f"called again after their end was committed: {late}"


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
