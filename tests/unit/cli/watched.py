"""Events as a watcher of an execution sees them, in short."""

from __future__ import annotations

from typing import Any

from noetl.ids import timestamp
from noetl.records.event import EVENT_TYPES, Event

BEGAN = 1_700_000_000.0


class Log:
    """Makes the events of one execution; times are seconds since it began."""

    def __init__(self) -> None:
        self.seq = 0

    def event(self, event_type: str, at: float = 0.0, status: Any = "success", **fields: Any) -> Event:
        self.seq += 1
        if "step" in fields:
            fields.setdefault("step_run_id", f"1.{fields['step']}")
        return Event(
            event_id=str(self.seq),
            execution_id="1",
            seq=self.seq,
            event_type=event_type,
            timestamp=timestamp(BEGAN + at),
            source="server",
            entity_type=EVENT_TYPES[event_type].entity,
            entity_id="1",
            status=status,
            **fields,
        )

    def begun(self) -> list[Event]:
        return [
            self.event("playbook.execution.requested", payload={"playbook": {"name": "demo"}}),
            self.event("workflow.started"),
        ]
