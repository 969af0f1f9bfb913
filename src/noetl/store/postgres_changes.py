"""Turns appends into what `noetl.append_all` takes: one JSON document and one string of bytes.

Bodies travel as bytes, end to end, and rows name place and length: nothing is escaped, parsed or recoded on
the way into the table. A `Batch` holds one change per execution at most. It checks nothing that the database
has to know; the function does.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final, TypeAlias

import msgspec

from noetl.store.codec import encode_event, encode_json
from noetl.store.consistency import require_consistent
from noetl.store.leases import LONGEST_LEASE
from noetl.store.postgres_text import MARK_IN_JSON, NUL_IN_JSON, escaped, number_of
from noetl.store.protocol import Append

Fields: TypeAlias = dict[str, Any]

LARGE: Final = 8 << 20
"""A batch with so many bytes takes no more changes."""


class PreparedChange(msgspec.Struct, frozen=True):
    """An append whose JSON is made, and whose ids are numbers."""

    change: Append
    number: int
    parent: int | None
    events: list[bytes]


def prepare(change: Append) -> PreparedChange:
    """ValueError where the change contradicts itself; StoreError where an id is no number."""
    require_consistent(change)
    parent = change.execution.parent_execution_id
    for body in change.bodies:
        number_of(body.execution_id)
    return PreparedChange(
        change=change,
        number=number_of(change.execution_id),
        parent=None if parent is None else number_of(parent),
        events=[encode_event(event) for event in change.events],
    )


class Batch:
    """Changes to different executions that are written in one call."""

    def __init__(self) -> None:
        self._rows: defaultdict[str, list[Fields]] = defaultdict(list)
        self._bytes: list[bytes] = []
        self._length = 0

    @property
    def is_large(self) -> bool:
        return self._length > LARGE

    def add(self, prepared: PreparedChange) -> None:
        self._add_projection(prepared)
        self._add_events(prepared)
        self._add_queue(prepared)
        self._add_beside(prepared)

    def parameters(self, *, check_keys: bool) -> Fields:
        # A list that is missing costs the function nothing; one that is empty is a statement for nothing.
        doc: Fields = {"events": [], **self._rows}
        if check_keys:
            doc["check_keys"] = True
        text = encode_json(doc)
        if NUL_IN_JSON in text or MARK_IN_JSON in text:
            text = encode_json(escaped(doc))
        return {"doc": text.decode("utf-8"), "bytes": b"".join(self._bytes)}

    def _add_projection(self, prepared: PreparedChange) -> None:
        change, row = prepared.change, prepared.change.execution
        fields: Fields = {
            "id": prepared.number,
            "version": change.version,
            "last_seq": change.version + len(change.events),
            "status": row.status,
            "name": row.name,
            "path": row.path,
            "playbook_version": row.version,
            "dialect": row.dialect,
            "requested_at": row.requested_at,
            "finished_at": row.finished_at,
            "parent": prepared.parent,
            "digest": row.playbook_digest,
        }
        if row.error is not None:
            fields |= self._place(encode_json(row.error))
        self._rows["changes"].append(fields)

    def _add_events(self, prepared: PreparedChange) -> None:
        rows, keys, number = self._rows["events"], prepared.change.idem_keys, prepared.number
        place = self._length + 1
        for index, (event, body) in enumerate(zip(prepared.change.events, prepared.events, strict=True)):
            size = len(body)
            fields: Fields = {
                "id": number,
                "seq": event.seq,
                "type": event.event_type,
                "place": place,
                "size": size,
            }
            place += size
            if keys and keys[index] is not None:
                fields["key"] = keys[index]
            if event.event_type == "loop.iteration.done" and "block" not in event.payload:
                fields["loop_run"], fields["loop_index"] = event.step_run_id, event.iteration
            rows.append(fields)
        self._bytes += prepared.events
        self._length = place - 1

    def _add_queue(self, prepared: PreparedChange) -> None:
        change, number, rows = prepared.change, prepared.number, self._rows
        for fence in change.fences:
            fields: Fields = {"id": number, "command": fence.command_id, "epoch": fence.epoch}
            if fence.expired:
                fields["expired"] = True
                rows["expired"].append({"id": number})
            rows["fences"].append(fields)
        for name in ("remove_commands", "free_commands", "hold_commands"):
            for command_id in getattr(change, name):
                rows[name].append({"id": number, "command": command_id})
        if change.remove_all_commands:
            rows["clear_commands"].append({"id": number})
        if change.hold_unleased_commands:
            rows["hold_unleased_commands"].append({"id": number})
        # Of two rows with one id in a change the last one counts, and one statement cannot put both.
        for row in {each.command_id: each for each in change.add_commands}.values():
            is_leased = row.worker_id is not None
            rows["commands"].append(
                {
                    "id": number,
                    "command": row.command_id,
                    "step": row.step,
                    "run": row.step_run_id,
                    "pool": row.pool,
                    "created_at": row.created_at,
                    "not_before": row.not_before,
                    "worker": row.worker_id,
                    "epoch": max(row.epoch, 1) if is_leased else row.epoch,
                    "lease": min(change.lease_seconds, LONGEST_LEASE) if is_leased else None,
                    "held": row.is_held and not is_leased,
                }
            )

    def _add_beside(self, prepared: PreparedChange) -> None:
        change, number, rows = prepared.change, prepared.number, self._rows
        if change.remove_all_timers:
            rows["clear_timers"].append({"id": number})
        for timer_id in change.remove_timers:
            rows["remove_timers"].append({"id": number, "timer": timer_id})
        for timer in {each.timer_id: each for each in change.add_timers}.values():
            place = self._place(encode_json(timer.payload))
            rows["timers"].append({"id": number, "timer": timer.timer_id, "due": timer.due, **place})
        for name, value in change.vars.items():
            rows["vars"].append({"id": number, "name": name, **self._place(encode_json(value))})
        for body in {each.key: each for each in change.bodies}.values():
            rows["bodies"].append(
                {
                    "id": number,
                    "key": body.key,
                    "owner": number_of(body.execution_id),
                    "media": body.media_type,
                    "checksum": body.checksum,
                    **self._place(body.body),
                }
            )
        if change.snapshot is not None:
            seq = change.version + len(change.events)
            rows["snapshots"].append({"id": number, "seq": seq, **self._place(change.snapshot)})

    def _place(self, body: bytes) -> Fields:
        """Puts a body at the end of the bytes; places count from 1."""
        place = self._length + 1
        self._bytes.append(body)
        self._length += len(body)
        return {"place": place, "size": len(body)}
