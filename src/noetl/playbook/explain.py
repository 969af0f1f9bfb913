"""A playbook told in plain words: what it needs, what happens step by step, and how it ends.

It works on the model, so it tells every dialect alike. It says what the playbook says, in the order in which
things happen; it never evaluates a template and never guesses at values.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from noetl.playbook.graph import graph_of, reading_order
from noetl.playbook.model import (
    Arc,
    Block,
    Case,
    Join,
    KeychainEntry,
    NextAction,
    Node,
    Parallel,
    Playbook,
    SinkAction,
    Step,
    Task,
    TaskAction,
    Value,
    WorkbookEntry,
)
from noetl.playbook.narration import (
    Line,
    assigned,
    body_lines,
    condition,
    loop_sentence,
    sink_sentence,
    targets_text,
)
from noetl.playbook.wording import (
    count_text,
    duration_text,
    field_text,
    guard_text,
    listed,
    plural,
    printable,
    shortened,
    tells_failure,
    value_text,
)
from noetl.template import Template

WIDTH: Final = 96
INDENT: Final = "   "


def explain(playbook: Playbook) -> str:
    graph = graph_of(playbook)
    order, _ = reading_order(graph)
    by_name = {step.name: step for step in playbook.steps}
    origins: dict[str, dict[str, None]] = {}
    for edge in graph.edges:
        origins.setdefault(edge.target, {})[edge.source] = None
    steps = [by_name[name] for name in order if name in by_name]
    lines = [*_opening(playbook), *_needs(playbook), Line(0, ""), Line(0, "What happens")]
    for number, step in enumerate(steps, start=1):
        lines += [Line(0, ""), *_step(step, number, playbook, list(origins.get(step.name, ())))]
    for entry in playbook.workbook:
        lines += [Line(0, ""), *_workbook_entry(entry)]
    lines += [Line(0, ""), *_ending(playbook, steps)]
    return "\n".join(_wrapped(line) for line in lines).rstrip() + "\n"


def _wrapped(line: Line) -> str:
    indent = INDENT * line.depth
    first = indent + (f"{line.bullet} " if line.bullet else "")
    rest = indent + " " * (len(line.bullet) + 1 if line.bullet else 0)
    return textwrap.fill(
        printable(line.text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


# --- what it is and needs --------------------------------------------------------------------------------


def _opening(playbook: Playbook) -> Iterator[Line]:
    path = "" if playbook.path == playbook.name else f", registered as {playbook.path}"
    yield Line(0, f"{playbook.name}: {plural(len(playbook.steps), 'step')}, dialect {playbook.dialect}{path}")
    description = playbook.metadata.get("description")
    if isinstance(description, str) and description.strip():
        yield Line(0, shortened(description, 400))
    if playbook.executor.deadline is not None:
        yield Line(0, f"The whole execution may take {duration_text(playbook.executor.deadline)}.")


def _needs(playbook: Playbook) -> Iterator[Line]:
    yield Line(0, "")
    yield Line(0, "What it needs")
    if playbook.workload:
        yield Line(1, "Inputs, with the values they have if the request gives no others:")
        for name, value in playbook.workload.items():
            yield Line(2, f"{name}: {_default(value)}", "–")
    else:
        yield Line(1, "No inputs.")
    if playbook.keychain:
        yield Line(1, "Secrets, all of which must be found before anything runs:")
        for entry in playbook.keychain:
            yield Line(2, f"{entry.name}: {_locator(entry)}", "–")
    else:
        yield Line(1, "No secrets.")
    tasks = list(_all_tasks(playbook))
    declared = {entry.name for entry in playbook.keychain}
    stored = dict.fromkeys(
        auth for task in tasks if isinstance(auth := task.config.get("auth"), str) and auth not in declared
    )
    if stored:
        yield Line(1, f"Stored credentials that its tools name: {listed(stored)}.")
    children = dict.fromkeys(
        field_text(task.config.get("path", task.config.get("name", "")), 60)
        for task in tasks
        if task.kind == "playbook"
    )
    if children:
        yield Line(1, f"Other playbooks, which must be registered: {listed(children)}.")


def _default(value: Value) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}: {value_text(value, 60)}" if value else "an empty list"
    if isinstance(value, Template):
        return f"computed: {value_text(value, 60)}"
    return value_text(value, 70)


def _locator(entry: KeychainEntry) -> str:
    """Where the secret comes from; without a locator, from the thing of its own name."""
    fields = entry.fields
    place = _stored_place(entry)
    match entry.kind:
        case "env":
            return f"the environment variable {field_text(fields.get('var', entry.name))}"
        case "file":
            return f"the file {field_text(fields.get('path', entry.name))}"
        case "postgres_credential":
            return f"the stored PostgreSQL credential {field_text(fields.get('credential', entry.name))}"
        case "bearer":
            return f"a bearer token, from {place}"
        case "api_key":
            return f"an API key, from {place}"
        case "oauth2":
            address = field_text(fields.get("token_url", "the address its credential names"))
            return f"an OAuth 2 token, asked for at {address}"
        case "secret_manager":
            provider = field_text(fields.get("provider", "the secret manager"))
            return f"the secret {field_text(fields.get('secret', entry.name))} in {provider}"
    return place


def _stored_place(entry: KeychainEntry) -> str:
    if "var" in entry.fields:
        return f"the environment variable {field_text(entry.fields['var'])}"
    if "path" in entry.fields:
        return f"the file {field_text(entry.fields['path'])}"
    return f"the stored credential {field_text(entry.fields.get('credential', entry.name))}"


def _all_tasks(playbook: Playbook) -> Iterator[Task]:
    owners: list[Step | WorkbookEntry] = [*playbook.steps, *playbook.workbook]
    for owner in owners:
        for node in owner.body:
            yield from _tasks(node)
        if owner.sink is not None:
            yield owner.sink.task


def _tasks(node: Node) -> Iterator[Task]:
    match node:
        case Task():
            yield node
            if node.sink is not None:
                yield node.sink.task
        case Block():
            for child in node.body:
                yield from _tasks(child)
            if node.sink is not None:
                yield node.sink.task
        case Parallel():
            for branch in node.branches:
                yield from _tasks(branch.node)
        case Case():
            if node.call is not None:
                yield from _tasks(node.call)
            for case_branch in node.branches:
                for action in case_branch.actions:
                    if isinstance(action, TaskAction):
                        yield action.task
                    elif isinstance(action, SinkAction):
                        yield action.sink.task


# --- a step ------------------------------------------------------------------------------------------------


def _step(step: Step, number: int, playbook: Playbook, origins: list[str]) -> Iterator[Line]:
    title = f"{number}. {step.name}"
    yield Line(0, f"{title} — {shortened(step.description, 200)}" if step.description else title)
    yield Line(1, _arrival(step, playbook, origins))
    yield from _entrance(step)
    where = "the step"
    depth = 1
    if step.loop is not None:
        where = f"this {step.loop.iterator}"
        opening = loop_sentence(step.loop)
        yield Line(1, f"{opening[0].upper()}{opening[1:]}" + (":" if step.body else "."))
        depth = 2
    if step.body:
        yield from body_lines(step.body, depth, where)
    if step.vars:
        yield Line(1, f"On success it sets the variables {listed(step.vars)}.")
    if step.sink is not None:
        yield Line(1, sink_sentence(step.sink))
    if step.deadline is not None:
        yield Line(1, f"All of this must be done within {duration_text(step.deadline)}.")
    yield from _routes(step)


def _arrival(step: Step, playbook: Playbook, origins: list[str]) -> str:
    others = [name for name in origins if name != step.name]
    again = " It may run again, because ways lead back to it." if step.name in origins else ""
    if step.name == playbook.entry:
        back = f" {listed(others)} may lead back to it." if others else ""
        return f"The execution begins here.{back}{again}"
    if not others:
        return "Nothing leads here, so it never runs."
    return f"Reached from {listed(others, 'or' if step.join is None else 'and')}.{again}"


def _entrance(step: Step) -> Iterator[Line]:
    if step.admit is not None:
        for rule in step.admit:
            verdict = "it is let in" if rule.allow else "the step is skipped and nothing follows from it"
            opening = "Otherwise" if rule.when is None else f"If {condition(rule.when)}"
            yield Line(1, f"{opening}, {verdict}.")
        if all(rule.when is not None for rule in step.admit):
            yield Line(1, "Otherwise, the step is skipped and nothing follows from it.")
    if step.join is not None:
        yield Line(1, _join(step.join))
    if step.args:
        yield Line(1, f"Its args are {assigned(step.args)}, unless the way here brings others.")
    if step.spread is not None:
        meeting = f"they meet again in `{step.spread.join}`" if step.spread.join else "each ends on its own"
        yield Line(
            1,
            f"For each `{step.spread.iterator}` in `{value_text(step.spread.source)}` the following steps "
            f"run once, up to {count_text(step.spread.max_in_flight)} at once; {meeting}.",
        )


def _join(join: Join) -> str:
    match join.mode:
        case "all":
            return f"It waits until each of {listed(join.of)} has arrived, and then runs once."
        case "any":
            return f"It runs when the first of {listed(join.of)} arrives; the others then have no effect."
        case "active":
            return f"It waits for every one of {listed(join.of)} that can still arrive, and then runs once."
        case "spread":
            return (
                f"It waits for all items of {listed(join.of)}; `join_results` holds their results, in order."
            )


def _routes(step: Step) -> Iterator[Line]:
    arcs = step.router.arcs
    routes_by_case = any(isinstance(node, Case) for node in step.body)
    idle = not step.body and step.loop is None
    failure = "" if idle else " " + _failure(step)
    if not arcs:
        opening = "It does nothing, and nothing follows it." if idle else "Nothing follows it."
        yield Line(1, (("" if routes_by_case else opening) + failure).strip())
    elif len(arcs) == 1 and arcs[0].when is None:
        prefix = "If no reaction leads elsewhere, it goes on to" if routes_by_case else "Then it goes on to"
        prefix = "It only leads on to" if idle else prefix
        yield Line(1, f"{prefix} {targets_text(arcs[0].targets)}.{failure}")
    elif len(arcs) == 1 and arcs[0].when is not None:
        where = targets_text(arcs[0].targets)
        yield Line(
            1, f"If {condition(arcs[0].when)}, it goes on to {where}; otherwise nothing follows.{failure}"
        )
    else:
        which = "every way that applies" if step.router.mode == "inclusive" else "the first way that applies"
        yield Line(1, f"{'It' if idle else 'Then it'} takes {which}:")
        for number, arc in enumerate(arcs):
            yield Line(2, f"{_arc_condition(step, arc, number)} to {targets_text(arc.targets)}.", "–")
        if failure:
            yield Line(1, failure.strip())


def _arc_condition(step: Step, arc: Arc, number: int) -> str:
    if arc.when is not None:
        return f"if {condition(arc.when)},"
    guarded_before = any(other.when is not None for other in step.router.arcs[:number])
    return "otherwise," if step.router.mode == "exclusive" and guarded_before else "if it did not fail,"


def _failure(step: Step) -> str:
    if step.on_error == "ignore":
        return "If it fails, the failure is ignored: the step counts as done, with the result null."
    guards = [
        guard_text(arc.when, 10_000) for arc in step.router.arcs if arc.takes_failure and arc.when is not None
    ]
    if any(guard.replace('"', "'") == "event.name == 'step.failed'" for guard in guards):
        return "A failure is handled that way, and the execution goes on."
    if any(arc.takes_failure and tells_failure(arc.when) for arc in step.router.arcs):
        return "A failure that none of these ways takes fails the execution."
    if any(".done" not in guard for guard in guards):
        return "If it fails, the execution fails, unless such a condition holds even then."
    if any(isinstance(node, Case) for node in step.body):
        return "If it fails and no reaction takes the failure, the execution fails."
    return "If it fails, the execution fails."


def _workbook_entry(entry: WorkbookEntry) -> Iterator[Line]:
    title = f"Workbook task `{entry.name}`"
    yield Line(0, f"{title} — {shortened(entry.description, 200)}" if entry.description else title)
    depth = 1
    if entry.loop is not None:
        opening = loop_sentence(entry.loop)
        yield Line(1, f"{opening[0].upper()}{opening[1:]}:")
        depth = 2
    yield from body_lines(entry.body, depth, "the task")
    if entry.sink is not None:
        yield Line(1, sink_sentence(entry.sink))


# --- how it ends -------------------------------------------------------------------------------------------


def _ending(playbook: Playbook, steps: list[Step]) -> Iterator[Line]:
    yield Line(0, "How it ends")
    defined = {step.name for step in steps}
    targets = {step.name: [t.step for arc in step.router.arcs for t in arc.targets] for step in steps}
    last = [
        step.name
        for step in steps
        if not _case_routes(step) and all(_leads_nowhere(arc, defined) for arc in step.router.arcs)
    ]
    if "end" not in defined and any("end" in names for names in targets.values()):
        yield Line(1, "`end` is not a step here: a way that leads to it simply stops.")
    where = f" The last {'step is' if len(last) == 1 else 'steps are'} {listed(last)}." if last else ""
    yield Line(1, f"The execution is completed when nothing is left to run.{where}")
    result = "that of `end` if that ran, or else that" if "end" in defined else "that"
    yield Line(1, f"Its result is {result} of the step that ended last.")
    yield Line(1, "A failure that no way takes ends everything at once, and the execution has failed.")


def _leads_nowhere(arc: Arc, defined: set[str]) -> bool:
    return tells_failure(arc.when) or all(t.step == "end" and "end" not in defined for t in arc.targets)


def _case_routes(step: Step) -> bool:
    return any(
        isinstance(action, NextAction)
        for node in step.body
        if isinstance(node, Case)
        for branch in node.branches
        for action in branch.actions
    )
