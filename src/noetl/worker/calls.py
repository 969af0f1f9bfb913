"""One call of a tool: rendered, run within its time, its result stored if it is large.

Everything that goes wrong here is an outcome. What leaves is free of secrets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from noetl.engine.bodies import BodiesNeeded
from noetl.engine.limits import reference
from noetl.engine.state import Data
from noetl.errors import NoetlError, TemplateError
from noetl.ids import timestamp
from noetl.playbook.check.sql import DIALECTS
from noetl.playbook.durations import parse_duration
from noetl.playbook.model import Task
from noetl.records.outcome import Outcome, OutcomeError, OutcomeMeta, outcome_to_data
from noetl.records.protocols import ToolCall, ToolContext, ToolKind
from noetl.secrets.redaction import Redactor
from noetl.template import Scope, Template

INLINE_BYTES: Final = 62 * 1024
"""A result above this is stored, so that its event stays under the limit of events."""
QUIET_SECONDS: Final = 0.2
"""How long a task may run before its start is reported on its own."""


class Refused(Exception):  # noqa: N818 - not an error: an outcome on its way out
    """The call could not be made."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def render_args(args: Any, scope: Scope, redactor: Redactor) -> Any:  # noqa: ANN401 - plain data
    return _rendered(args, scope, redactor)


def render_call(
    task: Task,
    scope: Scope,
    args: Any,  # noqa: ANN401 - plain data
    spec: Data,
    redactor: Redactor,
    *,
    sql_fields: tuple[str, ...] = (),
    execution_id: str,
    step: str,
    label: str,
    task_run_id: str,
    attempt: int,
    action_id: str,
) -> ToolCall:
    """The call with every template evaluated; `scope` has the task's args in it."""
    return ToolCall(
        kind=task.kind,
        config=_rendered_config(task.config, task.kind, sql_fields, scope, redactor),
        args=args,
        spec={name: _rendered(value, scope, redactor, name) for name, value in spec.items()},
        execution_id=execution_id,
        step=step,
        task_label=label,
        task_run_id=task_run_id,
        attempt=attempt,
        action_id=action_id,
    )


def _rendered_config(
    fields: Mapping[str, Any], kind: object, sql_fields: tuple[str, ...], scope: Scope, redactor: Redactor
) -> Data:
    """The fields of a tool; in its SQL texts every value is quoted for its place."""
    rendered: Data = {}
    for name, value in fields.items():
        inner = tuple(each.removeprefix(f"{name}.") for each in sql_fields if each.startswith(f"{name}."))
        if name in sql_fields and isinstance(value, Template):
            rendered[name] = _rendered_sql(value, _rendered(kind, scope, redactor), scope, redactor, name)
        elif inner and isinstance(value, dict):
            rendered[name] = _rendered_config(value, value.get("kind"), inner, scope, redactor)
        else:
            rendered[name] = _rendered(value, scope, redactor, name)
    return rendered


def _rendered_sql(text: Template, kind: object, scope: Scope, redactor: Redactor, name: str) -> str:
    # Only tasks with SQL need it.
    from noetl.template.sql_render import render_sql  # noqa: PLC0415

    dialect = DIALECTS.get(kind) if isinstance(kind, str) else None
    if dialect is None:
        raise Refused("sql.dialect", f"values cannot be quoted in SQL of `{kind}`: bind them with `params`")
    try:
        return render_sql(text, scope, dialect, on_secret=lambda found: redactor.register(found, name))
    except TemplateError as error:
        raise Refused(error.code, error.message) from error


def _rendered(value: Any, scope: Scope, redactor: Redactor, name: str = "args") -> Any:  # noqa: ANN401
    try:
        if isinstance(value, Template):
            if value.reads_secret:
                return value.evaluate(scope, on_secret=lambda found: redactor.register(found, name))
            return value.evaluate(scope)
        if isinstance(value, dict):
            return {key: _rendered(item, scope, redactor, key) for key, item in value.items()}
        if isinstance(value, list):
            return [_rendered(item, scope, redactor, name) for item in value]
    except TemplateError as error:
        raise Refused(error.code, error.message) from error
    return value


