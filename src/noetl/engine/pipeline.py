"""The interpreter of a pipeline: what comes next, and what follows from an outcome.

It decides and never moves: what it decides is recorded in `task.done`, and applying that record
(`frames.py`) is what moves a frame, live and in a replay alike. The worker drives it: it asks what
comes next, runs the tool, asks what follows, reports, applies.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from noetl.engine.bodies import Bodies
from noetl.engine.repeats import backoff_delay, is_ready, number, poll_ends, retries, seconds
from noetl.engine.scope import holds, render_each
from noetl.engine.state import Data, Frame
from noetl.errors import TemplateError, TemplateValueError
from noetl.playbook.model import Block, Case, Directive, Node, Parallel, Rule, Task
from noetl.template import Scope

CLOCK_ROUNDING: Final = 1e-3
"""What a clock may be short of the moment at which something was stopped."""


class Then(NamedTuple):
    """What follows a task: the directive with its patches, and where control goes."""

    do: str
    position: int | None = None
    delay: float = 0.0
    set_iter: Data = {}  # noqa: RUF012 - a field's default, which nobody changes
    set_ctx: Data = {}  # noqa: RUF012
    error: Data | None = None

    def to_data(self) -> Data:
        data: Data = {"do": self.do}
        if self.position is not None:
            data["next"] = self.position
        if self.delay:
            data["delay"] = self.delay
        if self.set_iter:
            data["set_iter"] = self.set_iter
        if self.set_ctx:
            data["set_ctx"] = self.set_ctx
        if self.error is not None:
            data["error"] = self.error
        return data


class Ended(NamedTuple):
    """A pipeline has nothing left to run."""


def upcoming(body: tuple[Node, ...], frame: Frame) -> Task | Block | Parallel | Case | Ended:
    """What a frame comes to next."""
    if frame.position >= len(body):
        return Ended()
    return body[frame.position]


def action_id(run_id: str, iteration_id: str | None, position: int, entry: int) -> str:
    """The same for all attempts of one call, and for no other call."""
    text = f"{run_id}|{iteration_id or ''}|{position}|{entry}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def runaway(frame: Frame, most: int) -> Data | None:
    """The error of a pipeline that runs more tasks than it may."""
    if frame.task_runs < most:
        return None
    return {
        "kind": "pipeline.runaway",
        "message": f"the pipeline ran {most} tasks without an end; `spec.limits.task_runs` raises the limit",
        "retryable": False,
    }


# --- before the tool runs -------------------------------------------------------------------------------


def before(task: Task, frame: Frame, scope: Scope) -> Then | None:
    """What a skip rule decides; None: the tool is to run."""
    try:
        if task.when is not None and not holds(task.when, scope):
            return Then("null", frame.position + 1)
        for rule in task.rules or ():
            if rule.then.do == "skip" and holds(rule.when, scope):
                return _patched(rule.then, Then("skip", frame.position + 1), scope)
    except TemplateError as error:
        return Then("fail", error=_template_error(error))
    return None


# --- after the tool ran ---------------------------------------------------------------------------------


def after(
    task: Task,
    body: tuple[Node, ...],
    frame: Frame,
    outcome: Data,
    scope: Scope,
    bodies: Bodies,
    *,
    now: float,
    chance: float = 1.0,
) -> Then:
    """What follows an outcome. `chance`, between 0 and 1, is drawn by the caller."""
    try:
        repeated = repeat(task, frame, outcome, scope, bodies, now=now, chance=chance)
        if repeated is not None:
            return repeated
        rule = _matching(task, scope)
        if rule is None:
            return _default(task, frame, outcome)
        decided = _directed(rule.then, body, frame, outcome, scope)
        if decided.delay and rule.then.backoff.jitter:
            return decided._replace(delay=decided.delay * (0.5 + chance / 2))
        return decided
    except TemplateError as error:
        return Then("fail", error=_template_error(error))


def asks_about_outcome(task: Task) -> bool:
    """Whether `after` evaluates anything for this task; without it an outcome needs no scope of its own."""
    return bool(task.rules) or task.retry is not None or task.poll is not None


def repeat(
    task: Task, frame: Frame, outcome: Data, scope: Scope, bodies: Bodies, *, now: float, chance: float
) -> Then | None:
    """Another attempt by the task's retry, another look by its poll, or the end of a poll; None: neither."""
    ends = None if task.poll is None else poll_ends(task.poll, frame, scope)
    if task.retry is not None:
        delay = retries(task.retry, outcome, frame.attempt, scope, bodies)
        if delay is not None:
            delay = delay * (0.5 + chance / 2) if task.retry.backoff.jitter else delay
            if ends is None or now + delay < ends:
                return Then("retry", delay=delay)
    if task.poll is None:
        return None
    looks = frame.polls + 1
    if outcome["status"] == "error":
        is_over = ends is not None and now + CLOCK_ROUNDING >= ends
        return _exhausted(looks) if is_over and outcome["error"]["kind"] == "timeout" else None
    if is_ready(task.poll, outcome, looks, scope, bodies):
        return None
    interval = seconds(task.poll.interval, scope, "interval")
    most = number(task.poll.max_attempts, scope, "max_attempts")
    if looks >= most or (ends is not None and now + interval >= ends):
        return _exhausted(looks)
    return Then("poll", delay=interval)


