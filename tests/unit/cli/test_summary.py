"""What is said at the end of an execution, and the document that says it to programs."""

from __future__ import annotations

from noetl.cli.diagnostics import Paint
from noetl.cli.progress import Progress
from noetl.cli.report import document, steps_by_name
from noetl.cli.stores import Place
from noetl.cli.summary import Source, result_lines, summary
from noetl.cli.watched import Ended
from noetl.engine.state import State, StepResult
from noetl.playbook.load import load
from noetl.store.protocol import ExecutionRow
from noetl.testing import fails, play
from noetl.tools.registry import builtin_kinds

TEXT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: demo}
workflow:
  - step: start
    tool:
      - rooms:
          loop: {in: [1], iterator: room}
          tool:
            - heat: {kind: noop}
"""
AT = "2024-05-01T10:00:00.000000Z"
LATER = "2024-05-01T10:00:02.500000Z"


def ended(state: State, *, interrupted: bool = False) -> Ended:
    row = ExecutionRow(
        execution_id="7",
        status=state.status,
        name="demo",
        path="t/demo",
        version=3,
        dialect="canonical",
        requested_at=AT,
    )
    return Ended(state, row, interrupted)


def source() -> Source:
    playbook = load(TEXT.encode(), builtin_kinds()).playbook
    assert playbook is not None
    return Source("demo.yaml", TEXT, playbook)


def told(
    state: State, progress: Progress | None = None, *, default: bool = True, interrupted: bool = False
) -> str:
    place = Place("sqlite:///a.db", is_default=default)
    return summary(
        ended(state, interrupted=interrupted), progress or Progress(), source(), place, Paint(False)
    )


def test_a_completed_execution_shows_its_result() -> None:
    state = State(execution_id="7", status="completed", requested_at=AT, finished_at=LATER, result={"a": 1})
    assert told(state) == '✓ demo completed after 2.5s\n  result: {"a":1}\n'


def test_a_failure_names_step_task_attempt_and_the_line_of_the_playbook() -> None:
    error = {
        "kind": "http.status",
        "message": "gone\ntry later",
        "step": "start",
        "task": "heat",
        "retryable": True,
    }
    state = State(execution_id="7", status="failed", requested_at=AT, finished_at=LATER, error=error)
    progress = Progress()
    progress.failed_attempts["start", "heat"] = 3
    assert told(state, progress, default=False).splitlines() == [
        "✗ demo failed after 2.5s",
        "  step start, task heat, attempt 3",
        "  http.status: gone",
        "    try later",
        "  demo.yaml:10 |             - heat: {kind: noop}",
        "  look into it with: noetl events 7 --step start --store sqlite:///a.db",
    ]


def test_an_error_of_no_step_points_at_no_line() -> None:
    error = {"kind": "keychain.unresolved", "message": "no TOKEN", "step": None, "task": None}
    state = State(execution_id="7", status="failed", requested_at=AT, finished_at=AT, error=error)
    assert told(state).splitlines()[1:] == [
        "  keychain.unresolved: no TOKEN",
        "  look into it with: noetl events 7",
    ]


def test_an_interrupted_execution_says_how_to_go_on() -> None:
    state = State(execution_id="7", status="running", requested_at=AT)
    assert told(state, interrupted=True) == "‖ demo interrupted\n  go on with: noetl resume 7\n"


def test_no_command_is_advised_on_a_store_that_is_gone() -> None:
    place = Place("sqlite:///:memory:", is_default=False)
    failed = State(execution_id="7", status="failed", requested_at=AT, error={"kind": "x", "message": "y"})
    going = State(execution_id="7", status="running", requested_at=AT)
    done = State(execution_id="7", status="completed", requested_at=AT, result=list(range(100, 200)))
    for state, interrupted in ((failed, False), (going, True), (done, False)):
        end = ended(state, interrupted=interrupted)
        assert "noetl " not in summary(end, Progress(), source(), place, Paint(False))


def test_a_long_result_is_cut_and_a_stored_one_is_named() -> None:
    lines = result_lines(list(range(100, 200)), "noetl result 7")
    assert lines[:3] == ["  result:", "    [", "      100,"]
    assert lines[-1] == "    … all of it: noetl result 7"
    ref = {"kind": "result_ref", "ref": "noetl://x", "store": "file", "key": "k", "checksum": "c", "size": 9}
    assert result_lines(ref, "noetl result 7") == ["  result: 9 bytes, stored; show it with: noetl result 7"]


def test_the_document_has_exactly_the_fields_of_the_contract() -> None:
    state = State(
        execution_id="7",
        status="failed",
        requested_at=AT,
        finished_at=LATER,
        steps={"a": StepResult(status="done", runs=1, result=1, duration_ms=2.0, seq=4)},
        error={"kind": "k", "message": "m"},
    )
    found = ended(state)
    assert document(state, found.row) == {
        "execution_id": "7",
        "status": "failed",
        "playbook": {"name": "demo", "path": "t/demo", "version": 3, "dialect": "canonical"},
        "started_at": AT,
        "finished_at": LATER,
        "duration_ms": 2500.0,
        "workload": {},
        "ctx": {},
        "vars": {},
        "steps": {"a": {"status": "done", "runs": 1, "result": 1, "error": None, "duration_ms": 2.0}},
        "result": None,
        "error": {"kind": "k", "message": "m", "step": None, "task": None, "retryable": False},
    }


def test_a_step_that_is_open_is_shown_while_it_runs_and_not_at_the_end() -> None:
    state = State(
        execution_id="7", status="running", requested_at=AT, steps={"a": StepResult(status="running", runs=1)}
    )
    row = ended(state).row
    assert document(state, row)["steps"]["a"]["status"] == "running"
    assert document(state, row, status="interrupted")["steps"] == {}


SPREAD = """
apiVersion: noetl.io/v1
kind: Playbook
name: p
path: p
workload: {items: [3, 0, 2]}
workflow:
  - {step: start, next: [{step: many}]}
  - {step: many, loop: {in: "{{ workload.items }}", iterator: item}, next: [{step: work}]}
  - {step: work, call: {task: one, with: {v: "{{ item }}"}}, next: [{step: gather}]}
  - {step: gather, join: many, next: [{step: end}]}
workbook: [{task: one, type: python, code: pass}]
"""


def test_runs_for_single_items_are_one_step_also_where_the_loop_came_to_no_end() -> None:
    ended = play(SPREAD, tools={"python": lambda call: call.args["v"] or fails("boom")})
    assert any("@" in name for name in ended.state.steps)
    found = steps_by_name(ended.state)
    assert list(found) == ["start", "many", "work"]
    assert (found["work"].runs, found["work"].status) == (3, "failed")
