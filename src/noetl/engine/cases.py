"""Which branches of a case are selected at a moment, and which way out its chains decided.

A moment is asked about as an event: `step.enter`, `call.error` and `call.done` after a call, `step.exit`.
A failed call is first presented as `call.error`, and if nothing matched as `call.done`. Entries that do
not name `event` belong to the moment after the call; `else` comes last.
"""

from __future__ import annotations

from collections.abc import Callable

from noetl.engine.scope import holds
from noetl.engine.state import CaseFrame, Data
from noetl.playbook.model import Case, CaseBranch
from noetl.template import Scope

ENTER, EXIT, DONE, ERROR = "step.enter", "step.exit", "call.done", "call.error"


def ordered(case: Case) -> list[int]:
    """The branches in the order in which they are tried and run."""
    indexes = list(range(len(case.branches)))
    if case.order == "priority":
        indexes.sort(key=lambda index: -case.branches[index].priority)
    return indexes


def select(case: Case, name: str, scope_for: Callable[[str], Scope], *, decides: bool) -> list[int]:
    """The branches that fire when `event.name` is `name`.

    `decides` is true for the moment that entries without `event`, and `else`, belong to.
    """
    scope = scope_for(name)
    matched: list[int] = []
    otherwise: int | None = None
    for index in ordered(case):
        branch = case.branches[index]
        if branch.when is None:
            otherwise = index if otherwise is None else otherwise
            continue
        if (branch.every_moment or decides) and holds(branch.when, scope):
            matched.append(index)
            if case.mode == "exclusive":
                break
    if not matched and decides and otherwise is not None:
        return [otherwise]
    return matched


def at_event(case: Case, scope: Scope) -> list[int]:
    """The branches of a case that waits for events which fire at one: every entry is asked."""
    matched: list[int] = []
    for index in ordered(case):
        branch = case.branches[index]
        if branch.when is not None and holds(branch.when, scope):
            matched.append(index)
            if case.mode == "exclusive":
                break
    return matched


def after_call(case: Case, outcome: Data, scope_for: Callable[[str], Scope]) -> tuple[str, list[int]]:
    """The moment after a call and the branches that take it."""
    if outcome["status"] == "error":
        taken = select(case, ERROR, scope_for, decides=False)
        if taken:
            return ERROR, taken
    return DONE, select(case, DONE, scope_for, decides=True)


def started(case: Case, name: str) -> Data:
    """The payload of `case.started`."""
    return {"trigger_event": name, "case_mode": case.mode, "eval_mode": _eval_mode(case)}


def evaluated(case: Case, name: str, matched: list[int]) -> Data:
    """The payload of `case.evaluated`."""
    ids = [case.branches[index].id for index in matched]
    return {
        "matched": ids,
        "order": ids,
        "case_mode": case.mode,
        "eval_mode": _eval_mode(case),
        "trigger_event": name,
    }


def _eval_mode(case: Case) -> str:
    return "on_event" if case.on_event else "on_entry"


def winner(routes: list[Data]) -> Data | None:
    """Of several requested transitions the one of highest priority, then the first."""
    if not routes:
        return None
    best = routes[0]
    for route in routes[1:]:
        if route["priority"] > best["priority"]:
            best = route
    return best


def is_failed(frame: CaseFrame) -> bool:
    """Whether the last call failed and no chain has answered for it."""
    return frame.outcome is not None and frame.outcome["status"] == "error" and not frame.handled


def branch_of(case: Case, frame: CaseFrame) -> CaseBranch:
    return case.branches[frame.queue[0]]
