"""What a replica makes of the events it commits: wake-ups for followers, metrics, spans.

It is handed to the control plane when that is made, and to the application when that is. It never fails
what it observes.
"""

from __future__ import annotations

from noetl.records.event import Event
from noetl.server.feed import Feed
from noetl.server.metrics import Metrics
from noetl.server.tracing import Tracer


class Observer:
    def __init__(self, tracer: Tracer | None = None) -> None:
        self.feed = Feed()
        self.metrics = Metrics()
        self.tracer = tracer

    def event(self, event: Event) -> None:
        """Hears of each event once it is committed."""
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