async def with_bodies(
    evaluate: Callable[[], Any], load: Callable[[Data], Awaitable[None]]
) -> Any:  # noqa: ANN401 - whatever is evaluated
    """Evaluates, loading stored bodies as they are needed."""
    while True:
        try:
            return evaluate()
        except BodiesNeeded as needed:
            for ref in needed.refs:
                await load(ref)


def time_limit(spec: Data) -> float | None:
    """Seconds one execution of a task may take."""
    written = spec.get("timeout")
    if isinstance(written, dict):
        written = written.get("total")
    return None if written is None else parse_duration(written)


async def run_tool(
    kind: ToolKind,
    call: ToolCall,
    context: ToolContext,
    *,
    on_quiet: Callable[[], Awaitable[None]],
    now: Callable[[], float],
) -> Outcome:
    """Runs the tool; `on_quiet` is awaited once if it takes longer than a moment."""
    began = time.monotonic()
    limit = time_limit(call.spec)
    running = asyncio.ensure_future(kind.run(call, context))
    try:
        first = QUIET_SECONDS if limit is None else min(QUIET_SECONDS, limit)
        done, _ = await asyncio.wait({running}, timeout=first)
        if not done and (limit is None or limit > QUIET_SECONDS):
            await on_quiet()
            left = None if limit is None else max(0.0, limit - (time.monotonic() - began))
            done, _ = await asyncio.wait({running}, timeout=left)
        if not done:
            await _stop(running)
            return failure(call, began, now(), "timeout", f"it did not finish within {limit:g} seconds", retryable=True)
        return running.result()
    except asyncio.CancelledError:
        await _stop(running)
        raise
    except NoetlError as error:
        return failure(call, began, now(), error.code, error.message)
    except Exception as error:  # a bug of a tool becomes a recorded outcome, never the end of the worker
        return failure(call, began, now(), "tool.crashed", f"{type(error).__name__}: {error}")


async def _stop(running: asyncio.Future[Outcome]) -> None:
    running.cancel()
    await asyncio.wait({running})
    if not running.cancelled():
        running.exception()


def failure(
    call: ToolCall, began: float, now: float, kind: str, message: str, *, retryable: bool = False
) -> Outcome:
    return Outcome(
        status="error",
        meta=OutcomeMeta(
            attempt=call.attempt,
            duration_ms=round((time.monotonic() - began) * 1000, 3),
            ts=timestamp(now),
        ),
        error=OutcomeError(kind=kind, message=message, retryable=retryable),
    )


def refusal(label: str, attempt: int, now: float, refused: Refused) -> Data:
    """The outcome of a call that could not be made."""
    return outcome_to_data(
        Outcome(
            status="error",
            meta=OutcomeMeta(attempt=attempt, duration_ms=0.0, ts=timestamp(now)),
            error=OutcomeError(kind=refused.kind, message=f"task `{label}`: {refused.message}"),
        )
    )


class Shortened(msgspec.Struct, frozen=True):
    """An outcome as it is reported, and the body that was taken out of it."""

    outcome: Data
    key: str | None = None
    checksum: str = ""
    body: bytes = b""


def shorten(outcome: Data, execution_id: str, spec: Data) -> Shortened:
    """Replaces a large result by a reference."""
    limit = INLINE_BYTES
    written = spec.get("result")
    wanted = written.get("inline_max_bytes") if isinstance(written, dict) else None
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        limit = min(limit, wanted)
    result = outcome["result"]
    if result is None or isinstance(result, bool | int | float):
        return Shortened(outcome)
    if isinstance(result, dict) and result.get("kind") == "result_ref":
        return Shortened(outcome)
    body = msgspec.json.encode(result)
    if len(body) <= limit:
        return Shortened(outcome)
    ref, stored = reference(execution_id, result, body)
    select = written.get("select") if isinstance(written, dict) else None
    if isinstance(select, dict | list) and isinstance(result, dict):
        wanted_fields = select if isinstance(select, list) else list(select)
        ref["extracted"] = {name: result[name] for name in wanted_fields if name in result}
    return Shortened({**outcome, "result": ref}, stored.key, stored.checksum, stored.body)


