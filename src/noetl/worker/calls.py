"""One call of a tool: rendered, run within its time, its result stored if it is large.

Everything that goes wrong here is an outcome. What leaves is free of secrets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Mapping
from typing import Any, Final, Protocol

import msgspec

from noetl.engine.bodies import Bodies, BodiesNeeded, holds_reference, is_ref
from noetl.engine.limits import reference
from noetl.engine.masking import shown
from noetl.engine.state import Data
from noetl.errors import NoetlError, TemplateError, UndefinedNameError
from noetl.ids import timestamp
from noetl.playbook.check.names import INSTEAD, RESULT_NAMES
from noetl.playbook.check.sql import DIALECTS
from noetl.playbook.durations import AS_WRITTEN, parse_duration
from noetl.playbook.model import Task
from noetl.records.outcome import Outcome, OutcomeError, OutcomeMeta, outcome_to_data
from noetl.records.protocols import ToolCall, ToolContext, ToolKind
from noetl.secrets.redaction import Redactor
from noetl.template import Scope, Template
from noetl.worker.quiet import QuietReport

INLINE_BYTES: Final = 62 * 1024
"""A result above this is stored, so that its event stays under the limit of events."""
EXTRACTED_BYTES: Final = 8 * 1024
"""The fields that a reference shows without its body are smaller than this together."""


class Refused(Exception):  # noqa: N818 - not an error: an outcome on its way out
    """The call could not be made."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


LOOK_SECONDS: Final = 10.0
"""A call that waits may take so much longer than it may wait, to see what has come."""


class TimeIsUpError(Exception):
    """A wait knows that its time is over before what it waits for."""


def _refused(error: TemplateError) -> Refused:
    """The error of a template; who reads a result that is not there hears by which names there may be one."""
    if isinstance(error, UndefinedNameError) and error.name.partition(".")[0] in RESULT_NAMES:
        return Refused(error.code, f"{error.message}; {INSTEAD}")
    return Refused(error.code, error.message)


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
        spec=_rendered_spec(spec, scope, redactor),
        execution_id=execution_id,
        step=step,
        task_label=label,
        task_run_id=task_run_id,
        attempt=attempt,
        action_id=action_id,
    )


def _rendered_spec(spec: Data, scope: Scope, redactor: Redactor) -> Data:
    """The knobs of a task; a limit of time that is none would let it run for ever."""
    rendered: Data = {name: _rendered(value, scope, redactor, name) for name, value in spec.items()}
    limit = rendered.get("timeout")
    if isinstance(limit, dict):
        for name, part in limit.items():
            if part is not None:
                _require_duration(f"timeout.{name}", part)
    elif limit is not None or isinstance(spec.get("timeout"), Template):
        _require_duration("timeout", limit)
    return rendered


def _require_duration(name: str, found: object) -> None:
    if parse_duration(found) is None:
        raise Refused("spec.invalid", f"`{name}` must be a duration ({AS_WRITTEN}), but it is {shown(found)}")


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
        return render_sql(text, scope, dialect, on_secret=_keeping_out(redactor, name))
    except TemplateError as error:
        raise _refused(error) from error


def _keeping_out(redactor: Redactor, name: str) -> Callable[[object], None]:
    """Has what an expression made of a secret kept out; what is empty was not there."""
    return lambda found: None if found == "" else redactor.register(found, name)


def _rendered(value: Any, scope: Scope, redactor: Redactor, name: str = "args") -> Any:  # noqa: ANN401
    try:
        if isinstance(value, Template):
            if value.reads_secret:
                return value.evaluate(scope, on_secret=_keeping_out(redactor, name))
            return value.evaluate(scope)
        if isinstance(value, dict):
            return {key: _rendered(item, scope, redactor, key) for key, item in value.items()}
        if isinstance(value, list):
            return [_rendered(item, scope, redactor, name) for item in value]
    except TemplateError as error:
        raise _refused(error) from error
    return value


class BodiesAtHand(Protocol):
    """Some stored results are at hand, and others can be loaded."""

    bodies: Bodies

    async def load_body(self, ref: Data) -> None: ...


async def with_bodies(evaluate: Callable[[], Any], found: BodiesAtHand) -> Any:  # noqa: ANN401 - whatever is evaluated
    """Evaluates, loading stored bodies as they are needed."""
    try:
        return evaluate()
    except BodiesNeeded as needed:
        missing = needed.refs
    try:
        with found.bodies.needing() as need:
            while True:
                for ref in missing:
                    need(ref)
                    await found.load_body(ref)
                try:
                    return evaluate()
                except BodiesNeeded as needed:
                    missing = needed.refs
    finally:
        found.bodies.trim()


