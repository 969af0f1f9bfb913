"""Results that are stored elsewhere, as templates see them.

A reference can stand for a whole step or task result, a ctx key, an argument. Reading into one needs its
body: if that is not at hand, `BodiesNeeded` says which, whoever evaluates loads them and asks again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from noetl.engine.state import Data
from noetl.errors import NoetlError
from noetl.records.result_ref import RESULT_REF
from noetl.template import UNDEFINED, View


class BodiesNeeded(NoetlError):  # noqa: N818 - an answer that is expected, not a fault
    """Stored bodies must be loaded before this can be evaluated."""

    code = "result.body_needed"

    def __init__(self, refs: tuple[Data, ...]) -> None:
        super().__init__("stored results must be loaded first: " + ", ".join(ref["ref"] for ref in refs))
        self.refs = refs


MOST_BYTES: Final = 32 << 20
"""Of stored results, as JSON, that one execution has at hand."""
RECENT_USES: Final = 64
"""What was among the last so many that were used stays, however large: others are likely to use it too."""


class _Body:
    __slots__ = ("size", "used", "value")

    def __init__(self, value: Any, size: int, used: int) -> None:  # noqa: ANN401 - plain data
        self.value = value
        self.size = size
        self.used = used


class Bodies:
    """The bodies at hand, by their reference. Any of them can be loaded again, so `trim` lets old ones go."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self._most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self._loaded: dict[str, _Body] = {}
        self._bytes = 0
        self._uses = 0
        self._needed: Counter[str] = Counter()

    def keep(self, ref: Data, body: Any) -> None:  # noqa: ANN401 - plain data
        self._drop(ref["ref"])
        self._uses += 1
        size = ref.get("size") or 0
        self._loaded[ref["ref"]] = _Body(body, size, self._uses)
        self._bytes += size

    def get(self, ref: Data) -> Any:  # noqa: ANN401 - plain data
        found = self._loaded.get(ref["ref"])
        if found is None:
            raise BodiesNeeded((ref,))
        self._uses += 1
        found.used = self._uses
        return found.value

    @contextmanager
    def needing(self) -> Iterator[Callable[[Data], None]]:
        """What is told of inside stays until the end: an evaluation must find all that it needs at once."""
        needed: list[str] = []

        def need(ref: Data) -> None:
            needed.append(ref["ref"])
            self._needed[ref["ref"]] += 1

        try:
            yield need
        finally:
            self._needed.subtract(needed)
            self._needed = +self._needed

    def trim(self) -> None:
        """Lets go of what was used longest ago, if there is too much."""
        if self._bytes <= self._most_bytes:
            return
        for name, body in sorted(self._loaded.items(), key=lambda each: each[1].used):
            if self._bytes <= self._most_bytes or body.used > self._uses - RECENT_USES:
                break
            if name not in self._needed:
                self._drop(name)

    def forget(self) -> None:
        self._loaded.clear()
        self._bytes = 0

    def _drop(self, name: str) -> None:
        dropped = self._loaded.pop(name, None)
        if dropped is not None:
            self._bytes -= dropped.size


NO_BODIES: Final = Bodies()
MARK_OF_REFERENCES: Final = msgspec.json.encode(RESULT_REF)
PARTS_STORE: Final = "parts"
"""The store of a list that holds references: the reference has the list in it."""


def is_ref(value: object) -> bool:
    return type(value) is dict and value.get("kind") == RESULT_REF and "ref" in value


def holds_reference(value: Any, written: bytes) -> bool:  # noqa: ANN401 - plain data
    """Whether anything in a value looks like a reference; `written` is the value as JSON."""
    if MARK_OF_REFERENCES not in written:
        return False
    left = [value]
    while left:
        each = left.pop()
        if is_ref(each):
            return True
        if isinstance(each, dict | list):
            left += each.values() if isinstance(each, dict) else each
    return False


class ReferenceRefusedError(NoetlError):
    """A reference to a stored result that NoETL has not made."""

    code = "result.reference"


def refuse_references(value: Any, what: str) -> None:  # noqa: ANN401 - plain data
    """Data from outside is never a reference: whoever sends one could read what is not theirs."""
    if holds_reference(value, msgspec.json.encode(value)):
        raise ReferenceRefusedError(
            f"{what} has `kind: result_ref` in it, as references to stored results do; only NoETL makes those"
        )


def parted(values: list[Any]) -> Any:  # noqa: ANN401 - a list, or the reference to it
    """A list some of whose elements are stored elsewhere, as one reference: only whole values can be one."""
    if not any(map(is_ref, values)):
        return values
    digest = hashlib.sha256(msgspec.json.encode(values)).hexdigest()
    return {
        "kind": RESULT_REF,
        "ref": f"noetl://parts/{digest[:32]}",
        "store": PARTS_STORE,
        "key": digest,
        "checksum": "",
        "size": sum(part["size"] for part in values if is_ref(part)),
        "schema_hint": {"type": "list", "length": len(values)},
        "preview": None,
        "extracted": {},
        "parts": values,
    }


def parts_of(value: Any) -> list[Any] | None:  # noqa: ANN401 - plain data
    """The elements of a list, stored ones as references; None where the value is no such list."""
    found = value.get("parts") if is_ref(value) else value
    return found if isinstance(found, list) else None


