"""Parts of the model as short phrases: guards, durations, values, and what a task calls.

Graphs and explanations share these words, so that one thing is called the same in both. Nothing here
knows a format: a phrase is one line of plain text, not yet escaped, with its whitespace collapsed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from noetl.playbook.model import Backoff, Count, Duration, Guard, Loop, Task, Value
from noetl.template import Template

ELLIPSIS: Final = "…"
SQL_KINDS: Final = frozenset({"postgres", "duckdb", "sqlite", "snowflake"})
_SOLE_EXPRESSION: Final = re.compile(r"\s*\{\{-?\s*((?:(?!\}\}).)*?)\s*-?\}\}\s*", re.DOTALL)
_EXPRESSION: Final = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_WHITE: Final = re.compile(r"\s+")
_FAILURE_WORDS: Final = re.compile(
    r"""step\.failed|call\.error|==\s*(?:'error'|"error"|'failed'|"failed")|\berror\s+is\s+defined"""
)


def shortened(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    line = _WHITE.sub(" ", text).strip()
    return line if len(line) <= limit else line[: limit - 1].rstrip() + ELLIPSIS


def printable(text: str) -> str:
    """The text without characters that a terminal would obey or an XML file may not hold."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def plural(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def listed(words: Collection[str], conjunction: str = "and") -> str:
    """`a`, `b` and `c`."""
    shown = [f"`{word}`" for word in words]
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} {conjunction} {shown[-1]}"


def expression(template: Template) -> str:
    """What stands between the braces of a sole expression; the source of anything else."""
    sole = _SOLE_EXPRESSION.fullmatch(template.source)
    return _WHITE.sub(" ", (sole[1] if sole else template.source)).strip()


def guard_text(guard: Guard, limit: int = 60) -> str:
    if isinstance(guard, Template):
        return shortened(expression(guard), limit)
    return "true" if guard else "false"


def tells_failure(guard: Guard | None) -> bool:
    """Whether a guard is written to catch a failure. For display only: a clever guard may fool it."""
    return isinstance(guard, Template) and _FAILURE_WORDS.search(guard.source) is not None


def value_text(value: Value, limit: int = 60) -> str:
    """A value as one would write it, shortened."""
    return shortened(_written(value), limit)


def _written(value: Value, depth: int = 0) -> str:
    if isinstance(value, Template):
        return expression(value) if depth == 0 else _source(value)
    if isinstance(value, dict):
        if depth > 2:
            return "{…}"
        return "{" + ", ".join(f"{key}: {_written(item, depth + 1)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        if depth > 2:
            return "[…]"
        return "[" + ", ".join(_written(item, depth + 1) for item in value[:12]) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def field_text(value: Value, limit: int = 60) -> str:
    """A tool's field; expressions within a text stand in single braces: `{workload.api_url}/orders`."""
    return shortened(_source(value), limit)


def _source(value: Value) -> str:
    if not isinstance(value, Template):
        return _written(value, 1)
    return _EXPRESSION.sub(lambda found: f"{{{found[1]}}}", value.source)


# --- numbers ---------------------------------------------------------------------------------------


def count_text(count: Count) -> str:
    return f"{{{{ {expression(count)} }}}}" if isinstance(count, Template) else str(count)


def duration_text(duration: Duration) -> str:
    """`250 ms`, `5 s`, `2 min`, `1 h 30 min`."""
    if isinstance(duration, Template):
        return expression(duration)
    if duration <= 0:
        return "0 s"
    if duration < 1:
        return f"{duration * 1000:g} ms"
    whole = int(duration)
    if whole != duration or whole < 60:
        return f"{duration:g} s"
    parts = []
    for seconds, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        amount, whole = divmod(whole, seconds)
        if amount:
            parts.append(f"{amount} {unit}")
    return " ".join(parts[:2])


def waits_text(backoff: Backoff, attempts: Count) -> str:
    """The waits between attempts: `waiting 1 s, 2 s, 4 s … between them`; empty when there is no wait."""
    delay = backoff.delay
    if isinstance(delay, Template) or isinstance(backoff.max_delay, Template):
        growth = {"none": "each time", "linear": "growing linearly", "exponential": "doubling"}[backoff.kind]
        return f"waiting {duration_text(delay)} ({growth})"
    if delay <= 0:
        return "without waiting in between"
    about = "about " if backoff.jitter else ""
    if backoff.kind == "none":
        return f"waiting {about}{duration_text(delay)} before each"
    known = attempts - 1 if isinstance(attempts, int) else 4
    waits = [_wait(backoff, delay, number) for number in range(1, min(known, 3) + 1)]
    shown = list(dict.fromkeys(duration_text(wait) for wait in waits))
    more = " …" if known > 3 and len(shown) > 1 else ""
    most = "" if backoff.max_delay is None else f", at most {duration_text(backoff.max_delay)}"
    return f"waiting {about}{', '.join(shown)}{more}{most}" if shown else ""


def _wait(backoff: Backoff, delay: float, number: int) -> float:
    grown = delay * number if backoff.kind == "linear" else delay * backoff.multiplier ** (number - 1)
    return min(grown, backoff.max_delay) if isinstance(backoff.max_delay, float | int) else grown


def loop_pace(loop: Loop) -> str:
    if loop.mode == "sequential":
        return "one after another"
    if loop.max_in_flight == 1:
        return "one at a time"
    return f"up to {count_text(loop.max_in_flight)} at once"


# --- what a task calls -------------------------------------------------------------------------------


def call_text(task: Task, limit: int = 60) -> str:
    """The kind and the field that says most about the call: `http GET https://…`."""
    detail = call_detail(task.kind, task.config, limit)
    return f"{task.kind} {detail}" if detail else task.kind


def call_detail(kind: str, config: Mapping[str, Any], limit: int = 60) -> str:
    if kind == "http":
        method = config.get("method", "GET")
        address = config.get("url", config.get("endpoint"))
        shown = "" if address is None else field_text(address, limit)
        return f"{field_text(method, 10).upper()} {shown}".strip()
    if kind in SQL_KINDS:
        return _sql_detail(config, limit)
    for name in _TELLING_FIELDS.get(kind, ()):
        if config.get(name) is not None:
            return _first_line(config[name], limit)
    return ""


# The fields that say most about a call, in the order in which they are looked for.
_TELLING_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "workbook": ("name", "task"),
    "playbook": ("path", "name"),
    "shell": ("command", "cmds"),
    "script": ("path", "source", "uri"),
    "container": ("image",),
    "wait": ("signal", "approval", "seconds", "duration", "until", "for"),
    "secrets": ("name", "secret"),
    "nats": ("subject", "bucket", "key"),
    "s3": ("uri", "path", "bucket"),
    "gcs": ("uri", "path", "bucket"),
}


def _sql_detail(config: Mapping[str, Any], limit: int) -> str:
    text = config.get("query", config.get("command"))
    if text is not None:
        return _first_line(text, limit)
    table = config.get("table")
    if table is None:
        return ""
    return f"{field_text(config.get('mode', 'insert'), 10)} into {field_text(table, limit)}"


def _first_line(value: Value, limit: int) -> str:
    if isinstance(value, list):
        value = value[0] if value else ""
    text = _source(value)
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("--", "#"))]
    return shortened(" ".join(lines), limit)