def time_limit(spec: Data) -> float | None:
    """Seconds one execution of a task may take."""
    written = spec.get("timeout")
    if isinstance(written, dict):
        written = written.get("total")
    return None if written is None else parse_duration(written)


def within(call: ToolCall, seconds: float | None) -> ToolCall:
    """The call with at most so much time."""
    if seconds is None:
        return call
    limit = time_limit(call.spec)
    most = max(0.0, seconds if limit is None else min(limit, seconds))
    written = call.spec.get("timeout")
    timeout = {**written, "total": most} if isinstance(written, dict) else most
    return msgspec.structs.replace(call, spec={**call.spec, "timeout": timeout})


def _time_left(
    kind: ToolKind, call: ToolCall, context: ToolContext, now: Callable[[], float]
) -> float | None:
    """A call that only waits goes on under a later lease, and its time goes on with it.

    What it waits for may have come before its time was up, and it has to see that: it ends by itself.
    """
    limit = time_limit(call.spec)
    if limit is None or not kind.DESCRIPTION.waits:
        return limit
    return max(0.0, context.began + limit - now()) + LOOK_SECONDS


async def run_tool(
    kind: ToolKind,
    call: ToolCall,
    context: ToolContext,
    *,
    quiet: QuietReport,
    now: Callable[[], float],
) -> Outcome:
    """Runs the tool; `quiet` tells of it if it takes longer than a moment.

    The tool runs in the task of its caller: one task more for each call would cost more than a small call.
    """
    began = time.monotonic()
    try:
        outcome = await _within(_time_left(kind, call, context, now), kind, call, context, began, now)
    except asyncio.CancelledError:
        quiet.stop()
        raise
    except NoetlError as error:
        outcome = failure(call, began, now(), error.code, error.message)
    except Exception as error:  # noqa: BLE001 - a bug of a tool becomes a recorded outcome, never the end of the worker
        outcome = failure(call, began, now(), "tool.crashed", f"{type(error).__name__}: {error}")
    await quiet.settle()
    return outcome


async def _within(
    limit: float | None,
    kind: ToolKind,
    call: ToolCall,
    context: ToolContext,
    began: float,
    now: Callable[[], float],
) -> Outcome:
    """Runs the tool for as long as it may; one that is stopped cleans up before this returns."""
    if limit is None:
        return await kind.run(call, context)
    late = asyncio.timeout(limit)
    try:
        async with late:
            outcome = await kind.run(call, context)
            if not late.expired():
                return outcome
    except TimeIsUpError:
        pass
    except TimeoutError:
        if not late.expired():
            raise
    allowed = time_limit(call.spec)
    return failure(
        call, began, now(), "timeout", f"it did not finish within {allowed:g} seconds", retryable=True
    )


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


def _extracted(result: Data, wanted: list[str]) -> Data:
    """The selected fields, as far as a reference may hold them: the others are read from the body."""
    found: Data = {}
    left = EXTRACTED_BYTES
    for name in wanted:
        if name in result:
            left -= len(msgspec.json.encode(result[name]))
            if left < 0:
                break
            found[name] = result[name]
    return found


class Shortened(msgspec.Struct, frozen=True):
    """An outcome as it is reported, and the body that was taken out of it."""

    outcome: Data
    key: str | None = None
    checksum: str = ""
    body: bytes = b""


def shorten(outcome: Data, execution_id: str, spec: Data, made: Container[str] | None = None) -> Shortened:
    """Replaces a large result by a reference.

    `made`: the references that the call was given for what it stored; Refused where its result has another
    one, for data from outside must not decide what is loaded later. None: the result is the engine's own.
    """
    limit = INLINE_BYTES
    written = spec.get("result")
    wanted = written.get("inline_max_bytes") if isinstance(written, dict) else None
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        limit = min(limit, wanted)
    result = outcome["result"]
    if result is None or isinstance(result, bool | int | float):
        return Shortened(outcome)
    if is_ref(result) and (made is None or result["ref"] in made):
        return Shortened(outcome)
    body = msgspec.json.encode(result)
    if made is not None and holds_reference(result, body):
        raise Refused(
            "result.reference",
            "the result has `kind: result_ref` in it, as references to stored results do; "
            "only NoETL makes those",
        )
    if len(body) <= limit:
        return Shortened(outcome)
    ref, stored = reference(execution_id, result, body)
    select = written.get("select") if isinstance(written, dict) else None
    if isinstance(select, dict | list) and isinstance(result, dict):
        wanted_fields = select if isinstance(select, list) else list(select)
        ref["extracted"] = _extracted(result, wanted_fields)
    return Shortened({**outcome, "result": ref}, stored.key, stored.checksum, stored.body)
