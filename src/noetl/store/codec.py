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
    return encode_json(event)


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
