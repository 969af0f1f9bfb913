"""Reads v2's clauses that repeat a call: `retry` and `poll`."""

from __future__ import annotations

from typing import Final, Literal

from noetl.errors import TemplateSyntaxError
from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.fields import Fields
from noetl.playbook.model import Backoff, Guard, Poll, Retry
from noetl.playbook.reader import Mapping, Node, Scalar, Sequence
from noetl.template import Template

RETRY_KEYS: Final = frozenset(
    {"max_attempts", "initial_delay", "backoff_multiplier", "backoff", "max_delay", "jitter"}
    | {"retry_when", "stop_when", "on", "scope"}
)
BACKOFF_KEYS: Final = frozenset({"type", "delay_seconds", "max_delay_seconds", "jitter", "multiplier"})
BACKOFF_TYPES: Final[dict[str, Literal["none", "linear", "exponential"]]] = {
    "fixed": "none",
    "none": "none",
    "linear": "linear",
    "exponential": "exponential",
}
ANSWER_NAMES: Final = frozenset({"response", "result", "data"})
FAILURE_NAMES: Final = frozenset({"error", "status_code", "success"})
POLL_KEYS: Final = frozenset({"until", "interval", "max_attempts", "deadline"})


def tool_retry(low: Lowering, fields: Fields) -> Retry | None:
    """`retry` written on the tool itself."""
    return read_retry(low, fields, "retry") if low.v2 else None


def read_retry(low: Lowering, owner: Fields, name: str = "retry") -> Retry | None:
    """A retry clause, or a number of attempts."""
    node = owner.raw(name)
    if node is None:
        return None
    if isinstance(node, Scalar):
        attempts = owner.count(name)
        return None if attempts is None else Retry(max_attempts=attempts, at=position(owner.key(name)))
    if not isinstance(node, Mapping):
        owner.wrong_type(name, "a number of attempts or a mapping")
        return None
    fields = Fields(low.findings, node, f"`{name}`", RETRY_KEYS)
    attempts = fields.count("max_attempts")
    scope = fields.choice("scope", ("tool", "chain", "step"))
    retry = Retry(
        max_attempts=3 if attempts is None else attempts,
        backoff=_backoff(low, fields),
        on=_triggers(low, fields),
        retry_when=fields.guard("retry_when"),
        stop_when=fields.guard("stop_when"),
        scope="chain" if scope == "chain" else "tool",
        at=position(owner.key(name)),
    )
    if retry.stop_when is None and _asks_for_an_answer(retry.retry_when):
        low.findings.report(
            "retry.good_answer",
            fields.key("retry_when"),
            "only failed calls are repeated, and they have no answer that `retry_when` could read",
            "write `stop_when` or `poll.until` to repeat a call until its answer is good",
        )
    return retry


def _asks_for_an_answer(when: Guard | None) -> bool:
    """Whether a condition reads the answer of a call and nothing that tells of a failure."""
    if not isinstance(when, Template):
        return False
    try:
        read = {read.path[0] for read in when.reads}
    except TemplateSyntaxError:  # reported where templates are checked
        return False
    return bool(read & ANSWER_NAMES) and not read & FAILURE_NAMES


def _backoff(low: Lowering, fields: Fields) -> Backoff:
    """By `backoff: {type, …}`, or by `initial_delay` and `backoff_multiplier`."""
    delay = fields.duration("initial_delay")
    multiplier = fields.number("backoff_multiplier")
    kind: Literal["none", "linear", "exponential"] = "none" if multiplier is None else "exponential"
    max_delay = fields.duration("max_delay")
    jitter = fields.flag("jitter")
    node = fields.raw("backoff")
    if isinstance(node, Mapping):
        inner = Fields(low.findings, node, "`backoff`", BACKOFF_KEYS)
        kind = BACKOFF_TYPES.get(inner.choice("type", BACKOFF_TYPES) or "", kind)
        multiplier = inner.number("multiplier") or multiplier
        delay = delay if (own := inner.duration("delay_seconds")) is None else own
        max_delay = max_delay if (most := inner.duration("max_delay_seconds")) is None else most
        jitter = jitter if (spread := inner.flag("jitter")) is None else spread
    elif node is not None:
        kind = BACKOFF_TYPES.get(fields.choice("backoff", BACKOFF_TYPES) or "", kind)
    return Backoff(
        kind=kind,
        delay=0.0 if delay is None else delay,
        multiplier=2.0 if multiplier is None else multiplier,
        max_delay=max_delay,
        jitter=jitter or False,
    )


def _triggers(low: Lowering, fields: Fields) -> tuple[str | int, ...]:
    node = fields.raw("on")
    if node is None:
        return ("error",)
    written = node.items if isinstance(node, Sequence) else [node]
    found = [trigger for item in written if (trigger := _trigger(low, item)) is not None]
    return tuple(found) or ("error",)


def _trigger(low: Lowering, node: Node) -> str | int | None:
    if isinstance(node, Scalar):
        if node.value in ("error", "exception"):
            return str(node.value)
        if type(node.value) is int:
            return node.value
    low.findings.report(
        "value.choice", node, "`on` of a retry takes `error`, `exception` or status codes", "on: [502, 503]"
    )
    return None


def read_poll(low: Lowering, owner: Fields) -> Poll | None:
    node = owner.mapping("poll")
    if node is None:
        return None
    fields = Fields(low.findings, node, "`poll`", POLL_KEYS)
    fields.require("until")
    until = fields.guard("until")
    interval = fields.duration("interval")
    attempts = fields.count("max_attempts")
    if until is None:
        return None
    return Poll(
        until=until,
        interval=1.0 if interval is None else interval,
        max_attempts=60 if attempts is None else attempts,
        deadline=fields.duration("deadline"),
        at=position(owner.key("poll")),
    )


def is_step_scoped(fields: Fields) -> bool:
    """Whether a clause says `scope: step`."""
    node = fields.raw("retry")
    scope = node.get("scope") if isinstance(node, Mapping) else None
    return isinstance(scope, Scalar) and scope.value == "step"
