"""What a replica makes of the events it commits: wake-ups for followers, metrics, spans.

It is handed to the control plane when that is made, and to the application when that is. It never fails
what it observes.
"""

from __future__ import annotations

from typing import Final

import structlog

from noetl.records.event import Event
from noetl.server.feed import Feed
from noetl.server.metrics import Metrics
from noetl.server.tracing import Tracer

TOLD: Final = frozenset(
    {"playbook.execution.requested", "step.failed", "command.expired", "playbook.processed"}
)
"""What an operator wants to find in the log of the server."""

_log = structlog.get_logger("noetl.execution")


class Observer:
    def __init__(self, tracer: Tracer | None = None) -> None:
        self.feed = Feed()
        self.metrics = Metrics()
        self.tracer = tracer

    def event(self, event: Event) -> None:
        """Hears of each event once it is committed."""
        if event.event_type in TOLD:
            _tell(event)
        self.metrics.event(event)
        self.feed.event(event)
        if self.tracer is not None:
            self.tracer.event(event)

    def decided(self, seconds: float) -> None:
        """Hears how long a decision took."""
        self.metrics.decided(seconds)

    def close(self) -> None:
        if self.tracer is not None:
            self.tracer.close()


def _tell(event: Event) -> None:
    about: dict[str, str] = {"execution_id": event.execution_id, "event_type": event.event_type}
    if event.step is not None:
        about["step"] = event.step
    error = event.payload.get("error")
    if isinstance(error, dict):
        # The kind only: messages are long, and stand in the log of the execution.
        about["error"] = str(error.get("kind"))
    log = _log.warning if event.status == "error" or event.event_type == "command.expired" else _log.info
    log("execution", status=event.status, **about)
