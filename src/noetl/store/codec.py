"""JSON as stores keep it: compact, and the same text back whatever it holds.

msgspec does the work. It knows no lone surrogates, which JSON text may hold as escapes; values with them
take the slower way through the standard library, so that nothing a playbook meets is refused or changed.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from noetl.records.event import Event
from noetl.store.protocol import StoreError

Decoded = TypeVar("Decoded")


class _StoredEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The event as it is stored: fields that do not apply are left out."""


class _IterationPayload(msgspec.Struct, frozen=True):
    result: Any = None


class _IterationEnd(msgspec.Struct, frozen=True):
    """The little that is read of the end of an iteration when a hundred thousand of them are asked for."""

    payload: _IterationPayload = _IterationPayload()


_ENCODER = msgspec.json.Encoder()
_ANY = msgspec.json.Decoder()
_EVENT = msgspec.json.Decoder(Event)
_ITERATION_END = msgspec.json.Decoder(_IterationEnd)


def encode_json(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii")


def decode_json(body: bytes) -> Any:  # noqa: ANN401 - plain data
    return _decode(_ANY, Any, body)


def encode_event(event: Event) -> bytes:
    return encode_json(
        _StoredEvent(
            event_id=event.event_id,
            execution_id=event.execution_id,
            seq=event.seq,
            event_type=event.event_type,
            timestamp=event.timestamp,
            source=event.source,
            entity_type=event.entity_type,
            entity_id=event.entity_id,
            status=event.status,
            parent_id=event.parent_id,
            workflow_run_id=event.workflow_run_id,
            step=event.step,
            step_run_id=event.step_run_id,
            task_run_id=event.task_run_id,
            task_label=event.task_label,
            iteration_id=event.iteration_id,
            iteration=event.iteration,
            attempt=event.attempt,
            page=event.page,
            action_id=event.action_id,
            payload=event.payload,
        )
    )


def decode_event(body: bytes) -> Event:
    return _decode(_EVENT, Event, body)


def decode_iteration_result(body: bytes) -> Any:  # noqa: ANN401 - plain data
    """The result in the end of an iteration."""
    return _decode(_ITERATION_END, _IterationEnd, body).payload.result


def _decode(decoder: msgspec.json.Decoder[Decoded], wanted: Any, body: bytes) -> Decoded:  # noqa: ANN401 - a type
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as refused:
        try:
            decoded: Decoded = msgspec.convert(json.loads(body), wanted)
        except (ValueError, msgspec.ValidationError):
            raise StoreError(
                f"A stored record cannot be read ({refused}). The database is damaged, or a later version of "
                "NoETL wrote it: restore a copy, or use that version."
            ) from refused
        return decoded
