"""Subset match: what a case expects against what a run gave (README.md)."""

from __future__ import annotations

import json
from typing import Any

ABSENT = type("Absent", (), {"__repr__": lambda self: "nothing"})()
TYPES: dict[str, Any] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "list": list,
    "mapping": dict,
    "null": type(None),
}


def is_type(name, got):
    if isinstance(got, bool):
        return name == "boolean"
    return isinstance(got, TYPES[name])


def contains(want, got):
    if isinstance(got, str):
        return str(want) in got
    if isinstance(got, list):
        return any(matches(want, item) for item in got)
    return isinstance(got, dict) and want in got


MATCHERS = {
    "$len": lambda want, got: isinstance(got, (str, list, dict)) and matches(want, len(got)),
    "$contains": contains,
    "$type": is_type,
    "$gt": lambda want, got: is_type("number", got) and got > want,
    "$in": lambda want, got: any(matches(choice, got) for choice in want),
    "$any": lambda want, got: got is not ABSENT,
    "$absent": lambda want, got: (got is ABSENT) == bool(want),
}


def mismatches(want, got, where="") -> list[str]:
    """One line for each place where `got` does not match `want`; empty when it matches."""
    if isinstance(want, dict) and want and all(key in MATCHERS for key in want):
        failed = {name: arg for name, arg in want.items() if not MATCHERS[name](arg, got)}
        return [f"{where}: expected {show(failed)}, got {show(got)}"] if failed else []
    if isinstance(want, dict) and isinstance(got, dict):
        return [
            line
            for key, value in want.items()
            for line in mismatches(value, got.get(key, ABSENT), f"{where}.{key}" if where else str(key))
        ]
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        return [
            line
            for i, pair in enumerate(zip(want, got, strict=True))
            for line in mismatches(*pair, f"{where}[{i}]")
        ]
    equal = isinstance(want, bool) == isinstance(got, bool) and want == got
    return [] if equal else [f"{where}: expected {show(want)}, got {show(got)}"]


def matches(want, got) -> bool:
    return not mismatches(want, got)


def show(value, limit=600) -> str:
    text = repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
