"""The names of events, as the log has them and as older playbooks call them.

There is one log, in the canonical vocabulary. Its readers may ask for the words of v2; then an event that
stood for two things there is shown as two.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.records.event import Event

V2_NAMES: Final = {
    "task.started": ("tool.started",),
    "task.done": ("tool.processed",),
    "step.done": ("step.finished",),
    "step.failed": ("step.finished",),
    "step.skipped": ("step.finished",),
    "loop.iteration.done": ("loop.iteration.finished",),
    "loop.iteration.failed": ("loop.iteration.finished",),
    "loop.done": ("loop.finished", "step.finished"),
}


def canonical_words(event: Event) -> list[dict[str, Any]]:
    """The event as the log has it, every field of the envelope present."""
    return [msgspec.structs.asdict(event)]


def v2_words(event: Event) -> list[dict[str, Any]]:
    """The event under the names of v2; a loop inside a step does not finish the step."""
    names = V2_NAMES.get(event.event_type, (event.event_type,))
    if "block" in event.payload:
        names = names[:1]
    shown = []
    for name in names:
        fields = msgspec.structs.asdict(event)
        fields = {("tool_run_id" if key == "task_run_id" else key): value for key, value in fields.items()}
        entity = "step" if name == "step.finished" else event.entity_type
        shown.append(fields | {"event_type": name, "entity_type": entity})
    return shown
