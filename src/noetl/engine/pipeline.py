"""The interpreter of a pipeline: what comes next, and what follows from an outcome.

It decides and never moves: what it decides is recorded in `task.done`, and applying that record
(`frames.py`) is what moves a frame, live and in a replay alike. The worker drives it: it asks what
comes next, runs the tool, asks what follows, reports, applies.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from noetl.engine.scope import holds, render_each
from noetl.engine.state import Data, Frame
from noetl.errors import TemplateError, TemplateValueError
from noetl.playbook.model import Backoff, Block, Directive, Node, Rule, Task
from noetl.template import Scope, Template


class Then(NamedTuple):
    """What follows a task: the directive with its patches, and where control goes."""

    do: str
    position: int | None = None
    delay: float = 0.0
    set_iter: Data = {}
    set_ctx: Data = {}
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


def upcoming(body: tuple[Node, ...], frame: Frame) -> Task | Block | Ended:
    """What a frame comes to next."""
    if frame.position >= len(body):
        return Ended()
    node = body[frame.position]
    if isinstance(node, Task | Block):
        return node
    raise TypeError(f"a pipeline cannot run a {type(node).__name__} yet")


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
        "message": f"the pipeline ran {most} tasks without coming to an end; `spec.limits.task_runs` raises the limit",
        "retryable": False,
    }


# --- before the tool runs -------------------------------------------------------------------------------


def before(task: Task, frame: Frame, scope: Scope) -> Then | None:
    """What a skip rule decides; None: the tool is to run."""
    try:
        for rule in task.rules or ():
            if rule.then.do == "skip" and holds(rule.when, scope):
                return _patched(rule.then, Then("skip", frame.position + 1), scope)
    except TemplateError as error:
        return Then("fail", error=_template_error(error))
    return None


# --- after the tool ran ---------------------------------------------------------------------------------


def after(
    task: Task, body: tuple[Node, ...], frame: Frame, outcome: Data, scope: Scope, chance: float = 1.0
) -> Then:
    """What follows an outcome by the task's rules. `chance`, between 0 and 1, is drawn by the caller."""
    try:
        rule = _matching(task, scope)
        if rule is None:
            return _default(task, frame, outcome)
        decided = _directed(rule.then, body, frame, outcome, scope)
        if decided.delay and rule.then.backoff.jitter:
            return decided._replace(delay=decided.delay * (0.5 + chance / 2))
        return decided
    except TemplateError as error:
        return Then("fail", error=_template_error(error))


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
    attempts = _number(then.attempts, scope)
    if frame.attempt >= attempts:
        error = outcome.get("error") or {
            "kind": "retry.exhausted",
            "message": f"the condition for a retry still held after {frame.attempt} attempts",
            "retryable": False,
        }
        return _patched(then, Then("fail", error=error), scope)
    return _patched(then, Then("retry", delay=backoff_delay(then.backoff, frame.attempt, scope)), scope)


def backoff_delay(backoff: Backoff, attempt: int, scope: Scope) -> float:
    """The wait after attempt number `attempt`."""
    delay = _number(backoff.delay, scope)
    if backoff.kind == "linear":
        delay *= attempt
    elif backoff.kind == "exponential":
        # Beyond this the wait is longer than any schedule, and the power would overflow.
        delay *= backoff.multiplier ** min(attempt - 1, 64)
    if backoff.max_delay is not None:
        delay = min(delay, _number(backoff.max_delay, scope))
    return delay


def _number(written: Any, scope: Scope) -> float:  # noqa: ANN401 - a number or a template
    found = written.evaluate(scope) if isinstance(written, Template) else written
    if isinstance(found, bool) or not isinstance(found, int | float) or found < 0:
        raise TemplateValueError(f"a number is needed here, not `{found}`")
    return found


def _template_error(error: TemplateError) -> Data:
    return {"kind": error.code, "message": error.message, "retryable": False}
