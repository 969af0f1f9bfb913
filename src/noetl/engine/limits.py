"""Keeps events small: a value that is too large for its event is stored and replaced by a reference.

Only whole values are replaced (an argument, a ctx key, a workload key, a loop's elements), because only
those are looked for when a template reads them.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from noetl.engine.bodies import Bodies, is_ref
from noetl.engine.facts import Fact
from noetl.engine.state import Data

EVENT_BYTES: Final = 64 * 1024
"""No payload of an event is larger."""
VALUE_BYTES: Final = 8 * 1024
"""In a payload that is too large, values above this are stored."""
PREVIEW_CHARACTERS: Final = 200

MAPPINGS: Final = ("args", "workload", "patch", "payload", "vars")
"""The parts of a payload whose values can be references."""
WHOLE: Final = ("items", "result", "data")


class StoredBody(NamedTuple):
    key: str
    checksum: str
    body: bytes


def fit(fact: Fact, execution_id: str, bodies: Bodies) -> list[StoredBody]:
    """Shortens a fact's payload in place; the values taken out of it."""
    if len(msgspec.json.encode(fact.payload)) <= EVENT_BYTES:
        return []
    taken: list[StoredBody] = []
    payload = dict(fact.payload)
    for name in MAPPINGS:
        if isinstance(payload.get(name), dict):
            payload[name] = _fit_values(payload[name], execution_id, bodies, taken)
    for name in WHOLE:
        if name in payload:
            payload[name] = _fit_value(payload[name], execution_id, bodies, taken)
    for name in ("selected", "tokens"):
        entries = payload.get(name)
        if isinstance(entries, list):
            payload[name] = [_fit_entry(entry, execution_id, bodies, taken) for entry in entries]
    then = payload.get("then")
    if isinstance(then, dict):
        payload["then"] = {
            key: _fit_values(value, execution_id, bodies, taken) if key in ("set_iter", "set_ctx") else value
            for key, value in then.items()
        }
    fact.payload = payload
    return taken


def _fit_entry(entry: Any, execution_id: str, bodies: Bodies, taken: list[StoredBody]) -> Any:  # noqa: ANN401
    if isinstance(entry, dict) and isinstance(entry.get("args"), dict):
        return {**entry, "args": _fit_values(entry["args"], execution_id, bodies, taken)}
    return entry


def _fit_values(values: Data, execution_id: str, bodies: Bodies, taken: list[StoredBody]) -> Data:
    return {name: _fit_value(value, execution_id, bodies, taken) for name, value in values.items()}


def _fit_value(value: Any, execution_id: str, bodies: Bodies, taken: list[StoredBody]) -> Any:  # noqa: ANN401
    if is_ref(value) or not isinstance(value, str | list | dict):
        return value
    body = msgspec.json.encode(value)
    if len(body) <= VALUE_BYTES:
        return value
    ref, stored = reference(execution_id, value, body)
    bodies.keep(ref["ref"], value)
    taken.append(stored)
    return ref


def reference(execution_id: str, value: Any, body: bytes) -> tuple[Data, StoredBody]:  # noqa: ANN401 - plain data
    """The reference that stands for a value kept in the database, and what is to be kept."""
    checksum = hashlib.sha256(body).hexdigest()
    key = f"noetl://{execution_id}/{checksum[:32]}"
    ref: Data = {
        "kind": "result_ref",
        "ref": key,
        "store": "database",
        "key": key,
        "checksum": checksum,
        "size": len(body),
        "schema_hint": shape(value),
        "preview": body[:PREVIEW_CHARACTERS].decode("utf-8", "replace"),
        "extracted": {},
    }
    return ref, StoredBody(key, checksum, body)


def shape(value: Any) -> Data:  # noqa: ANN401 - plain data
    """What kind of value it is, for people who have only the reference."""
    if isinstance(value, dict):
        return {"type": "mapping", "keys": sorted(value)[:50]}
    if isinstance(value, list):
        return {"type": "list", "length": len(value)}
    if isinstance(value, str):
        return {"type": "text", "length": len(value)}
    return {"type": type(value).__name__}
