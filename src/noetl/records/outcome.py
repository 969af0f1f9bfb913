"""The outcome of one execution of a task: the one shape every tool kind answers with.

A failed task is data, so an outcome never carries an exception. What a kind adds stands in a group
named for it (`http`, `pg`, `py`, `shell`), and templates read it as `outcome.http.status`; therefore
`outcome_to_data` puts the groups beside the fields that every outcome has.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

OutcomeStatus: TypeAlias = Literal["ok", "error", "skipped"]

COMMON_FIELDS: Final = ("status", "result", "error", "meta")


class OutcomeError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task failed; `retryable` says whether the same call may succeed later."""

    kind: str
    message: str
    retryable: bool = False
    details: dict[str, Any] = {}


class OutcomeMeta(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int
    duration_ms: float
    ts: str
    """When the task ended, as RFC 3339."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one execution of a task."""

    status: OutcomeStatus
    meta: OutcomeMeta
    result: Any = None
    """A small result, or the data of a `ResultRef`."""
    error: OutcomeError | None = None
    groups: dict[str, dict[str, Any]] = {}
    """The fields of the kind, by the name of their group."""

    def __post_init__(self) -> None:
        if (self.error is not None) != (self.status == "error"):
            raise ValueError("an outcome has an error exactly when its status is `error`")
        for name in COMMON_FIELDS:
            if name in self.groups:
                raise ValueError(f"`{name}` is a field of every outcome and cannot name a group")


def outcome_to_data(outcome: Outcome) -> dict[str, Any]:
    """The outcome as templates and events show it."""
    error = outcome.error
    return {
        "status": outcome.status,
        "result": outcome.result,
        "error": None if error is None else msgspec.structs.asdict(error),
        "meta": msgspec.structs.asdict(outcome.meta),
        **outcome.groups,
    }


def outcome_from_data(data: dict[str, Any]) -> Outcome:
    """The outcome that `outcome_to_data` wrote; msgspec.ValidationError where it is none."""
    fields: dict[str, Any] = {name: data[name] for name in COMMON_FIELDS if name in data}
    fields["groups"] = {name: group for name, group in data.items() if name not in COMMON_FIELDS}
    return msgspec.convert(fields, Outcome)
