"""The constructs of v1 and v2 that canonical YAML has no words for, each with what to write by hand.

This table is the whole list: the migrator reports nothing that is not in it, the reference prints it,
and a test compares the two, so that it cannot grow unnoticed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl.playbook.diagnostics import Diagnostic, Position

CODE: Final = "migrate.inexpressible"


class Construct(NamedTuple):
    message: str
    hint: str


CONSTRUCTS: Final[dict[str, Construct]] = {
    # --- events and cases
    "on-event": Construct(
        "a step that stays open and sees every event has no canonical form",
        "wait with a task of kind `wait` and route on its result",
    ),
    "inclusive-case": Construct(
        "a case that runs several of its entries has no canonical form",
        "make each entry a task with a `skip` rule, or a step of its own behind an inclusive router",
    ),
    "next-policy": Construct(
        "`break_chain`, `defer` and the priority of a `next` have no canonical form",
        "decide the way in one place: the arcs of the step",
    ),
    "next-delay": Construct(
        "a delayed transition has no canonical form",
        "put a task of kind `wait` in front of the target's tasks",
    ),
    "computed-target": Construct(
        "a target that is computed has no canonical form",
        "write one arc for each step it can be, with the condition as its `when`",
    ),
    "event-guard": Construct(
        "this guard does not ask for its moment by `event.name == '…' and …`, so it cannot be taken apart",
        "write one entry for each moment, with `event.name == '…'` as the first condition",
    ),
    "guard-both-ways": Construct(
        "this guard can hold after a failed call, where what it reads is not there",
        "add `response is defined` or `error is defined` to it",
    ),
    "dead-entry": Construct(
        "this entry can never be taken, so there is nothing to translate",
        "delete it",
    ),
    "dead-action": Construct(
        "actions behind the one that ends the chain never run, so there is nothing to translate",
        "delete them",
    ),
    "enter-action": Construct(
        "before the call, canonical YAML can only set values",
        "decide in the step before, by the guards of its arcs, whether to come here",
    ),
    "exit-action": Construct(
        "when a step is left, canonical YAML can only choose the way",
        "do it in a task at the end of the pipeline, or after `call.done`",
    ),
    "failed-call-tasks": Construct(
        "tasks that run after a failed call, which stays a failure, have no canonical form",
        "let an arc with `event.name == 'step.failed'` lead to a step that runs them",
    ),
    "hidden-decision": Construct(
        "what decides the way here is not visible when the step ends, or a result could hide it",
        "decide by the result alone (`response.x`), or keep the decision by `set_ctx` and route on `ctx`",
    ),
    "failure-details": Construct(
        "an arc sees of a failed call only the kind and the message of its error",
        "handle the failure in the task's rules: `outcome.http.status`, `outcome.result`",
    ),
    "failure-of-many": Construct(
        "a way for failures of the call alone cannot be told from one for failures of other tasks",
        "move the other tasks to a step of their own",
    ),
    "fail-message": Construct(
        "`do: fail` has no message of its own",
        "let a python task raise an exception with that message",
    ),
    "skip-action": Construct(
        "a step that is skipped and still routes on has no canonical form",
        "decide in the step before, by the guards of its arcs, whether to come here",
    ),
    "call-override": Construct(
        "these overrides cannot be said as templates with a default",
        "keep what changes by `set_iter` and read it in the tool's fields: {{ iter.page | default(1) }}",
    ),
    "case-values": Construct(
        "the case reads something that canonical YAML does not show there",
        "keep it by `set_iter` in the rule of the task that has it",
    ),
    "case-result": Construct(
        "the result is set and then read again as `result`, or followed by another call or a failure",
        "set the result last, where the step ends",
    ),
    "ignored-failure": Construct(
        "`on_error: ignore` on a step with a case has no canonical form",
        "continue by a rule of the task: {when: …, then: {do: continue}}",
    ),
    # --- loops
    "loop-exit": Construct(
        "a `next` that ends a loop early has no canonical form",
        "keep what was found by `set_ctx`, skip the other items by a rule, and route on `ctx`",
    ),
    "loop-values": Construct(
        "values that iterations share have no canonical form other than `ctx`",
        "write them by `set_ctx`, with a reducer where the loop is parallel",
    ),
    "loop-sink": Construct(
        "a sink that stores the list of a whole loop has no canonical form",
        "store the list in the step that follows, from the loop step's name",
    ),
    "item-tokens": Construct(
        "a loop that sends each item through the steps that follow has no canonical form",
        "make those steps the pipeline of one loop step; its result is the list",
    ),
    # --- repeating a call
    "retry-growth": Construct(
        "a computed delay that grows by another factor than 2 has no canonical form",
        "write the delay as a number, or let `backoff: exponential` double it",
    ),
    "retry-exception": Construct(
        "`on: exception` has no canonical form",
        "ask for the kind of the error: {{ outcome.error.kind == '…' }}",
    ),
    "retry-chain": Construct(
        "a retry of a whole chain has no canonical form",
        "jump back to the chain's first task by a rule, and count the turns by `set_iter`",
    ),
    "retry-twice": Construct(
        "two ways to repeat one call, each with its own count, have no canonical form",
        "keep one of them",
    ),
    "retry-predicate": Construct(
        "this predicate reads something that a canonical rule does not show",
        "write the rule by hand, with `outcome` and `_attempt`",
    ),
    "retry-count": Construct(
        "this predicate needs a fixed number of attempts",
        "write the number in place of the template",
    ),
    "poll-deadline": Construct(
        "a poll with a deadline has no canonical form",
        "bound it by `max_attempts`, or give the step a `spec.deadline`",
    ),
    # --- data
    "vars": Construct(
        "`vars` are kept beside `ctx`, and canonical YAML writes only `ctx`",
        "write them by `set_ctx` in a rule of the task, and read `ctx` instead of `vars`",
    ),
    "step-args": Construct(
        "these args cannot be moved to the arcs that lead to the step",
        "write them as `args` of each arc that leads here, or as `args` of the step's tasks",
    ),
    "result-name": Construct(
        "several steps could have given the result that is read by this task's name",
        "read the result by the name of the step that gives it",
    ),
    "result-view": Construct(
        "later templates read of this step what only its tool's own result shows",
        "store the result in a step of its own",
    ),
    "step-name": Construct(
        "the step's name cannot be read in a template, which its arcs would have to do",
        "rename the step with letters, digits and underscores",
    ),
    "sink": Construct(
        "this sink reads something that a later task does not see",
        "store the result by a task at the end of the pipeline",
    ),
    # --- tasks of the first language
    "parallel-run": Construct(
        "tasks under one `run` start together, and a canonical pipeline runs one after the other",
        "make them steps behind an inclusive router, and join them by `spec.join`",
    ),
    "run-scope": Construct(
        "this group of tasks has a scope of its own that a pipeline does not have",
        "give each task under it its own `args`, and every task a name of its own",
    ),
    "task-when": Construct(
        "a skipped task has no result, where the first language gives null",
        "let the task return null itself, or route around it",
    ),
    "join-sources": Construct(
        "this step joins a loop and is reached from other steps too",
        "read the loop step's name where `join_results` was read",
    ),
}


class Report:
    """Collects what cannot be said; `quiet` while there is nothing."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []

    @property
    def quiet(self) -> bool:
        return not self.found

    def say(self, construct: str, at: Position) -> None:
        message, hint = CONSTRUCTS[construct]
        line, column = at
        self.found.append(
            Diagnostic(severity="error", code=CODE, message=message, line=line, column=column, hint=hint)
        )

    def sorted(self) -> tuple[Diagnostic, ...]:
        return tuple(sorted(dict.fromkeys(self.found), key=lambda found: (found.line, found.column)))
