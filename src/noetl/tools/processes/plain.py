"""What code returned, as JSON text; or a refusal that names the place and the type.

Runs inside a code process. Conversions are few and written down in `docs` with the python tool: dates and
times become ISO text, decimals numbers where a JSON number says the same digits and text otherwise, sets
and other collections lists, dataclasses mappings, arrays and frames lists and records (recognised by
what they can do: their libraries are never imported here). NaN, infinities, bytes and all other objects
are refused rather than guessed at.
"""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 500
COLLECTIONS = frozenset(
    {"set", "frozenset", "deque", "range", "dict_keys", "dict_values", "KeysView", "ValuesView"}
)
MISSING = frozenset({"NaTType", "NAType"})

_Path = tuple[str, ...]


class NotPlainError(Exception):
    """A value that JSON cannot hold; the message names its place."""


def to_json(value: object) -> bytes:
    """The value as JSON in UTF-8. The C encoder does the work; what it stumbles over is walked slowly."""
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError, NotPlainError):
        return _encode(_walk(value, ("result",), [])).encode()


def _encode(value: object) -> str:
    return _ENCODER.encode(value)


def _stand_in(value: object) -> object:
    """What the encoder writes for an object that it does not know itself."""
    return _converted(value, ("result",))


# Cycles are not looked for: they end in a RecursionError, and the slow walk finds the place.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), default=_stand_in
)


def _walk(value: object, path: _Path, above: list[int]) -> object:
    """The value made of dict, list, str, int, float, bool and None alone."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotPlainError(f"{_place(path)} is {value!r}, which JSON has no number for")
        return float(value)
    if id(value) in above:
        raise NotPlainError(f"{_place(path)} contains itself")
    if len(above) >= MAX_DEPTH:
        raise NotPlainError(f"the result is nested deeper than {MAX_DEPTH} levels, at {_place(path[:4])}…")
    above.append(id(value))
    plain: object
    if isinstance(value, dict):  # loops, not comprehensions: those take a frame of their own in each level
        plain = mapping = {}
        for key, item in value.items():
            mapping[_key(key, path)] = _walk(item, (*path, _step(key)), above)
    elif isinstance(value, list | tuple):
        plain = items = []
        for index, item in enumerate(value):
            items.append(_walk(item, (*path, f"[{index}]"), above))
    else:
        plain = _walk(_converted(value, path), path, above)
    above.pop()
    return plain


def _converted(value: object, path: _Path) -> object:
    """One object as something closer to JSON."""
    kind = type(value)
    if kind.__module__ in ("datetime", "pandas._libs.tslibs.timestamps") and hasattr(value, "isoformat"):
        return value.isoformat()
    if kind.__name__ in MISSING and kind.__module__.startswith("pandas."):
        return None
    if kind.__module__ in ("datetime", "pandas._libs.tslibs.timedeltas") and hasattr(value, "total_seconds"):
        return value.total_seconds()
    if kind.__module__ == "decimal":
        return _decimal(value, path)
    if kind.__module__ in ("uuid", "pathlib"):
        return str(value)
    if kind.__module__ == "fractions":
        raise NotPlainError(f"{_place(path)} is a Fraction: return float(…) or text")
    if isinstance(value, bytes | bytearray | memoryview):
        raise NotPlainError(f"{_place(path)} is {kind.__name__}: return text, by .decode() or base64")
    if kind.__name__ in COLLECTIONS and kind.__module__ in ("builtins", "collections", "collections.abc"):
        return _ordered(value)
    if hasattr(kind, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in kind.__dataclass_fields__}
    if hasattr(kind, "_member_map_"):  # an Enum
        return value.value  # type: ignore[attr-defined]
    return _from_libraries(value, path)


def _from_libraries(value: object, path: _Path) -> object:
    """Arrays, scalars, frames and series, told by what they can do."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if library in ("pandas", "polars", "pyarrow"):
        table: Any = value
        if hasattr(table, "to_pylist"):  # arrow's tables and arrays
            return table.to_pylist()
        if hasattr(table, "to_dicts"):  # frames of polars
            return table.to_dicts()
        if library == "pandas" and hasattr(table, "columns"):
            return [_without_missing(row) for row in table.to_dict("records")]
        if library == "polars" and hasattr(table, "to_list"):
            return table.to_list()
        if hasattr(table, "tolist"):
            return [None if _is_missing(item) else item for item in table.tolist()]
    if library == "numpy":
        if kind.__name__ in ("datetime64", "timedelta64"):
            return None if str(value) == "NaT" else str(value)
        if hasattr(value, "tolist"):
            return value.tolist()
    hint = ": return list(…) of it" if hasattr(kind, "__next__") else ""
    raise NotPlainError(f"{_place(path)} is a {_type_name(kind)}, which JSON cannot hold{hint}")


def _without_missing(row: dict[Any, object]) -> dict[Any, object]:
    """A frame says "no value" by NaN, NaT or NA; JSON says null."""
    return {key: None if _is_missing(item) else item for key, item in row.items()}


def _is_missing(item: object) -> bool:
    return (isinstance(item, float) and item != item) or type(item).__name__ in MISSING


def _decimal(value: Any, path: _Path) -> object:  # noqa: ANN401 - a Decimal, whose module is not imported
    if not value.is_finite():
        raise NotPlainError(f"{_place(path)} is {value}, which JSON has no number for")
    if value == value.to_integral_value() and value.adjusted() < 40:
        return int(value)
    number = float(value)
    return number if type(value)(repr(number)) == value else str(value)


def _ordered(value: Any) -> list[object]:  # noqa: ANN401 - any collection
    """A list; that of a set in one order whatever the hashes, where its members can be compared."""
    items = list(value)
    if isinstance(value, set | frozenset):
        try:
            items.sort()
        except TypeError:
            return items
    return items


def _key(key: object, path: _Path) -> str:
    if isinstance(key, str):
        return _text(key, path)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int | float):
        return repr(key)
    if isinstance(key, tuple | bytes):
        raise NotPlainError(f"{_place(path)} has the key {key!r}, a {type(key).__name__}: keys are text")
    return str(_converted(key, path))


def _text(value: str, path: _Path) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotPlainError(f"{_place(path)} is text with half of a surrogate pair") from None
    return str(value)


def _step(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def _place(path: _Path) -> str:
    return "".join(path)


def _type_name(kind: type) -> str:
    return (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__playbook__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
