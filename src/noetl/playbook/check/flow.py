"""The ways between steps: who leads where, what cannot be reached, what a join waits for."""

from __future__ import annotations

from collections.abc import Iterator

from noetl.errors import TemplateSyntaxError
from noetl.playbook.diagnostics import Position
from noetl.playbook.findings import Findings
from noetl.playbook.model import Case, NextAction, Playbook, Step, Target
from noetl.template import Template

END = "end"
"""A step of this name need not be defined: a token sent there ends."""

MAX_PASSES = 20
"""Graphs so tangled that their order of running is still unclear after this are left unchecked."""


def targets(step: Step) -> Iterator[Target]:
    """Every target a step can send a token to, whether by an arc or by an action of a case."""
    for arc in step.router.arcs:
        yield from arc.targets
    for node in step.body:
        if isinstance(node, Case):
            for branch in node.branches:
                for action in branch.actions:
                    if isinstance(action, NextAction):
                        yield from action.targets


class Flow:
    """The graph of a playbook by step name."""

    def __init__(self, playbook: Playbook) -> None:
        self.names = {step.name: number for number, step in enumerate(playbook.steps)}
        self.computed = False
        """Some target is a template: any step may follow there."""
        self.following: dict[str, tuple[str, ...]] = {}
        for step in playbook.steps:
            found = []
            for target in targets(step):
                if isinstance(target.step, Template):
                    self.computed = True
                else:
                    found.append(target.step)
            known = tuple(name for name in dict.fromkeys(found) if name in self.names)
            self.following[step.name] = self.following.get(step.name, ()) + known
        self.leading: dict[str, dict[str, None]] = {name: {} for name in self.names}
        """For each step those that lead to it."""
        for name, following in self.following.items():
            for after in following:
                self.leading[after][name] = None
        self.order = self._postorder(playbook.entry)
        self.reachable = frozenset(self.order)
        self._before = self._ancestors()

    def _postorder(self, entry: str) -> list[str]:
        """The reachable steps, each before those that follow it wherever there is no cycle."""
        if entry not in self.names:
            return []
        finished: list[str] = []
        seen = {entry}
        stack = [(entry, iter(self.following[entry]))]
        while stack:
            name, rest = stack[-1]
            for after in rest:
                if after not in seen:
                    seen.add(after)
                    stack.append((after, iter(self.following[after])))
                    break
            else:
                finished.append(name)
                stack.pop()
        finished.reverse()
        return finished

    def _ancestors(self) -> dict[str, int] | None:
        """For each step the set, as bits, of the steps that can have run before it."""
        before = dict.fromkeys(self.names, 0)
        for _ in range(MAX_PASSES):
            changed = False
            for name in self.order:
                reached = before[name] | (1 << self.names[name])
                for after in self.following[name]:
                    merged = before[after] | reached
                    if merged != before[after]:
                        before[after] = merged
                        changed = True
            if not changed:
                return before
        return None

    def can_precede(self, first: str, second: str) -> bool:
        """Whether a run of `first` can have ended before one of `second` begins."""
        if self._before is None or self.computed or second not in self.reachable:
            return True
        return bool(self._before[second] >> self.names[first] & 1)


def check_flow(playbook: Playbook, flow: Flow, findings: Findings) -> None:
    for step in playbook.steps:
        for target in targets(step):
            if isinstance(target.step, str):
                _check_name(target.step, target.at, "", flow, findings)
        _check_join(step, flow, findings)
        _check_boundaries(step, findings)
    if playbook.entry in flow.names and not flow.computed:
        for step in playbook.steps:
            if step.name not in flow.reachable:
                findings.report("step.unreachable", step.at, f"no way leads to step `{step.name}`")


def _check_name(name: str, at: Position, where: str, flow: Flow, findings: Findings) -> None:
    if name in flow.names or name == END:
        return
    meant = findings.guess(name, flow.names)
    findings.report(
        "step.unknown", at, f"there is no step `{name}`{where}", f"did you mean `{meant}`?" if meant else None
    )


def _check_join(step: Step, flow: Flow, findings: Findings) -> None:
    if step.join is None or step.join.mode == "spread":
        return
    leading = flow.leading[step.name]
    for name, at in zip(step.join.of, step.join.of_at, strict=True):
        if name not in flow.names:
            _check_name(name, at, " to join", flow, findings)
        elif name not in leading and not flow.computed:
            findings.report(
                "join.no_arc",
                at,
                f"step `{step.name}` waits for `{name}`, but nothing leads from there to it",
            )
    listed = frozenset(step.join.of)
    for name in leading:
        if name not in listed:
            findings.report(
                "join.unlisted",
                step.join.at,
                f"`{name}` leads to `{step.name}` but is not in its join's `of`",
            )


def _check_boundaries(step: Step, findings: Findings) -> None:
    """A loop step ends with `loop.done`, any other with `step.done`: arcs must ask for the right one."""
    asked = "step.done" if step.loop is not None else "loop.done"
    right = "loop.done" if step.loop is not None else "step.done"
    wrong: list[Template] = []
    for arc in step.router.arcs:
        if arc.when is None or not isinstance(arc.when, Template):
            return
        source = arc.when.source
        if right in source or not _reads_event_name(arc.when):
            return
        if asked in source:
            wrong.append(arc.when)
    if wrong:
        what = "a loop" if step.loop is not None else "not a loop"
        findings.report(
            "next.boundary",
            wrong[0].at,
            f"step `{step.name}` is {what} and ends with `{right}`, but its arcs only ask for `{asked}`",
            f"write event.name == '{right}'",
        )


def _reads_event_name(when: Template) -> bool:
    try:
        return any(read.path[:2] == ("event", "name") for read in when.reads)
    except TemplateSyntaxError:  # reported where templates are checked
        return False
