"""What the body of a step does, told in sentences: calls, retries, rules, loops within, cases.

A narration is a list of `Line`s, indented by nesting; `explain.py` puts them on the page. Guards of the
common shapes are told in words ("the call fails"), all others are quoted: an explanation must never say
something the playbook does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from noetl.playbook.model import (
    Action,
    Block,
    CallAction,
    Case,
    CaseBranch,
    CollectAction,
    Directive,
    FailAction,
    Guard,
    Loop,
    NextAction,
    Node,
    Parallel,
    Poll,
    ResultAction,
    Retry,
    RetryAction,
    Rule,
    SetAction,
    Sink,
    SinkAction,
    SkipAction,
    Target,
    Task,
    TaskAction,
    Value,
)
from noetl.playbook.wording import (
    SQL_KINDS,
    call_detail,
    count_text,
    duration_text,
    expression,
    field_text,
    guard_text,
    listed,
    loop_pace,
    shortened,
    value_text,
    waits_text,
)
from noetl.records.durations import parse_duration
from noetl.template import Template

DETAIL: Final = 90
SQL_DETAIL: Final = 60
PRODUCTS: Final = {"postgres": "PostgreSQL", "duckdb": "DuckDB", "sqlite": "SQLite", "snowflake": "Snowflake"}


class Line(NamedTuple):
    """A sentence; `bullet` stands before it."""

    depth: int
    text: str
    bullet: str = ""


# --- guards --------------------------------------------------------------------------------------------

_PLAIN_GUARDS: Final = {
    "outcome.status == 'error'": "the call fails",
    "outcome.status == 'ok'": "the call succeeds",
    "outcome.error.retryable": "the error may pass",
    "outcome.status == 'error' and outcome.error.retryable": "the call fails with an error that may pass",
    "event.name == 'step.failed'": "the step failed",
    "event.name == 'step.done'": "the step is done",
    "event.name == 'loop.done'": "the loop is done",
    "event.name == 'call.done'": "the call is done",
    "event.name == 'call.error'": "the call failed",
    "event.name == 'step.enter'": "the step is entered",
    "event.name == 'step.exit'": "the step is about to end",
    "event.name == 'timer.fired'": "a timer fires",
}
_EVENT: Final = re.compile(r"event\.name == '([\w.:-]+)'")
_STATUS: Final = re.compile(
    r"(?:outcome\.http\.status|response\.status_code) (==|>=|>|<|<=|in|not in) ([\d\[\], ]+)"
)
_RELATIONS: Final = {
    "==": "is {}",
    ">=": "is {} or more",
    ">": "is over {}",
    "<": "is under {}",
    "<=": "is {} or less",
    "in": "is one of {}",
    "not in": "is none of {}",
}


def condition(guard: Guard) -> str:
    """A guard as a clause that can follow `if`."""
    if not isinstance(guard, Template):
        return "always" if guard else "never"
    text = expression(guard).replace('"', "'")
    if plain := _PLAIN_GUARDS.get(text):
        return plain
    if event := _EVENT.fullmatch(text):
        return f"the event `{event[1]}` arrives"
    opening, conjunction, rest = text.partition(" and ")
    if conjunction and opening.startswith("event.name ==") and opening in _PLAIN_GUARDS:
        return f"{_PLAIN_GUARDS[opening]} and `{shortened(expression(guard)[-len(rest) :], DETAIL)}`"
    if status := _STATUS.fullmatch(text):
        return f"the HTTP status {_RELATIONS[status[1]].format(status[2].strip(' []'))}"
    return f"`{guard_text(guard, DETAIL)}`"


def _if(guard: Guard | None) -> str:
    if guard is None:
        return "Otherwise"
    if isinstance(guard, Template):
        return f"If {condition(guard)}"
    return condition(guard).capitalize()


# --- calls ---------------------------------------------------------------------------------------------


def call_sentence(task: Task) -> str:
    """What a task calls, as what follows its name: `sends GET https://…`."""
    detail = call_detail(task.kind, task.config, SQL_DETAIL if task.kind in SQL_KINDS else DETAIL)
    sentence = _verb(task.kind, detail)
    using = task.config.get("auth")
    if isinstance(using, str | Template):
        sentence += f", signed in with `{value_text(using, 40)}`"
    if isinstance(task.args, dict) and task.args and task.kind not in SQL_KINDS:
        given = assigned(dict(list(task.args.items())[:6]))
        sentence += f", given {given}" + (", …" if len(task.args) > 6 else "")
    elif task.args and not isinstance(task.args, dict):
        sentence += f", given {value_text(task.args, 40)}"
    if (timeout := task.spec.get("timeout")) is not None:
        sentence += f"; a call may take {timeout_text(timeout)}"
    return sentence


def timeout_text(timeout: Value) -> str:
    """`30 s`; the parts of a timeout that has several (connect, read, total)."""
    if isinstance(timeout, Template):
        return value_text(timeout, 40)
    seconds = parse_duration(timeout)
    return field_text(timeout, 40) if seconds is None else duration_text(seconds)


def _verb(kind: str, detail: str) -> str:
    if kind in SQL_KINDS:
        product = PRODUCTS[kind]
        if " into " in detail and " " not in detail.partition(" into ")[0]:
            verb, _, table = detail.partition(" into ")
            return f"{verb}s rows into `{table}` ({product})"
        return f"runs SQL on {product}: {detail}" if detail else f"runs SQL on {product}"
    plain = {
        "http": f"sends {detail}",
        "python": "runs Python code",
        "noop": "does nothing",
        "workbook": f"does the workbook task `{detail}`",
        "playbook": f"runs the playbook `{detail}` and waits for its result",
        "shell": f"runs the command `{detail}`" if detail else "runs a command",
        "script": f"runs the script `{detail}`" if detail else "runs a script",
        "container": f"runs the container image `{detail}`" if detail else "runs a container",
        "wait": f"waits for `{detail}`" if detail else "waits",
        "transfer": "transfers data from one store to another",
    }
    return plain.get(kind, f"calls {kind}" + (f": {detail}" if detail else ""))


def body_lines(nodes: tuple[Node, ...], depth: int, where: str) -> Iterator[Line]:
    """The nodes in order; `where` is what a pipeline's end finishes: the step, or this item."""
    labels = [node.label for node in nodes if not isinstance(node, Case)]
    for number, node in enumerate(nodes, start=1):
        bullet = f"{number}." if len(nodes) > 1 else ""
        yield from _node_lines(node, depth, bullet, where, labels)


