"""What must be true of an execution that was killed any number of times and has come to its end.

Each check takes the lives of an execution, or its log, and asserts. The undisturbed execution is checked in
the same way, and is what the others must equal.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from noetl.cli.report import document
from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.records.event import Event, from_line
from tests.durability.lives import Execution

TIMES = ("execution_id", "started_at", "finished_at", "duration_ms")


def outcome_of(shown: dict[str, Any]) -> dict[str, Any]:
    """A document without what differs from run to run: ids, times, addresses."""
    steps = {
        name: {key: value for key, value in step.items() if key != "duration_ms"}
        for name, step in shown["steps"].items()
    }
    rest = {key: value for key, value in shown.items() if key not in TIMES}
    rest["workload"] = {
        key: value for key, value in shown["workload"].items() if key not in ("api", "journal", "pad")
    }
    text = json.dumps({**rest, "steps": steps}, sort_keys=True)
    outcome: dict[str, Any] = json.loads(text.replace(shown["execution_id"], "ID"))
    return outcome


def assert_sound(execution: Execution, expected: dict[str, Any] | None) -> dict[str, Any]:
    """All checks of an execution that is over; its outcome, which must be the expected one."""
    assert_calls(execution)
    last = execution.lives[-1]
    shown = execution.document()
    if last.exit_code >= 0:
        assert json.loads(last.stdout) == shown, last.stderr
    assert_logs(execution, shown)
    outcome = outcome_of(shown)
    if expected is not None:
        assert outcome == expected
    return outcome


def assert_calls(execution: Execution) -> None:
    """Finished tasks are never called again; others once more a life, and no more than were in flight."""
    finished_before: frozenset[Any] = frozenset()
    every: Counter[Any] = Counter()
    for number, life in enumerate(execution.lives, 1):
        again = {call for call in life.calls if call in finished_before}
        assert not again, f"life {number} called again what was finished: {again}"
        doubled = {call: count for call, count in life.calls.items() if count > 1}
        assert not doubled, f"life {number} made the same call twice: {doubled}"
        in_flight = set(life.calls) - life.finished
        assert len(in_flight) <= execution.shape.width, (
            f"life {number} left {len(in_flight)} calls unfinished"
        )
        assert finished_before <= life.finished, f"finished tasks vanished from the log in life {number}"
        finished_before = life.finished
        every.update(life.calls)
    called_never = {call for call in finished_before if call not in every} - _without_effect(execution)
    assert not called_never, f"the log tells of calls that were never made: {called_never}"


def _without_effect(execution: Execution) -> set[Any]:
    """Calls of children are counted in the children; some tasks reach nobody outside."""
    return {
        (str(event.action_id), event.attempt or 0)
        for log in execution.logs().values()
        for event in log
        if event.event_type == "task.done" and event.task_label in ("child", "nothing", "first", "second")
    }


def assert_logs(execution: Execution, shown: dict[str, Any]) -> None:
    """The logs are dense, end once, and fold to what the store and the command line say."""
    rows = {row.execution_id: row for row in execution.rows()}
    for execution_id, log in execution.logs().items():
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        ends = [
            event.event_type
            for event in log
            if event.event_type in ("workflow.finished", "playbook.processed")
        ]
        assert ends == ["workflow.finished", "playbook.processed"]
        assert_tasks_end_once(log)
        state = State(execution_id=execution_id)
        for event in log:
            fold(state, event)
        row = rows[execution_id]
        known = (row.status, row.requested_at, row.finished_at, row.error)
        assert known == (state.status, state.requested_at, state.finished_at, state.error)
        assert not state.runs
        assert not state.tokens
        if row.parent_execution_id is None:
            assert msgspec.to_builtins(document(state, row)) == shown
            in_file = [from_line(line) for line in execution.events_file.read_bytes().splitlines()]
            # The copy is written after the commit; a process killed in between leaves it to the next one.
            assert in_file == (log if execution.lives[-1].exit_code >= 0 else log[: len(in_file)])


def assert_tasks_end_once(log: list[Event]) -> None:
    ended = Counter((event.task_run_id, event.attempt) for event in log if event.event_type == "task.done")
    assert all(count == 1 for count in ended.values()), [key for key, count in ended.items() if count > 1]