def _exhausted(looks: int) -> Then:
    message = f"what the poll waits for was not there after {looks} look{'s' if looks > 1 else ''}"
    return Then("fail", error={"kind": "poll.exhausted", "message": message, "retryable": True})


def _matching(task: Task, scope: Scope) -> Rule | None:
    otherwise = None
    for rule in task.rules or ():
        if rule.then.do == "skip":
            continue
        if rule.when is None:
            otherwise = otherwise or rule
        elif holds(rule.when, scope):
            return rule
    return otherwise


def _default(task: Task, frame: Frame, outcome: Data) -> Then:
    """Without rules for outcomes an error fails; with some that all miss, control continues."""
    has_rules = any(rule.then.do != "skip" for rule in task.rules or ())
    if outcome["status"] == "error" and not has_rules and task.on_error == "fail":
        return Then("fail", error=outcome["error"])
    return Then("continue", frame.position + 1)


def _directed(then: Directive, body: tuple[Node, ...], frame: Frame, outcome: Data, scope: Scope) -> Then:
    match then.do:
        case "continue":
            return _patched(then, Then("continue", frame.position + 1), scope)
        case "jump":
            return _patched(then, Then("jump", _position_of(body, then.to)), scope)
        case "break":
            return _patched(then, Then("break", len(body)), scope)
        case "retry":
            return _retry(then, frame, outcome, scope)
        case _:
            error = outcome.get("error") or {
                "kind": "task.failed",
                "message": "a rule of the task's policy failed it",
                "retryable": False,
            }
            return _patched(then, Then("fail", error=error), scope)


def _patched(then: Directive, decided: Then, scope: Scope) -> Then:
    """With the patches, all rendered before any is applied."""
    return decided._replace(
        set_iter=render_each(then.set_iter, scope), set_ctx=render_each(then.set_ctx, scope)
    )


def _position_of(body: tuple[Node, ...], label: str | None) -> int:
    for position, node in enumerate(body):
        if isinstance(node, Task | Block) and node.label == label:
            return position
    raise TemplateValueError(f"no task of this pipeline is labelled `{label}`")


def _retry(then: Directive, frame: Frame, outcome: Data, scope: Scope) -> Then:
    attempts = number(then.attempts, scope, "attempts")
    if frame.attempt >= attempts:
        error = outcome.get("error") or {
            "kind": "retry.exhausted",
            "message": f"the condition for a retry still held after {frame.attempt} attempts",
            "retryable": False,
        }
        return _patched(then, Then("fail", error=error), scope)
    return _patched(then, Then("retry", delay=backoff_delay(then.backoff, frame.attempt, scope)), scope)


def _template_error(error: TemplateError) -> Data:
    return {"kind": error.code, "message": error.message, "retryable": False}
