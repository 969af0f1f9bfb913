"""An execution as one JSON document: the contract of `--json` for run, resume and status."""

from __future__ import annotations

from typing import Any

from noetl.engine.parking import waits_of_steps, waits_payload
from noetl.engine.state import Data, State, StepResult
from noetl.ids import seconds_of
from noetl.store.protocol import ExecutionRow

ERROR_FIELDS = ("kind", "message", "step", "task", "retryable")
OPEN = "running"


def document(state: State, row: ExecutionRow, *, status: str | None = None) -> Data:
    """Everything about an execution; stored results as their references. `status` stands in for its own."""
    waits = {step: {"waits": waits_payload(waits)} for step, waits in waits_of_steps(state).items()}
    return {
        "execution_id": state.execution_id,
        "status": status or state.status,
        "playbook": {"name": row.name, "path": row.path, "version": row.version, "dialect": row.dialect},
        "started_at": state.requested_at,
        "finished_at": state.finished_at,
        "duration_ms": _duration(state),
        "workload": state.workload,
        "ctx": state.ctx,
        "vars": state.vars,
        "steps": {name: _step(found) for name, found in steps_by_name(state).items() if found.status != OPEN}
        if status is not None or state.is_over
        else {name: _step(found) | waits.get(name, {}) for name, found in steps_by_name(state).items()},
        "result": state.result,
        "error": error_fields(state.error),
    }


def _duration(state: State) -> float | None:
    if state.finished_at is None:
        return None
    return round((seconds_of(state.finished_at) - seconds_of(state.requested_at)) * 1000, 3)


def _step(found: StepResult) -> Data:
    return {
        "status": found.status,
        "runs": found.runs,
        "result": found.result,
        "error": error_fields(found.error),
        "duration_ms": found.duration_ms,
    }


def error_fields(error: Data | None) -> dict[str, Any] | None:
    """An error with every field of the contract, and its details where it has some."""
    if error is None:
        return None
    shown = {name: error.get(name) for name in ERROR_FIELDS}
    shown["retryable"] = bool(shown["retryable"])
    return shown | ({"details": error["details"]} if error.get("details") else {})


def steps_by_name(state: State) -> dict[str, StepResult]:
    """One entry a step: of a step inside a spread all runs together, as the last of them ended."""
    return {name: found for name, found in state.steps.items() if "@" not in name}