MANIFEST: Final = "manifest"
"""Of a reference: the stored body has references in it, for parts that are stored by themselves."""
STORED_PATH: Final = "stored_path"
"""What a result that is kept in a file is asked for its place by; its body is not loaded for that."""


def stored_path(ref: Data) -> object:
    """Where a stored body lies, from the folder of its execution; undefined where it is no file there."""
    if ref["store"] != "file" or "://" in ref["key"]:
        return UNDEFINED
    return ref["key"].partition("/")[2]


def view(value: Any, bodies: Bodies) -> Any:  # noqa: ANN401 - plain data
    """The value, or for a reference a view that loads it when it is read into."""
    return BodyView(value, bodies) if is_ref(value) else value


class BodyView(View):
    """A stored value: its own keys, read on demand."""

    __slots__ = ("_bodies", "ref")

    def __init__(self, ref: Data, bodies: Bodies) -> None:
        self.ref = ref
        self._bodies = bodies

    def lookup(self, name: str) -> object:
        if name == STORED_PATH:
            return stored_path(self.ref)
        extracted = self.ref.get("extracted") or {}
        if name in extracted:
            return extracted[name]
        body = self._bodies.get(self.ref)
        return body.get(name, UNDEFINED) if isinstance(body, dict) else UNDEFINED

    def plain(self) -> object:
        return self._bodies.get(self.ref)

    def __str__(self) -> str:
        return str(self.plain())


class StoredValues(View, Mapping[str, Any]):
    """A mapping some of whose values are references: `ctx`, `args`, `iter`, an outcome."""

    __slots__ = ("_bodies", "_values")

    def __init__(self, values: Data, bodies: Bodies) -> None:
        self._values = values
        self._bodies = bodies

    def lookup(self, name: str) -> object:
        return view(self._values[name], self._bodies) if name in self._values else UNDEFINED

    def plain(self) -> object:
        return {name: _plain(self[name]) for name in self._values}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - plain data
        return view(self._values[name], self._bodies)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __str__(self) -> str:
        return str(self.plain())


class StoredMapping(View, Mapping[str, Any]):
    """A mapping that is stored as a whole: a workload of very many values."""

    __slots__ = ("_bodies", "_ref")

    def __init__(self, ref: Data, bodies: Bodies) -> None:
        self._ref = ref
        self._bodies = bodies

    def _loaded(self) -> StoredValues:
        return StoredValues(self._bodies.get(self._ref), self._bodies)

    def lookup(self, name: str) -> object:
        return self._loaded().lookup(name)

    def plain(self) -> object:
        return self._loaded().plain()

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - plain data
        return self._loaded()[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded()

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def __str__(self) -> str:
        return str(self.plain())


def _plain(value: Any) -> Any:  # noqa: ANN401 - plain data
    return value.plain() if isinstance(value, View) else value


def readable(values: Data, bodies: Bodies) -> Any:  # noqa: ANN401 - a dict, or a view that reads like one
    """The mapping itself where it holds no reference; it may be stored as a whole."""
    if is_ref(values):
        return StoredMapping(values, bodies)
    return StoredValues(values, bodies) if any(map(is_ref, values.values())) else values


def whole(values: Data, bodies: Bodies) -> Data:
    """The mapping with the values that its references stand for."""
    return {name: bodies.get(value) if is_ref(value) else value for name, value in values.items()}


class CollectedView(View):
    """What `collect` has gathered: a list some of whose parts are stored elsewhere."""

    __slots__ = ("_bodies", "_parts")

    def __init__(self, parts: list[Any], bodies: Bodies) -> None:
        self._parts = parts
        self._bodies = bodies

    def lookup(self, name: str) -> object:
        return UNDEFINED

    def plain(self) -> object:
        whole: list[Any] = []
        for part in self._parts:
            if not is_ref(part):
                whole.append(part)
            elif part.get("spread"):
                whole.extend(self._bodies.get(part))
            else:
                whole.append(self._bodies.get(part))
        return whole

    def __str__(self) -> str:
        return str(self.plain())


def collected(values: Data, bodies: Bodies) -> Data:
    """The values of `set` and `collect` as templates see them."""
    return {
        name: CollectedView(value, bodies) if isinstance(value, list) and any(map(is_ref, value)) else value
        for name, value in values.items()
    }


class ResultView(View):
    """The result of a step or task: its own keys first, then what is known about it."""

    __slots__ = ("_about", "_bodies", "_result")

    def __init__(self, result: Any, about: Data, bodies: Bodies) -> None:  # noqa: ANN401 - plain data
        self._result = result
        self._about = about
        self._bodies = bodies

    def lookup(self, name: str) -> object:
        about = self._about
        if about.get("status") == "failed" and name in ("error", "status"):
            return about[name]
        if name == STORED_PATH and is_ref(self._result):
            return stored_path(self._result)
        body = self._bodies.get(self._result) if is_ref(self._result) else self._result
        if isinstance(body, dict) and name in body:
            return body[name]
        if name in ("result", "data"):
            # Itself, so that `step.data.result` comes to the same.
            return self
        if name in about:
            return about[name]
        if isinstance(body, list):
            if name == "rows":
                return body
            if name == "row_count":
                return len(body)
        return UNDEFINED

    def plain(self) -> object:
        return self._bodies.get(self._result) if is_ref(self._result) else self._result

    def __str__(self) -> str:
        return str(self.plain())

    @property
    def stored(self) -> Data | None:
        """The reference, where the result is one."""
        return self._result if is_ref(self._result) else None
