"""What no store accepts: a change that contradicts itself. That is the caller's mistake."""

from __future__ import annotations

from noetl.store.protocol import Append


def require_consistent(change: Append) -> None:
    """ValueError where the change contradicts itself."""
    execution_id = change.execution_id
    if change.execution.execution_id != execution_id:
        raise ValueError(
            f"the projection is of {change.execution.execution_id}, the change of {execution_id}"
        )
    keys = [key for key in change.idem_keys if key is not None]
    if change.idem_keys and len(change.idem_keys) != len(change.events):
        raise ValueError("each event has a key or None, or there are no keys at all")
    if len(set(keys)) != len(keys):
        raise ValueError("two events of one change have the same key")
    for seq, event in enumerate(change.events, start=change.version + 1):
        if event.seq != seq or event.execution_id != execution_id:
            raise ValueError(
                f"event {seq} of a change to {execution_id} is number {event.seq} of {event.execution_id}"
            )
