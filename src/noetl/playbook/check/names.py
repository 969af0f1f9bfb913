"""Judges one template at its place: syntax, the form of guards, and each name it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Mapping as Table
from typing import Final

from noetl.errors import TemplateSyntaxError
from noetl.playbook.check.cycles import in_cycles
from noetl.playbook.check.scopes import BodyNames, PlaybookNames
from noetl.playbook.diagnostics import Position
from noetl.playbook.findings import Findings
from noetl.playbook.model import NOWHERE, Case, Guard, Rule, Step, Value
from noetl.records.tool import ToolDescription
from noetl.template import Read, Template

OUTCOME_FIELDS: Final = frozenset({"status", "result", "error", "meta"})
EVENT_FIELDS: Final = frozenset({"name", "step", "data", "payload", "timestamp"})
LANGUAGE_NAMES: Final = frozenset(
    {
        "outcome",
        "event",
        "response",
        "error",
        "result",
        "this",
        "iter",
        "loop_index",
        "join_results",
        "keychain",
    }
    | {
        "_prev",
        "_task",
        "_attempt",
        "_action_id",
        "attempt",
        "max_attempts",
        "status_code",
        "success",
        "data",
    }
)


class Judge:
    """Reports what is wrong with templates. `step` and `kind` say whose they are."""

    def __init__(self, names: PlaybookNames, kinds: Table[str, ToolDescription], findings: Findings) -> None:
        self.names = names
        self.kinds = kinds
        self.findings = findings
        self.step: Step | None = None
        self.kind = ""
        self.missing: set[str] = set()
        """Undeclared workload keys that were reported."""

    # --- by the form of what holds the template ---------------------------------------------------------

    def values(self, written: dict[str, Value], scope: frozenset[str], names: BodyNames) -> None:
        for value in written.values():
            self.value(value, scope, names)

    def value(self, written: Value, scope: frozenset[str], names: BodyNames) -> None:
        kind = type(written)
        if kind is Template:
            self.template(written, scope, names, in_guard=False)
        elif kind is dict:
            for value in written.values():
                self.value(value, scope, names)
        elif kind is list:
            for value in written:
                self.value(value, scope, names)

    def guard(self, when: Guard | None, scope: frozenset[str], names: BodyNames) -> None:
        if not isinstance(when, Template):
            return
        if self.template(when, scope, names, in_guard=True) and not is_one_expression(when):
            self.findings.report(
                "when.not_one_expression",
                when.at,
                "a condition must be exactly one `{{ expression }}`",
                "join the parts with `and` or `or` inside one pair of braces",
            )

    def rule_guard(self, rule: Rule, scope: frozenset[str], names: BodyNames) -> None:
        when = rule.when
        if rule.then.do == "skip" and isinstance(when, Template) and self._reads(when, "outcome"):
            self._report_skip_outcome(when)
            return
        self.guard(when, scope, names)

    def skip_values(self, written: dict[str, Value], scope: frozenset[str], names: BodyNames) -> None:
        """The patches of a skip rule, which are rendered before the tool runs."""
        for template in templates_in(written):
            if self._reads(template, "outcome"):
                self._report_skip_outcome(template)
            else:
                self.template(template, scope, names, in_guard=False)

    def _report_skip_outcome(self, template: Template) -> None:
        offset = next(read.offset for read in template.reads if read.path[0] == "outcome")
        self.findings.report(
            "rule.skip_outcome",
            locate(template, offset),
            "a skip rule is asked before the tool runs, so it cannot read `outcome`",
            "read `_prev`, `ctx`, `iter` or an earlier task by its label",
        )

    def _reads(self, template: Template, name: str) -> bool:
        try:
            return any(read.path[0] == name for read in template.reads)
        except TemplateSyntaxError:  # reported by `template`
            return False

    def template(
        self, template: Template, scope: frozenset[str], names: BodyNames, *, in_guard: bool
    ) -> bool:
        """Whether it parses; unknown names are reported but do not count."""
        try:
            reads = template.reads
        except TemplateSyntaxError as error:
            meant = self.findings.guess(error.word, error.known) if error.word else None
            self.findings.report(
                "template.syntax",
                locate(template, error.offset),
                f"this template does not parse: {error.message}",
                f"did you mean `{meant}`?" if meant else None,
            )
            return False
        tested = {read.path for read in reads if read.guarded}
        lengths = {len(path) for path in tested}
        for read in reads:
            # `x if x is defined else y` reads x only where it is there.
            if not read.guarded and not any(read.path[:length] in tested for length in lengths):
                self._read(template, read, scope, names, in_guard)
        return True

    # --- by the name that is read -----------------------------------------------------------------------

    def _read(
        self, template: Template, read: Read, scope: frozenset[str], names: BodyNames, in_guard: bool
    ) -> None:
        root = read.path[0]
        if root in scope:
            if len(read.path) > 1:
                self._field(template, read, names, in_guard)
            return
        if root in names.iterators or root in names.args or root in names.labels or root in names.iter_keys:
            return
        known = self.names
        if names.open or root in known.ctx or root in known.vars or root in known.workload:
            return
        if root in known.spread_iterators:
            return
        if root in known.steps or root in known.bound:
            self._step_result(template, read)
            return
        self._unknown(template, read, scope, names)

    def _field(self, template: Template, read: Read, names: BodyNames, in_guard: bool) -> None:
        root, field = read.path[0], read.path[1]
        known = self.names
        match root:
            case "workload" if field not in known.workload and field not in self.missing:
                # Once a key: a playbook that takes its input from the payload would drown in warnings.
                self.missing.add(field)
                self._report("name.workload", template, read, "workload", known.workload)
            case "ctx" if field not in known.ctx:
                code = "name.ctx_in_guard" if in_guard else "name.ctx"
                self._report(code, template, read, "ctx", known.ctx)
            case "vars" if field not in known.vars:
                self._report("name.vars", template, read, "vars", known.vars)
            case "keychain" if field not in known.keychain:
                self._report("name.keychain", template, read, "keychain", known.keychain)
            case "args" if field not in names.args and not names.open:
                self._report("name.args", template, read, "args", names.args)
            case "iter" if self._lacks_iter_key(field, names):
                self._report("name.iter", template, read, "iter", names.iter_keys, ("index",))
            case "outcome" if field not in OUTCOME_FIELDS and field not in self._outcome_groups():
                self._report("name.field", template, read, "outcome", OUTCOME_FIELDS, self._outcome_groups())
            case "event" if field not in EVENT_FIELDS:
                self._report("name.field", template, read, "event", EVENT_FIELDS)
            case _:
                pass

    def _lacks_iter_key(self, field: str, names: BodyNames) -> bool:
        if self.step is None or names.open or field in ("parent", "index"):
            return False
        return field not in names.iter_keys and field not in self.names.spread_iterators

    def _outcome_groups(self) -> frozenset[str]:
        description = self.kinds.get(self.kind)
        if description is None or description.kind in ("workbook", "playbook"):
            return frozenset(self.kinds) | {"pg", "py"}
        return frozenset((description.outcome_group,)) if description.outcome_group else frozenset()

    def _step_result(self, template: Template, read: Read) -> None:
        name = read.path[0]
        if self.step is None or any(isinstance(node, Case) and node.on_event for node in self.step.body):
            return  # a step that waits for events stays open while others run
        givers = self.names.bound.get(name, []) if name not in self.names.steps else [name]
        here = self.step.name
        if here not in givers and not any(self.names.flow.can_precede(giver, here) for giver in givers):
            self.findings.report(
                "name.not_yet",
                locate(template, read.offset),
                f"`{name}` cannot have a result here: it never runs before step `{here}`",
            )
        elif len(read.path) > 2 and read.path[1] == "results" and name in self.names.steps:
            labels = self.names.labels_of_step(name)
            if read.path[2] not in labels:
                self._report("name.field", template, read, f"{name}.results", labels, at=2)

    def _unknown(self, template: Template, read: Read, scope: frozenset[str], names: BodyNames) -> None:
        root = read.path[0]
        where = locate(template, read.offset)
        if self.step is not None and self.step.loop is not None and root == self.step.loop.iterator:
            self.findings.report(
                "name.iterator",
                where,
                f"the iterator `{root}` is visible only inside its loop",
                "once the loop is over, read the step's result: a list with one entry for each element",
            )
            return
        if root in LANGUAGE_NAMES:
            hint = INSTEAD if root in RESULT_NAMES and "_prev" in scope else None
            self.findings.report("name.not_here", where, f"`{root}` is not in scope at this place", hint)
            return
        known = self.names
        here = (scope, names.iterators, names.args, names.labels, names.iter_keys)
        meant = self.findings.guess(root, *here, known.workload, known.ctx, known.steps, known.vars)
        self.findings.report(
            "name.unknown",
            where,
            f"nothing in this playbook is called `{root}`",
            f"did you mean `{meant}`?" if meant else "it works only if the payload brings it",
        )

    def _report(
        self, code: str, template: Template, read: Read, owner: str, *known: Collection[str], at: int = 1
    ) -> None:
        field = read.path[at]
        meant = self.findings.guess(field, *known)
        self.findings.report(
            code,
            locate(template, read.offset),
            f"`{owner}.{field}` {REASONS[code]}",
            f"did you mean `{owner}.{meant}`?" if meant else HINTS.get(code),
        )

    # --- the workload's own order -------------------------------------------------------------------------

    def workload_cycles(self, workload: dict[str, Value]) -> None:
        """Reports workload values that need each other to be rendered."""
        needs = {name: self._needs(value, workload) for name, value in workload.items()}
        needed = in_cycles(needs)
        in_cycle = [name for name in workload if name in needed]
        if in_cycle:
            template = next(iter(needs[in_cycle[0]].values()))
            self.findings.report(
                "workload.cycle",
                template.at,
                f"these workload values need each other: {', '.join(f'`{name}`' for name in in_cycle)}",
            )

    def _needs(self, value: Value, workload: dict[str, Value]) -> dict[str, Template]:
        found: dict[str, Template] = {}
        for item in templates_in(value):
            try:
                reads = item.reads
            except TemplateSyntaxError:  # reported by `template`
                continue
            for read in reads:
                name = read.path[1] if read.path[0] == "workload" and len(read.path) > 1 else read.path[0]
                if name in workload:
                    found[name] = item
        return found


RESULT_NAMES: Final = frozenset({"result", "response", "data", "this", "outcome", "error"})
INSTEAD: Final = (
    "the result before is `_prev`, that of an earlier task its label; "
    "a task's own outcome is `outcome`, in its rules"
)
REASONS: Final = {
    "name.workload": "is not in the playbook's workload",
    "name.ctx": "is never written",
    "name.ctx_in_guard": "is never written, so this is always false",
    "name.vars": "is never set",
    "name.keychain": "is not declared in the keychain",
    "name.args": "is passed by no way that leads here",
    "name.iter": "is never written in this pipeline",
    "name.field": "does not exist",
}
HINTS: Final = {
    "name.workload": "it works only if the payload brings it",
    "name.keychain": "declare it in the root section `keychain`",
    "name.ctx": "write it with `set_ctx` first, or give it a `default`",
    "name.iter": "write it with `set_iter` first, or give it a `default`",
}


def is_one_expression(when: Template) -> bool:
    return when.sole or Template(when.source.strip()).sole


def templates_in(written: Value) -> Iterator[Template]:
    waiting = [written]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Template):
            yield item
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def locate(template: Template, offset: int) -> Position:
    """The file position of a character of a template."""
    if template.at is None:
        return NOWHERE
    found: Position = template.at.locate(offset)
    return found
