"""Checks of cases that need all of a step: actions for which there is nothing to call.

Only what is sure is reported: an entry whose condition does not say plainly at which moment it fires is
left to the run, which fails the step where such an action is reached.
"""

from __future__ import annotations

import re
from typing import Final

from noetl.playbook.findings import Findings
from noetl.playbook.model import CallAction, Case, CaseBranch, Playbook, RetryAction, Step
from noetl.template import Template

ENTER: Final = "step.enter"
EXIT: Final = "step.exit"
WITHOUT_CALL: Final = {"call": frozenset({EXIT}), "retry": frozenset({ENTER, EXIT})}
"""The moments at which an action has no call to make."""

_NAMED = re.compile(r"\bevent\.name\s*==\s*(['\"])([\w.]+)\1")
_UNSURE = re.compile(r"\b(?:or|not|if|in)\b|!=")


def check_cases(playbook: Playbook, findings: Findings) -> None:
    for step in playbook.steps:
        for node in step.body:
            if isinstance(node, Case):
                _check_calls(step, node, findings)


def _check_calls(step: Step, case: Case, findings: Findings) -> None:
    for branch in case.branches:
        moment = _moment(branch)
        for action in branch.actions:
            if not isinstance(action, CallAction | RetryAction):
                continue
            word = "call" if isinstance(action, CallAction) else "retry"
            if case.call is None:
                message = f"`{word}` has nothing to call: step `{step.name}` has no `tool`"
                findings.report("case.no_call", action.at, message)
            elif moment in WITHOUT_CALL[word] or (step.loop is not None and moment == ENTER):
                message = f"`{word}` has no call to make at `{moment}`"
                findings.report("case.no_call", action.at, message, "ask for `call.done` or `call.error`")


def _moment(branch: CaseBranch) -> str | None:
    """The one moment at which an entry can fire, where its condition says so plainly."""
    if not isinstance(branch.when, Template) or _UNSURE.search(branch.when.source):
        return None
    found = {name for _, name in _NAMED.findall(branch.when.source)}
    return found.pop() if len(found) == 1 else None
