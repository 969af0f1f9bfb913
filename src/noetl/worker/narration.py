"""The events a worker reports, built in one place so that ids and parents agree."""

from __future__ import annotations

from typing import Any, Final

from noetl.engine.pipeline import Then
from noetl.engine.state import Data, Frame
from noetl.records.event import EVENT_TYPES, EventStatus
from noetl.records.report import ReportedEvent

_STATUS: Final[dict[str, EventStatus]] = {"ok": "success", "error": "error", "skipped": "skipped"}


class Narrator:
    """Tells what happens in one pipeline of one step run."""

    def __init__(self, run_id: str, iteration_id: str | None = None, iteration: int | None = None) -> None:
        self.run_id = run_id
        self.iteration_id = iteration_id
        self.iteration = iteration
        self.page: int | None = None
        """Which call of a pagination is under way, from 0."""

    def step(
        self,
        event_type: str,
        at: str,
        status: EventStatus = "success",
        **payload: Any,  # noqa: ANN401 - plain data
    ) -> ReportedEvent:
        return ReportedEvent(
            idem_key=f"{self.run_id}/{event_type}",
            event_type=event_type,
            timestamp=at,
            entity_type=EVENT_TYPES[event_type].entity,
            entity_id=self.run_id,
            status=status,
            parent_id=self.run_id.rpartition(".")[0],
            payload=payload,
        )

    def about_step(
        self, event_type: str, at: str, payload: Data, status: EventStatus = "success"
    ) -> ReportedEvent:
        """About what a case or a sink does in this pipeline."""
        return ReportedEvent(
            idem_key=f"{self.iteration_id or self.run_id}/{event_type}/{at}",
            event_type=event_type,
            timestamp=at,
            entity_type=EVENT_TYPES[event_type].entity,
            entity_id=self.iteration_id or self.run_id,
            status=status,
            parent_id=self.run_id,
            iteration_id=self.iteration_id,
            iteration=self.iteration,
            page=self.page,
            payload=payload,
        )

    def iterating(self, event_type: str, at: str, status: EventStatus, **payload: Any) -> ReportedEvent:  # noqa: ANN401
        """About the iteration itself, or a loop inside the pipeline."""
        return ReportedEvent(
            idem_key=f"{self.iteration_id}/{event_type}",
            event_type=event_type,
            timestamp=at,
            entity_type="loop",
            entity_id=self.iteration_id or self.run_id,
            status=status,
            parent_id=self.run_id,
            iteration_id=self.iteration_id,
            iteration=self.iteration,
            payload=payload,
        )

    def task(
        self,
        event_type: str,
        at: str,
        *,
        label: str,
        task_run_id: str,
        attempt: int,
        action_id: str,
        status: EventStatus = "in_progress",
        payload: Data | None = None,
    ) -> ReportedEvent:
        return ReportedEvent(
            idem_key=f"{task_run_id}/{attempt}/{event_type}",
            event_type=event_type,
            timestamp=at,
            entity_type=EVENT_TYPES[event_type].entity,
            entity_id=task_run_id,
            status=status,
            parent_id=self.iteration_id or self.run_id,
            task_run_id=task_run_id,
            task_label=label,
            iteration_id=self.iteration_id,
            iteration=self.iteration,
            attempt=attempt,
            page=self.page,
            action_id=action_id,
            payload=payload or {},
        )

    def retried(self, then: Then, outcome: Data, at: str, about: Data) -> list[ReportedEvent]:
        """About a call that was repeated, after its last attempt."""
        if about["attempt"] == 1 or then.do == "retry":
            return []
        told = {"attempts": about["attempt"]}
        status = outcome_status(outcome["status"])
        return [self.task("retry.processed", at, status=status, payload=told, **about)]

    def polling(self, frame: Frame, then: Then, outcome: Data, at: str, about: Data) -> list[ReportedEvent]:
        """About a poll, after one of its calls: that it began, what it saw, how it ended."""
        told = []
        looks = frame.polls + 1
        if looks == 1 and frame.attempt == 1:
            told.append(self.task("poll.started", at, **about))
        if outcome["status"] != "error" or then.do == "fail":
            seen = {"look": looks, "ready": then.do not in ("poll", "fail")}
            told.append(self.task("poll.iteration", at, payload=seen, **about))
        if then.do not in ("poll", "retry"):
            status: EventStatus = "error" if outcome["status"] == "error" or then.do == "fail" else "success"
            told.append(self.task("poll.finished", at, status=status, payload={"looks": looks}, **about))
        return told


def outcome_status(status: str) -> EventStatus:
    return _STATUS[status]