def _node_lines(node: Node, depth: int, bullet: str, where: str, labels: list[str]) -> Iterator[Line]:
    match node:
        case Task():
            called = node.kind == "workbook" and node.config.get("name") == node.label
            name = "" if called else _named(node.label)
            yield Line(depth, _sentence(f"{name} {call_sentence(node)}".strip()), bullet)
            yield from _task_details(node, depth + 1, where, labels)
        case Block():
            opening = "" if node.loop is None else loop_sentence(node.loop)
            yield Line(depth, f"{_named(node.label) or 'Then'}: {opening or 'in order'}:", bullet)
            if node.when is not None:
                yield Line(depth + 1, f"Only if {condition(node.when)}; else it is skipped.")
            inner = f"this {node.loop.iterator}" if node.loop is not None else where
            yield from body_lines(node.body, depth + 1, inner)
            if node.sink is not None:
                yield Line(depth + 1, sink_sentence(node.sink))
        case Parallel():
            yield Line(depth, f"{_named(node.label)} starts at the same time:", bullet)
            for branch in node.branches:
                after = [_label_of(node.branches[index].node) for index in branch.after]
                if after:
                    yield Line(
                        depth + 1, f"once {listed(after)} {'are' if len(after) > 1 else 'is'} done:", "–"
                    )
                yield from _node_lines(branch.node, depth + 1 + bool(after), "–", where, labels)
        case Case():
            yield from _case_lines(node, depth, where)


def _label_of(node: Node) -> str:
    return "the call" if isinstance(node, Case) else node.label


def _named(label: str) -> str:
    """Unlabelled tasks are called by their position, which tells nobody anything."""
    return "" if re.fullmatch(r"task_\d+", label) else f"`{label}`"


