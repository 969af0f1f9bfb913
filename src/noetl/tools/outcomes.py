"""How a tool kind words its outcome: the attempt, the duration and the time of day filled in.

`started` is `time.monotonic()` at the beginning of `run`. Groups are given by keyword, under the name
that the kind's description declares (`http={"status": 200}`). Nothing here decides what an error means.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from noetl.ids import timestamp
from noetl.records.outcome import Outcome, OutcomeError, OutcomeMeta
from noetl.records.protocols import ToolCall
from noetl.tools.call_failures import CallFailedError


def ok(call: ToolCall, started: float, result: object, **groups: dict[str, Any]) -> Outcome:
    """The call did what was asked."""
    return Outcome(status="ok", meta=_meta(call, started), result=result, groups=groups)


def failed(
    call: ToolCall,
    started: float,
    kind: str,
    message: str,
    retryable: bool = False,
    details: Mapping[str, Any] | None = None,
    result: object = None,
    **groups: dict[str, Any],
) -> Outcome:
    """The call failed; `retryable` says whether the same call may succeed later."""
    error = OutcomeError(kind=kind, message=message, retryable=retryable, details=dict(details or {}))
    return Outcome(status="error", meta=_meta(call, started), result=result, error=error, groups=groups)


def failed_with(
    call: ToolCall, started: float, failure: CallFailedError, **groups: dict[str, Any]
) -> Outcome:
    """The call failed with what was raised on the way."""
    return failed(
        call,
        started,
        failure.kind,
        failure.message,
        failure.retryable,
        failure.details,
        failure.result,
        **groups,
    )


def _meta(call: ToolCall, started: float) -> OutcomeMeta:
    elapsed_ms = round((time.monotonic() - started) * 1000, 3)
    return OutcomeMeta(attempt=call.attempt, duration_ms=elapsed_ms, ts=timestamp(time.time()))
