"""How writes of parallel iterations reach `ctx`: checked for conflicts, or combined in iteration order.

Without a reducer a key may be written by one iteration, or by several with the same value. With one,
every write counts, and the order is that of the iterations whatever the timing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from noetl.engine.bodies import is_ref, parted, parts_of
from noetl.engine.state import BlockFrame, Data, LoopRun, State


def conflicting_key(loop: LoopRun, writes: Data, reducers: Data) -> str | None:
    """A key that another iteration has written with another value."""
    return differing_key(loop.written, {key: value for key, value in writes.items() if key not in reducers})


def differing_key(written: Data, writes: Data) -> str | None:
    """A key that both have, with different values."""
    for key, value in writes.items():
        if key in written and not same(written[key], value):
            return key
    return None


def same(left: object, right: object) -> bool:
    """Equal as JSON: true is not 1, and a value is equal to the reference that stands for it."""
    if is_ref(left) != is_ref(right):
        ref, value = (left, right) if is_ref(left) else (right, left)
        assert isinstance(ref, dict)
        checksum: str = ref["checksum"]
        return hashlib.sha256(msgspec.json.encode(value)).hexdigest() == checksum
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def note_writes(noted: dict[str, list[Any]], patch: Data, reducers: Data) -> None:
    """Adds the writes of one task to those an iteration has made to reduced keys.

    Those that come to one value are combined at once; one that does not fit is kept, to be refused.
    """
    for key, value in patch.items():
        reducer = reducers.get(key)
        if reducer is None:
            continue
        before = noted.setdefault(key, [])
        fits = not any(unfit(reducer, each) for each in (*before, value))
        if before and fits and reducer in ("sum", "min", "max", "last"):
            before[:] = [REDUCERS[reducer](before[0], value)]
        else:
            before.append(value)


def combined(ctx: Data, block: BlockFrame) -> Data:
    """What the keys of `ctx` come to that the iterations of a block wrote, in the order of the elements."""
    found: Data = {}
    for index in sorted(block.noted):
        for key, values in block.noted[index].items():
            for value in values:
                found[key] = REDUCERS[block.reduce[key]](found.get(key, ctx.get(key)), value)
    return found


def apply_writes(
    state: State,
    loop: LoopRun,
    index: int,
    writes: Data,
    reducers: Data,
    every: dict[str, list[Any]] | None = None,
) -> None:
    """Applies what an iteration wrote, now or when those before it are there.

    `every` has all its writes to reduced keys, where it wrote one more than once.
    """
    plain = {key: value for key, value in writes.items() if key not in reducers}
    if plain:
        loop.written.update(plain)
        state.ctx.update(plain)
    loop.waiting[index] = {
        key: [reducers[key], *(every or {}).get(key, [value])]
        for key, value in writes.items()
        if key in reducers
    }
    while loop.applied in loop.waiting:
        for key, (reducer, *values) in loop.waiting.pop(loop.applied).items():
            for value in values:
                state.ctx[key] = REDUCERS[reducer](state.ctx.get(key), value)
        loop.applied += 1


def unfit(reducer: str, value: object) -> bool:
    """Whether a value cannot be combined by a reducer: it is asked before the write is accepted."""
    if is_ref(value):
        return reducer not in ("append", "extend", "last")
    return reducer in ("sum", "min", "max") and not _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sum(before: Any, value: Any) -> Any:  # noqa: ANN401 - whatever the playbook adds up
    return before + value if _is_number(before) else value


def _least(before: Any, value: Any) -> Any:  # noqa: ANN401
    return min(before, value) if _is_number(before) else value


def _greatest(before: Any, value: Any) -> Any:  # noqa: ANN401
    return max(before, value) if _is_number(before) else value


def _listed(before: Any) -> list[Any]:  # noqa: ANN401
    if is_ref(before) and "parts" not in before and before["schema_hint"]["type"] == "list":
        return [{**before, "spread": True}]  # a list that is stored as a whole comes first
    return list(parts_of(before) or [])


def _append(before: Any, value: Any) -> Any:  # noqa: ANN401
    return parted([*_listed(before), value])


def _extend(before: Any, value: Any) -> Any:  # noqa: ANN401
    if is_ref(value) and value["schema_hint"]["type"] == "list":
        value = {**value, "spread": True}
    return parted([*_listed(before), *(value if isinstance(value, list) else [value])])


def _union(before: Any, value: Any) -> Any:  # noqa: ANN401
    merged = _listed(before)
    for item in value if isinstance(value, list) else [value]:
        if not _has(merged, item):
            merged.append(item)
    return parted(merged)


def _has(found: list[Any], item: object) -> bool:
    return item in found and (isinstance(item, str) or any(_is_same(each, item) for each in found))


def _is_same(one: object, other: object) -> bool:
    """Equal as data: Python takes `true` for 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    return one == other


def _last(before: Any, value: Any) -> Any:  # noqa: ANN401
    return value


REDUCERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sum": _sum,
    "min": _least,
    "max": _greatest,
    "append": _append,
    "extend": _extend,
    "union": _union,
    "last": _last,
}