def _sentence(text: str) -> str:
    begun = text if text.startswith("`") else text[:1].upper() + text[1:]
    return begun if begun.endswith(("…", ".")) else f"{begun}."


def _task_details(task: Task, depth: int, where: str, labels: list[str]) -> Iterator[Line]:
    if task.when is not None:
        yield Line(depth, f"Only if {condition(task.when)}; else it is skipped, with the result null.")
    if task.retry is not None:
        yield Line(depth, retry_sentence(task.retry))
    if task.poll is not None:
        yield Line(depth, poll_sentence(task.poll))
    if task.rules is not None:
        yield from _rule_lines(task, task.rules, depth, where, labels)
    if task.on_error == "continue":
        yield Line(depth, "If it fails, the work goes on regardless.")
    if task.sink is not None:
        yield Line(depth, sink_sentence(task.sink))


# --- repeating ------------------------------------------------------------------------------------------


def retry_sentence(retry: Retry) -> str:
    attempts = f"up to {count_text(retry.max_attempts)} attempts in all"
    waits = waits_text(retry.backoff, retry.max_attempts)
    what = "the whole chain is run" if retry.scope == "chain" else "it is tried"
    if retry.stop_when is not None:
        narrowed = f" as long as {condition(retry.retry_when)} and" if retry.retry_when is not None else ""
        return f"It is repeated{narrowed} until {condition(retry.stop_when)}, {attempts}, {waits}."
    cause = "If it fails"
    codes = [str(trigger) for trigger in retry.on if isinstance(trigger, int)]
    if codes and "error" not in retry.on:
        cause = f"On status {', '.join(codes)}"
    elif retry.on == ("exception",):
        cause = "If it raises an exception"
    if retry.retry_when is not None:
        cause += f" and {condition(retry.retry_when)}"
    return f"{cause}, {what} again: {attempts}, {waits}."


def poll_sentence(poll: Poll) -> str:
    deadline = "" if poll.deadline is None else f" and no longer than {duration_text(poll.deadline)}"
    return (
        f"It is repeated every {duration_text(poll.interval)} until {condition(poll.until)}, "
        f"at most {count_text(poll.max_attempts)} times{deadline}; then it fails."
    )


def loop_sentence(loop: Loop) -> str:
    """`for each `city` in `workload.cities`, up to 8 at once`."""
    source = value_text(loop.source, 60)
    extra = ""
    if loop.on_error == "continue":
        extra = "; a failed one does not stop the others"
    elif loop.mode == "parallel":
        extra = "; the first failure stops the others"
    if loop.execution == "distributed":
        extra += "; spread over the workers"
    if loop.reduce:
        combined = ", ".join(f"`{key}` by {reducer}" for key, reducer in loop.reduce.items())
        extra += f"; their writes to ctx are combined ({combined})"
    return f"for each `{loop.iterator}` in `{source}`, {loop_pace(loop)}{extra}"


def sink_sentence(sink: Sink) -> str:
    condition_text = "" if sink.when is None else f", if {condition(sink.when)}"
    return _sentence(f"then its result is stored{condition_text}: {call_sentence(sink.task)}")


# --- rules ----------------------------------------------------------------------------------------------


def _rule_lines(
    task: Task, rules: tuple[Rule, ...], depth: int, where: str, labels: list[str]
) -> Iterator[Line]:
    skips = [rule for rule in rules if rule.then.do == "skip" and rule.when is not None]
    after = [rule for rule in rules if rule.then.do != "skip"]
    for rule in skips:
        notes = _patches(rule.then, where)
        yield Line(depth, f"{_if(rule.when)}, it is skipped without being called{notes}.", "–")
    for rule in after:
        yield Line(depth, f"{_if(rule.when)}: {_directive(rule.then, task, where, labels)}.", "–")
    if after and all(rule.when is not None for rule in after):
        yield Line(depth, "Otherwise: go on.", "–")


