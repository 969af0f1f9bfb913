"""Sorts the entries of a case by the moment at which they are asked, with what is left of their guards.

Canonical YAML has no moments: what a case decides on entry becomes a first task, what it decides
after the call becomes the call's rules or the step's arcs, and what it decides on exit becomes arcs.
Here a guard loses the part that names the moment, and the parts that say whether the call failed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl.playbook.model import Case, CaseBranch, NextAction
from noetl.playbook.rewriting.expressions import COMPARISONS, Token, conjuncts, expression, words
from noetl.playbook.rewriting.inexpressible import Report
from noetl.template import Template

ENTER: Final = "step.enter"
DONE: Final = "call.done"
ERROR: Final = "call.error"
EXIT: Final = "step.exit"

AFTER_SUCCESS: Final = frozenset({"response", "result", "this"})
AFTER_FAILURE: Final = frozenset({"error"})

_SAFE_FILTERS: Final = frozenset({"int", "float", "length", "count", "lower", "upper", "trim", "string"})
_SAFE_OPERATORS: Final = frozenset({".", "|", "[", "]", ",", "+", "-", "*"})
_DEFINED_TESTS: Final = (["is", "defined"], ["is", "not", "defined"], ["is", "undefined"])
_UNSAFE_WORDS: Final = frozenset({"or", "if", "else", "is", "and"})


class Entry(NamedTuple):
    """A branch at one moment, with the parts of its guard that are still to be asked."""

    branch: CaseBranch
    parts: tuple[str, ...]


class Moments(NamedTuple):
    """The entries in the order in which they are asked, `else` last."""

    enter: list[Entry]
    success: list[Entry]
    failure: list[Entry]
    exit: list[Entry]


def sort_by_moment(case: Case, report: Report) -> Moments | None:
    """None where a guard asks for its moment in a way that cannot be taken apart."""
    named: list[tuple[CaseBranch, frozenset[str], tuple[str, ...]]] = []
    sound = True
    for branch in _in_order(case):
        moments, parts = _moments(branch, has_call=case.call is not None)
        if moments is None:
            report.say("event-guard", branch.at)
            sound = False
        else:
            named.append((branch, moments, parts))
    if not sound:
        return None
    done = _at(named, DONE)
    left = _at(named, EXIT)
    found = Moments(
        enter=_at(named, ENTER),
        success=_settled(done, AFTER_SUCCESS, AFTER_FAILURE, report),
        failure=_settled(_at(named, ERROR) + done, AFTER_FAILURE, AFTER_SUCCESS, report),
        exit=left if case.call is None else _settled(left, AFTER_SUCCESS, AFTER_FAILURE, report),
    )
    alive = {entry.branch.id for entries in found for entry in _reachable(entries)}
    reachable = Moments(*(_reachable(entries) for entries in found))
    for branch in case.branches:
        if branch.id not in alive and not _kept_as_arc(branch, found, reachable):
            report.say("dead-entry", branch.at)
    return reachable if report.quiet else None


def _kept_as_arc(branch: CaseBranch, asked: Moments, reachable: Moments) -> bool:
    """An arc that is never taken can still be written down, behind the one that always is."""
    if len(branch.actions) == 1 and isinstance(branch.actions[0], NextAction):
        for entries, kept in ((asked.success, reachable.success), (asked.exit, reachable.exit)):
            for entry in entries:
                if entry.branch.id == branch.id:
                    kept.append(entry)
                    return True
    return False


def _in_order(case: Case) -> list[CaseBranch]:
    """As they are asked: by priority where the case says so, `else` always last."""
    ordered = list(case.branches)
    if case.order == "priority":
        ordered.sort(key=lambda branch: -branch.priority)
    return sorted(ordered, key=lambda branch: branch.when is None)


def _moments(branch: CaseBranch, *, has_call: bool) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    plain = frozenset({DONE if has_call else EXIT})
    if branch.when is None:
        return plain, ()
    text = expression(branch.when)
    parts = () if text == "true" else tuple(conjuncts(text))
    if not branch.every_moment:
        return plain, parts
    known = frozenset({ENTER, DONE, ERROR, EXIT} if has_call else {ENTER, EXIT})
    moments = known
    rest: list[str] = []
    for part in parts:
        named = _event_names(words(part))
        if named is not None:
            moments = moments & named
        elif "event" in reads(part):
            return None, ()
        else:
            rest.append(part)
    # `call.done` after a failure is asked in a second pass; both passes at once never differ.
    return moments or None, tuple(rest)


def is_asked_on_exit(branch: CaseBranch) -> bool:
    """Whether an entry says that it is for the moment when the step is left, and for no other."""
    return branch.every_moment and _moments(branch, has_call=True)[0] == frozenset((EXIT,))


def _event_names(found: list[Token]) -> frozenset[str] | None:
    """The names that `event.name == '…'` or `event.name in [ … ]` allows."""
    values = [token.value for token in found]
    if values[:3] == ["event", ".", "name"] and len(values) > 4:
        if values[3] == "==" and len(values) == 5 and found[4].kind == "string":
            return frozenset({values[4][1:-1]})
        inner = found[5:-1]
        if (
            values[3] == "in"
            and values[4] in ("[", "(")
            and all(token.kind == "string" or token.value == "," for token in inner)
        ):
            return frozenset(token.value[1:-1] for token in inner if token.kind == "string")
    if values[1:] == ["==", "event", ".", "name"] and found[0].kind == "string":
        return frozenset({values[0][1:-1]})
    return None


def _at(named: list[tuple[CaseBranch, frozenset[str], tuple[str, ...]]], moment: str) -> list[Entry]:
    return [Entry(branch, parts) for branch, moments, parts in named if moment in moments]


# --- what is there after a call, and what is not ------------------------------------------------------


def _settled(
    entries: list[Entry], present: frozenset[str], absent: frozenset[str], report: Report
) -> list[Entry]:
    """The entries that can still hold, without the parts that are then known to be true."""
    found: list[Entry] = []
    for entry in entries:
        verdicts = [_verdict(part, present, absent) for part in entry.parts]
        if "false" in verdicts:
            continue
        if "unsure" in verdicts:
            report.say("guard-both-ways", entry.branch.at)
        kept = [part for part, verdict in zip(entry.parts, verdicts, strict=True) if verdict == "ask"]
        found.append(Entry(entry.branch, tuple(kept)))
    return found


def _verdict(part: str, present: frozenset[str], absent: frozenset[str]) -> str:
    found = words(part)
    values = [token.value for token in found]
    if values[0] in present | absent and values[1:] in _DEFINED_TESTS:
        return "true" if (values[0] in present) == (values[1:] == _DEFINED_TESTS[0]) else "false"
    if not reads(part) & absent:
        return "ask"
    return "false" if _is_false_without(found) else "unsure"


def _is_false_without(found: list[Token]) -> bool:
    """Is this false when a name in it is undefined? So are bare values and all comparisons of one."""
    return all(_keeps_undefined(found, index) for index in range(len(found)))


def _keeps_undefined(found: list[Token], index: int) -> bool:
    """Does this token leave an undefined value undefined, or compare it?"""
    token = found[index]
    before = found[index - 1].value if index else ""
    after = found[index + 1].value if index + 1 < len(found) else ""
    if token.kind == "name":
        if before == "|":
            return token.value in _SAFE_FILTERS
        return before == "." or (token.value not in _UNSAFE_WORDS and (token.value != "not" or after == "in"))
    if token.value == "[":
        return not any(inner.kind == "name" for inner in _until_bracket(found, index))
    return token.kind != "operator" or token.value in COMPARISONS | _SAFE_OPERATORS


def _until_bracket(found: list[Token], index: int) -> list[Token]:
    end = next((i for i in range(index, len(found)) if found[i].value == "]"), len(found))
    return found[index:end]


def _reachable(entries: list[Entry]) -> list[Entry]:
    """Up to the first that always holds."""
    for index, entry in enumerate(entries):
        if not entry.parts:
            return entries[: index + 1]
    return entries


def reads(text: str) -> frozenset[str]:
    """The names an expression reads."""
    return frozenset(read.path[0] for read in Template("{{ " + text + " }}").reads)
