"""Rows and states as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl.client.wire import (
    CatalogRow,
    ErrorView,
    ExecutionSummary,
    ExecutionView,
    LoopProgress,
    PlaybookView,
    StepView,
    WaitsView,
)
from noetl.client.wire_work import QueueRow
from noetl.ids import seconds_of
from noetl.server.parts import ExecutionState, WaitsState
from noetl.store.leases import state_of
from noetl.store.protocol import CatalogEntry, CommandRow, ExecutionRow


def catalog_row(entry: CatalogEntry) -> CatalogRow:
    return CatalogRow(
        path=entry.path,
        version=entry.version,
        name=entry.name,
        dialect=entry.dialect,
        digest=entry.digest,
        registered_at=entry.registered_at,
    )


def error_view(error: Mapping[str, Any] | None) -> ErrorView | None:
    if error is None:
        return None
    return ErrorView(
        kind=error.get("kind"),
        message=error.get("message"),
        step=error.get("step"),
        task=error.get("task"),
        retryable=bool(error.get("retryable")),
        details=error.get("details") or None,
    )


def summary_of(row: ExecutionRow) -> ExecutionSummary:
    return ExecutionSummary(
        execution_id=row.execution_id,
        status=row.status,
        playbook=PlaybookView(name=row.name, path=row.path, version=row.version, dialect=row.dialect),
        started_at=row.requested_at,
        finished_at=row.finished_at,
        parent_execution_id=row.parent_execution_id,
        error=error_view(row.error),
    )


def execution_view(row: ExecutionRow, state: ExecutionState) -> ExecutionView:
    summary = summary_of(row)
    took = None
    if row.finished_at is not None:
        took = round((seconds_of(row.finished_at) - seconds_of(row.requested_at)) * 1000, 3)
    return ExecutionView(
        execution_id=summary.execution_id,
        status=state.status,
        playbook=summary.playbook,
        started_at=summary.started_at,
        finished_at=summary.finished_at,
        parent_execution_id=summary.parent_execution_id,
        error=summary.error,
        duration_ms=took,
        workload=state.workload,
        ctx=state.ctx,
        vars=state.vars,
        steps=step_views(state),
        result=state.result,
    )


def step_views(state: ExecutionState) -> tuple[StepView, ...]:
    """One entry a step: of a step inside a spread all runs together, as the last of them ended."""
    waits: dict[str, list[WaitsView]] = {}
    for run in state.runs.values():
        waits.setdefault(run.step, []).extend(map(waits_view, run.parked.values()))
    loops = {run.step: run.loop for run in state.runs.values() if run.loop is not None}
    return tuple(
        StepView(
            name=name,
            status=found.status,
            runs=found.runs,
            result=found.result,
            error=error_view(found.error),
            duration_ms=found.duration_ms,
            loop=None
            if (loop := loops.get(name)) is None
            else LoopProgress(total=loop.total, done=loop.done, failed=loop.failed, in_flight=len(loop.open)),
            waits=tuple(waits.get(name, ())),
        )
        for name, found in state.steps.items()
        if "@" not in name
    )


def waits_view(waits: WaitsState) -> WaitsView:
    return WaitsView(
        until=waits.until,
        signals=tuple(waits.signals),
        questions=dict(waits.questions),
        children=tuple(waits.children),
    )


def queue_row(row: CommandRow) -> QueueRow:
    return QueueRow(
        command_id=row.command_id,
        execution_id=row.execution_id,
        step=row.step,
        step_run_id=row.step_run_id,
        pool=row.pool,
        state=state_of(row),
        created_at=row.created_at,
        worker_id=row.worker_id,
        epoch=row.epoch,
        lease_until=row.lease_until,
    )
