"""A call that failed, on its way out of the functions that made it to the one that words its outcome."""

from __future__ import annotations

from typing import Any


class CallFailedError(Exception):
    """The call failed and is over; it never leaves a tool kind's `run`."""

    def __init__(self, kind: str, message: str, *, retryable: bool = False, **details: object) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retryable = retryable
        self.details: dict[str, Any] = details
        self.group: dict[str, Any] | None = None
        """The fields of the kind, where some are known in spite of the failure."""
        self.result: object = None
