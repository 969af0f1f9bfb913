"""A reference to a result that is stored outside the log because it is too large for it.

The reference stands wherever the result would stand. Where the body lies and how it is loaded is
known to `results/` alone.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

RESULT_REF: Final = "result_ref"


class ResultRef(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=RESULT_REF):
    """Where a stored result lies, how to check it, and as much of it as is useful without loading it."""

    ref: str
    """The address by which NoETL finds it: `noetl://…`."""
    store: str
    """The kind of store: `database`, `file`, `nats_object`, `s3`, `gs`."""
    key: str
    checksum: str
    """The SHA-256 of the body, in hexadecimal."""
    size: int
    """Bytes."""
    schema_hint: Any = None
    """The shape of the body: its type, the names of its fields, its length."""
    preview: Any = None
    """The first part of the body, for people."""
    extracted: dict[str, Any] = {}
    """The fields that `spec.result.select` asked for."""


def ref_to_data(ref: ResultRef) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(ref)
    return data


def ref_from_data(value: object) -> ResultRef | None:
    """The reference that `value` holds; None for any other value, one that only looks like it included."""
    if not isinstance(value, dict) or value.get("kind") != RESULT_REF:
        return None
    try:
        return msgspec.convert(value, ResultRef)
    except msgspec.ValidationError:
        return None
