"""Says retries, polls and tolerated errors as rules of the task they belong to."""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl.playbook.model import Backoff, Count, Directive, Guard, Poll, Retry, Rule, Task
from noetl.playbook.rewriting.expressions import (
    Rewriter,
    as_guard,
    conjuncts,
    expression,
    negation,
)
from noetl.playbook.rewriting.inexpressible import Report
from noetl.playbook.rewriting.views import FAILED, OK, in_repeats
from noetl.template import Template

CONTINUE: Final = Rule(when=None, then=Directive(do="continue"))
FAIL: Final = Rule(when=Template("{{ " + FAILED + " }}"), then=Directive(do="fail"))


class Repeats(NamedTuple):
    """The rules that repeat a call, which stand before all others.

    `only_errors`: they repeat at every error and at nothing else, so that what they leave is no error.
    """

    rules: tuple[Rule, ...]
    only_errors: bool


def repeats(task: Task, report: Report, *, fall_through: bool) -> Repeats:
    """The rules for a task's retry and poll.

    With `fall_through` an outcome whose attempts are used up meets the rules behind; otherwise it
    may also fail there and then, which is what `retry` does by itself.
    """
    if task.retry is not None and task.poll is not None:
        report.say("retry-twice", task.poll.at)
    elif task.retry is not None:
        return _retry(task.retry, report, fall_through)
    elif task.poll is not None:
        return _poll(task.poll, report)
    return Repeats((), only_errors=True)


def plain_rules(task: Task, report: Report) -> tuple[Rule, ...] | None:
    """The rules of a task that is followed by the next one."""
    tolerant = task.on_error == "continue"
    found = repeats(task, report, fall_through=tolerant or task.rules is not None)
    if task.rules is not None:
        if found.rules and any(rule.then.do == "retry" for rule in task.rules):
            report.say("retry-twice", task.at)
        return (*found.rules, *task.rules)
    if tolerant:
        return (*found.rules, CONTINUE)
    if not found.rules:
        return None
    return (*found.rules, CONTINUE) if found.only_errors else (*found.rules, FAIL, CONTINUE)


def _retry(retry: Retry, report: Report, fall_through: bool) -> Repeats:
    if retry.scope == "chain":
        report.say("retry-chain", retry.at)
    parts, only_errors = _condition(retry, report)
    predicates = retry.stop_when is not None or retry.retry_when is not None
    if fall_through or retry.stop_when is not None:
        if not isinstance(retry.max_attempts, int):
            report.say("retry-count", retry.at)
        parts = [*parts, f"_attempt < {retry.max_attempts}"]
    rule = Rule(when=as_guard(parts), then=directive(retry, report))
    return Repeats((rule,), only_errors=only_errors and not predicates)


def _condition(retry: Retry, report: Report) -> tuple[list[str], bool]:
    """When the call is repeated, and whether that is at every error and at nothing else."""
    wanted = _parts(retry.retry_when, retry.max_attempts, report, retry)
    stop = _expression(retry.stop_when, retry.max_attempts, report, retry)
    if retry.stop_when is not None:
        return [*wanted, negation(stop)], False
    codes = [str(trigger) for trigger in retry.on if isinstance(trigger, int)]
    if "exception" in retry.on:
        report.say("retry-exception", retry.at)
    if "error" in retry.on or not codes:
        return [FAILED, *wanted], not wanted
    return [FAILED, f"outcome.http.status in [{', '.join(codes)}]", *wanted], False


def _parts(guard: Guard | None, attempts: Count, report: Report, retry: Retry) -> list[str]:
    return [] if guard is None else conjuncts(_expression(guard, attempts, report, retry))


def _expression(guard: Guard | None, attempts: Count, report: Report, owner: Retry | Poll) -> str:
    if guard is None:
        return "false"
    rewriter = Rewriter(in_repeats(attempts))
    changed = rewriter.expression(expression(guard))
    if rewriter.failed:
        report.say("retry-predicate", owner.at)
    return changed


def directive(retry: Retry, report: Report) -> Directive:
    """`do: retry` with the attempts and delays of a clause."""
    return Directive(do="retry", attempts=retry.max_attempts, backoff=_backoff(retry, report))


def _backoff(retry: Retry, report: Report) -> Backoff:
    """The same delays; a factor other than 2 is computed from the number of the attempt."""
    backoff = retry.backoff
    kind, delay = backoff.kind, backoff.delay
    if kind == "exponential" and backoff.multiplier != 2:
        kind = "none"
        if isinstance(delay, Template):
            report.say("retry-growth", retry.at)
        elif backoff.multiplier != 1 and delay:
            delay = Template(f"{{{{ {delay:g} * {backoff.multiplier:g} ** (_attempt - 1) }}}}")
    return Backoff(kind=kind, delay=delay, max_delay=backoff.max_delay, jitter=backoff.jitter)


def _poll(poll: Poll, report: Report) -> Repeats:
    """Until it holds; a poll whose attempts are used up fails, as `retry` does."""
    if poll.deadline is not None:
        report.say("poll-deadline", poll.at)
    until = _expression(poll.until, poll.max_attempts, report, poll)
    rule = Rule(
        when=as_guard([OK, negation(until)]),
        then=Directive(do="retry", attempts=poll.max_attempts, backoff=Backoff(delay=poll.interval)),
    )
    return Repeats((rule,), only_errors=False)
