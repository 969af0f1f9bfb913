"""Keeps events small: a value that is too large for its event is stored and replaced by a reference.

Only whole values are replaced (an argument, a ctx key, a workload key, a loop's elements), because only
those are looked for when a template reads them.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from noetl.engine.bodies import MANIFEST, PARTS_STORE, Bodies, is_ref, parted
from noetl.engine.facts import Fact
from noetl.engine.state import Data

EVENT_BYTES: Final = 64 * 1024
"""No payload of an event is larger."""
VALUE_BYTES: Final = (8 * 1024, 1024, 384)
"""In a payload that is too large, values above this are stored; if that is not enough, smaller ones too."""
MOST_NAMES: Final = 100
"""A payload or workload with more names, in an event that is too large, is stored as a whole."""
SLIM_BYTES: Final = 1024
"""When values of this size are stored, references are cut short too."""
TEXT_CHARACTERS: Final = 2_000
"""As much of a log or of an error's message stays in such a payload."""
PREVIEW_CHARACTERS: Final = 200
NAME_CHARACTERS: Final = 80

MAPPINGS: Final = ("args", "workload", "patch", "payload", "vars")
"""The parts of a payload whose values can be references."""
WHOLE: Final = ("items", "result", "data")
WHAT_WAS_GIVEN: Final = {
    "playbook.execution.requested": ("payload",),
    "playbook.request.evaluated": ("workload",),
}
"""The mappings whose names come from outside, and can be any number."""


class StoredBody(NamedTuple):
    key: str
    checksum: str
    body: bytes


