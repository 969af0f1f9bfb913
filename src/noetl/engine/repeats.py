"""Whether a call is made again: retries after failures, polls after answers that are not there yet."""

from __future__ import annotations

import math
from typing import Any

from noetl.engine.bodies import Bodies
from noetl.engine.masking import shown
from noetl.engine.moments import repeat_names, with_names
from noetl.engine.scope import holds
from noetl.engine.state import Data, Frame
from noetl.errors import TemplateValueError
from noetl.playbook.durations import AS_WRITTEN, LONGEST, parse_duration
from noetl.playbook.model import Backoff, Poll, Retry
from noetl.template import Scope, Template


def backoff_delay(backoff: Backoff, attempt: int, scope: Scope) -> float:
    """The wait after attempt number `attempt`."""
    delay = seconds(backoff.delay, scope, "delay")
    if backoff.kind == "linear":
        delay *= attempt
    elif backoff.kind == "exponential":
        # Beyond this the wait is longer than any schedule.
        try:
            delay *= backoff.multiplier ** min(attempt - 1, 64)
        except OverflowError:
            delay = LONGEST
    delay = min(delay, LONGEST)
    if backoff.max_delay is not None:
        delay = min(delay, seconds(backoff.max_delay, scope, "max_delay"))
    return delay


def retries(retry: Retry, outcome: Data, attempt: int, scope: Scope, bodies: Bodies) -> float | None:
    """The wait before the next attempt; None: there is none."""
    most = int(number(retry.max_attempts, scope, "max_attempts"))
    if attempt >= most:
        return None
    seen = with_names(scope, repeat_names(outcome, attempt, most, bodies))
    if retry.stop_when is not None:
        again = not holds(retry.stop_when, seen)
        if retry.retry_when is not None:
            again = again and holds(retry.retry_when, seen)
    else:
        again = _is_triggered(retry, outcome)
        if again and retry.retry_when is not None:
            again = holds(retry.retry_when, seen)
    return backoff_delay(retry.backoff, attempt, scope) if again else None


def _is_triggered(retry: Retry, outcome: Data) -> bool:
    if outcome["status"] != "error":
        return False
    status = (outcome.get("http") or {}).get("status")
    if "error" in retry.on:
        return True
    if "exception" in retry.on and status is None:
        return True
    return status in retry.on


def is_ready(poll: Poll, outcome: Data, attempt: int, scope: Scope, bodies: Bodies) -> bool:
    """Whether what a poll waits for is there."""
    most = int(number(poll.max_attempts, scope, "max_attempts"))
    return holds(poll.until, with_names(scope, repeat_names(outcome, attempt, most, bodies)))


def poll_ends(poll: Poll, frame: Frame, scope: Scope) -> float | None:
    """The moment from which a poll may not look any more: its time runs from when its first look began."""
    since = frame.since if frame.polled_since is None else frame.polled_since
    if poll.deadline is None or since is None:
        return None
    return since + seconds(poll.deadline, scope, "deadline")


def number(written: Any, scope: Scope, name: str) -> float:  # noqa: ANN401 - a number or a template
    """A number that may be a template; `name` is that of its field."""
    found = written.evaluate(scope) if isinstance(written, Template) else written
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < math.inf:
        raise TemplateValueError(f"`{name}` must be a number of at least 0, {_but(written, found)}")
    return found


def seconds(written: Any, scope: Scope, name: str) -> float:  # noqa: ANN401 - a duration or a template
    """A duration that may be a template; `name` is that of its field."""
    found = written.evaluate(scope) if isinstance(written, Template) else written
    parsed = parse_duration(found)
    if parsed is None:
        raise TemplateValueError(f"`{name}` must be a duration ({AS_WRITTEN}), {_but(written, found)}")
    return parsed


def _but(written: Any, found: Any) -> str:  # noqa: ANN401 - plain data
    return (
        f"but `{written.source}` gave {shown(found)}"
        if isinstance(written, Template)
        else f"not {shown(found)}"
    )