def _directive(directive: Directive, task: Task, where: str, labels: list[str]) -> str:
    match directive.do:
        case "retry":
            waits = waits_text(directive.backoff, directive.attempts)
            told = (
                f"try again, up to {count_text(directive.attempts)} attempts in all, {waits}; "
                f"after the last one {where} fails"
            )
        case "jump":
            told = _jump(directive.to or "", task.label, labels)
        case "break":
            told = f"{where} is finished here"
        case "fail":
            told = f"{where} fails"
        case "continue" | "skip":
            told = "go on"
    return told + _patches(directive, where)


def _jump(to: str, label: str, labels: list[str]) -> str:
    if to == label:
        return f"do `{to}` once more"
    backwards = to in labels and label in labels and labels.index(to) < labels.index(label)
    return f"go {'back' if backwards else 'on'} to `{to}`"


def _patches(directive: Directive, where: str) -> str:
    told = ""
    if directive.set_iter:
        told += f", noting {assigned(directive.set_iter)} for {where}"
    if directive.set_ctx:
        told += f", keeping {assigned(directive.set_ctx)} for the whole execution"
    return told


def assigned(values: dict[str, Value]) -> str:
    shown = ((name, value_text(value, 50)) for name, value in values.items())
    return ", ".join(name if name == text else f"{name} = {text}" for name, text in shown)


# --- cases ----------------------------------------------------------------------------------------------


def _case_lines(case: Case, depth: int, where: str) -> Iterator[Line]:
    if case.call is not None:
        yield from _node_lines(case.call, depth, "", where, [])
    if case.on_event:
        yield Line(depth, "It stays open, without a worker, and looks at every event of the execution.")
    for name, duration in case.timers.items():
        yield Line(depth, f"The timer `{name}` fires after {duration_text(duration)}.")
    if not case.branches:
        return
    which = (
        "every entry that applies is carried out" if case.mode == "inclusive" else "the first that applies"
    )
    by_priority = ", those of higher priority first" if case.order == "priority" else ""
    yield Line(depth, f"Reactions ({which}{by_priority}):")
    for branch in case.branches:
        yield Line(depth, f"{_if(branch.when)}: {_chain(branch)}.", "–")


def _chain(branch: CaseBranch) -> str:
    told = "; then ".join(_action(action) for action in branch.actions) or "do nothing"
    if branch.retry is not None:
        told += f". {retry_sentence(branch.retry).rstrip('.')}"
    return told


def _action(action: Action) -> str:
    match action:
        case SetAction():
            return f"set {assigned(action.values)}"
        case CollectAction():
            joined = "append" if action.mode == "append" else "add the elements of"
            return f"{joined} `{value_text(action.source, 50)}` to `{action.into}`"
        case ResultAction():
            return f"the result is `{value_text(action.source, 50)}`"
        case SinkAction():
            return f"store: {call_sentence(action.sink.task)}"
        case TaskAction():
            repeats = [retry_sentence(action.task.retry)] if action.task.retry is not None else []
            repeats += [poll_sentence(action.task.poll)] if action.task.poll is not None else []
            more = "".join(f" ({told[0].lower()}{told[1:].rstrip('.')})" for told in repeats)
            return f"{_named(action.task.label)} {call_sentence(action.task)}{more}".strip()
        case CallAction():
            changes = f" with {value_text(action.overrides, DETAIL)}" if action.overrides else ""
            return f"call it again{changes}"
        case RetryAction():
            waits = waits_text(action.retry.backoff, action.retry.max_attempts)
            return f"try again, up to {count_text(action.retry.max_attempts)} attempts in all, {waits}"
        case FailAction():
            return "the step fails" + (
                "" if action.message is None else f": {value_text(action.message, 60)}"
            )
        case SkipAction():
            return "the step is left as skipped"
        case NextAction():
            delay = "" if action.delay == 0 else f" after {duration_text(action.delay)}"
            return f"go to {targets_text(action.targets)}{delay}"


def targets_text(targets: tuple[Target, ...]) -> str:
    return " and ".join(_target(target) for target in targets) or "nowhere"


def _target(target: Target) -> str:
    name = target.step if isinstance(target.step, str) else shortened(expression(target.step), 50)
    computed = "" if isinstance(target.step, str) else "the step named by "
    passing = f" (with {assigned(target.args)})" if target.args else ""
    return f"{computed}`{name}`{passing}"