def fit(fact: Fact, execution_id: str, bodies: Bodies) -> list[StoredBody]:
    """Shortens a fact's payload in place; the values taken out of it."""
    if _is_small(fact.payload):
        return []
    payload = {name: _brief(name, part) for name, part in fact.payload.items()}
    taken: list[StoredBody] = []
    for name in WHAT_WAS_GIVEN.get(fact.event_type, ()):
        if len(payload.get(name, ())) > MOST_NAMES:
            payload[name] = _Shortening(execution_id, bodies, taken, EVENT_BYTES // 2).whole(payload[name])
    for most in VALUE_BYTES:
        if _is_small(payload):
            break
        payload = _Shortening(execution_id, bodies, taken, most).payload(payload)
    fact.payload = payload
    return taken


def _is_small(payload: Data) -> bool:
    return len(msgspec.json.encode(payload)) <= EVENT_BYTES


def _brief(name: str, part: Any) -> Any:  # noqa: ANN401 - plain data
    """Shortens what is only read by people: a log, a reason, and what an error says."""
    if name == "log" and isinstance(part, str):
        return part[-TEXT_CHARACTERS:]
    if name == "reason" and isinstance(part, str):
        return part[:TEXT_CHARACTERS]
    if name == "error" and isinstance(part, dict):
        message = str(part.get("message", ""))
        return {**part, "message": message[:TEXT_CHARACTERS]} | ({"details": {}} if "details" in part else {})
    if name in ("outcome", "then", "event", "data", "payload") and isinstance(part, dict) and "error" in part:
        return {key: _brief(key, value) for key, value in part.items()}
    if name == "event" and isinstance(part, dict):
        return {key: _brief(key, value) for key, value in part.items()}
    return part


class _Shortening:
    """One go at a payload: every value above `most` bytes goes out of it."""

    def __init__(self, execution_id: str, bodies: Bodies, taken: list[StoredBody], most: int) -> None:
        self._execution_id = execution_id
        self._bodies = bodies
        self._taken = taken
        self._most = most

    def payload(self, payload: Data) -> Data:
        shorter = dict(payload)
        for name, part in payload.items():
            if name in MAPPINGS and isinstance(part, dict):
                shorter[name] = self.values(part)
            elif name in WHOLE:
                shorter[name] = self.value(part)
            elif name in ("selected", "tokens"):
                shorter[name] = [self.entry(entry) for entry in part]
            elif name == "then":
                shorter[name] = {
                    key: self.values(value) if key in ("set_iter", "set_ctx") else value
                    for key, value in part.items()
                }
            elif name == "reduced":
                shorter[name] = {key: [self.value(each) for each in values] for key, values in part.items()}
            elif name == "reused" and isinstance(part, dict):
                shorter[name] = {
                    "ctx": self.values(part["ctx"]),
                    "vars": self.values(part["vars"]),
                    "steps": {step: self.step(kept) for step, kept in part["steps"].items()},
                }
            elif name == "outcome":
                shorter[name] = {**part, "result": self.value(part.get("result"))}
            elif name == "case":
                shorter[name] = self.case(part)
            elif name == "next":
                shorter[name] = self.route(part) if isinstance(part, dict) else part
            elif name == "ends":
                result = [self.value(each) for each in part["result"]]
                shorter[name] = {**part, "route": self.route(part["route"]), "result": result}
        return shorter

    def case(self, said: Data) -> Data:
        frame = said["frame"]
        shorter: Data = {**said, "frame": {**frame, "routes": [self.route(each) for each in frame["routes"]]}}
        shorter["frame"]["result"] = [self.value(each) for each in frame["result"]]
        if "overrides" in frame:
            shorter["frame"]["overrides"] = self.values(frame["overrides"])
        if "overrides" in frame.get("again", ()):
            shorter["frame"]["again"] = {
                **frame["again"],
                "overrides": self.values(frame["again"]["overrides"]),
            }
        if "changes" in said:
            shorter["changes"] = [self.change(each) for each in said["changes"]]
        return shorter

    def route(self, route: Data) -> Data:
        return {**route, "selected": [self.entry(entry) for entry in route["selected"]]}

    def change(self, change: list[Any]) -> list[Any]:
        """What `set` or `collect` did: a list that was appended stays one element, another is many."""
        if change[0] == "set":
            return ["set", self.values(change[1])]
        kind, into, mode, value = change
        short = self.value(value)
        if mode == "extend" and is_ref(short) and isinstance(value, list):
            short = {**short, "spread": True}
        return [kind, into, mode, short]

    def step(self, kept: Data) -> Data:
        return {**kept, "result": self.value(kept["result"]), "results": self.values(kept["results"])}

    def entry(self, entry: Any) -> Any:  # noqa: ANN401 - a token, or its id
        if isinstance(entry, dict):
            short = {**entry, "args": self.values(entry["args"])}
            if "event" in entry:
                short["event"] = _brief("event", entry["event"])
            return {**short, "result": self.value(entry["result"])} if "result" in entry else short
        return entry

    def values(self, values: Data) -> Data:
        return {name: self.value(value) for name, value in values.items()}

    def value(self, value: Any) -> Any:  # noqa: ANN401 - plain data
        if is_ref(value) and value["store"] == PARTS_STORE:
            # The list is in the reference: what is large in it goes out of it, and many parts do too.
            value = parted([self.value(part) for part in value["parts"]])
            if is_ref(value) and len(msgspec.json.encode(value["parts"])) > self._most:
                return self.whole(value["parts"])
        if is_ref(value):
            return self._slim(value)
        if not isinstance(value, str | list | dict):
            return value
        body = msgspec.json.encode(value)
        return value if len(body) <= self._most else self._stored(value, body)

    def whole(self, value: Any) -> Data:  # noqa: ANN401 - a list or a mapping, with references in it or not
        parts = value.values() if isinstance(value, dict) else value
        is_manifest = any(map(is_ref, parts))
        ref = self._stored(value, msgspec.json.encode(value), at_hand=not is_manifest)
        return {**ref, MANIFEST: True} if is_manifest else ref

    def _stored(self, value: Any, body: bytes, *, at_hand: bool = True) -> Data:  # noqa: ANN401 - plain data
        ref, stored = reference(self._execution_id, value, body)
        if at_hand:
            self._bodies.keep(ref, value)
        self._taken.append(stored)
        return self._slim(ref)

    def _slim(self, ref: Data) -> Data:
        """Where there is little room, a reference without what can be read from its body as well."""
        if self._most > SLIM_BYTES or len(msgspec.json.encode(ref)) <= self._most:
            return ref
        hint = {name: part for name, part in (ref.get("schema_hint") or {}).items() if name != "keys"}
        return {**ref, "schema_hint": hint, "preview": None, "extracted": {}}


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
        return {"type": "mapping", "keys": [key[:NAME_CHARACTERS] for key in sorted(value)[:50]]}
    if isinstance(value, list):
        return {"type": "list", "length": len(value)}
    if isinstance(value, str):
        return {"type": "text", "length": len(value)}
    return {"type": type(value).__name__}
