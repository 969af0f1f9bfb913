"""Rewrites a v1 or v2 playbook as canonical YAML that does the same, or says what cannot be said.

The model is rewritten, construct by construct, until nothing is left that canonical YAML has no words
for, and is then written out. There is no half migration: if anything is reported, there is no text.
"""

from __future__ import annotations

from collections.abc import Mapping as Table

import msgspec

from noetl.errors import NoetlError, UsageError
from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.dialects.lowering import SOMETIMES_IN_SCOPE
from noetl.playbook.load import Loaded, load
from noetl.playbook.model import Case, Node, Playbook, Step, Task, WorkbookEntry
from noetl.playbook.rewriting.bodies import UNLABELLED, Bodies, Labels, args_given, canonical_loop
from noetl.playbook.rewriting.cases import rewrite_case
from noetl.playbook.rewriting.inexpressible import CONSTRUCTS, Construct, Report
from noetl.playbook.rewriting.reads import names_read, paths_read
from noetl.playbook.rewriting.result_names import name_results
from noetl.playbook.rewriting.routes import Way, build_router, move_args, structural_ways
from noetl.playbook.rewriting.views import VIEW_ONLY, in_tasks
from noetl.playbook.write import write
from noetl.records.tool import ToolDescription

__all__ = ["CONSTRUCTS", "Construct", "Migration", "migrate"]


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is None if something could not be expressed."""

    text: str | None
    inexpressible: tuple[Diagnostic, ...] = ()


def migrate(loaded: Loaded, kinds: Table[str, ToolDescription]) -> Migration:
    """The playbook in canonical YAML, or every construct that stands in the way."""
    if loaded.playbook is None:
        raise UsageError("only a valid playbook can be migrated")
    canonical = loaded.playbook
    if canonical.dialect != "canonical":
        report = Report()
        canonical = _Migrator(canonical, report).playbook()
        if not report.quiet:
            return Migration(text=None, inexpressible=report.sorted())
    text = write(canonical, loaded.comments)
    again = load(text.encode(), kinds)
    if again.playbook is None:
        # Better no migration than one that does not run.
        mistake = next(one.message for one in again.diagnostics if one.severity == "error")
        raise NoetlError(f"the migrated playbook is not valid: {mistake}")
    return Migration(text=text)


class _Migrator:
    def __init__(self, playbook: Playbook, report: Report) -> None:
        self._report = report
        self._playbook = _with_call_args(name_results(playbook, report), report)
        self._labels = Labels.of(self._playbook)

    def playbook(self) -> Playbook:
        rewritten = msgspec.structs.replace(
            self._playbook,
            dialect="canonical",
            workbook=tuple(self._entry(entry) for entry in self._playbook.workbook),
            steps=tuple(self._step(step) for step in self._playbook.steps),
        )
        return move_args(rewritten, self._report)

    def _entry(self, entry: WorkbookEntry) -> WorkbookEntry:
        bodies = Bodies(self._labels.beside(entry.body), self._report)
        sink = entry.sink
        body = entry.body
        if len(body) == 1 and isinstance(body[0], Task) and body[0].sink is not None and sink is None:
            # A sink behind every call is what a workbook entry's own sink is.
            sink = body[0].sink
            body = (msgspec.structs.replace(body[0], sink=None),)
        if sink is not None:
            sink = msgspec.structs.replace(sink, task=bodies.task(sink.task))
        body = bodies.pipeline(body)
        loop = None if entry.loop is None else canonical_loop(entry.loop)
        if self._playbook.dialect == "v1":
            body = _unlabelled(body)
        return msgspec.structs.replace(entry, body=body, sink=sink, loop=loop)

    def _step(self, step: Step) -> Step:
        if step.spread is not None:
            self._report.say("item-tokens", step.spread.at)
        if step.vars:
            self._report.say("vars", step.at)
        bodies = Bodies(self._labels.beside(step.body), self._report)
        ways: list[Way] = []
        kept: frozenset[str] = frozenset()
        body = step.body
        if len(body) == 1 and isinstance(body[0], Case):
            nodes, ways, kept = rewrite_case(step, body[0], bodies, readable=self._can_read(step))
            if self._is_read_elsewhere(step, kept):
                self._report.say("case-values", body[0].at)
            if len(nodes) > 1:
                self._check_views(step)
        else:
            nodes = bodies.pipeline(body)
        if step.sink is not None:
            nodes = self._stored(step, nodes, bodies, kept)
        loop = None if step.loop is None else canonical_loop(step.loop)
        return msgspec.structs.replace(
            step,
            loop=loop,
            body=_unlabelled(nodes) if self._playbook.dialect == "v1" else nodes,
            vars={},
            sink=None,
            router=build_router(
                [*ways, *structural_ways(step.router)], step.router.at, loop=loop is not None
            ),
        )

    def _stored(
        self, step: Step, nodes: tuple[Node, ...], bodies: Bodies, kept: frozenset[str]
    ) -> tuple[Node, ...]:
        """The step's sink behind its tasks, which store the step's result and leave it as it is."""
        assert step.sink is not None
        if step.loop is not None:
            self._report.say("loop-sink", step.sink.at)
            return nodes
        last = nodes[-1] if nodes else None
        if not isinstance(last, Task):
            self._report.say("sink", step.sink.at)
            return nodes
        self._check_views(step)
        last = bodies.readable(last)
        behind = bodies.stored(last.label, step.sink, in_tasks(last.label, kept), keep=True)
        return (*nodes[:-1], last, *behind)

    def _is_read_elsewhere(self, step: Step, kept: frozenset[str]) -> bool:
        """Does another step look in `ctx` for what only this step run keeps?"""
        others = tuple(other for other in self._playbook.steps if other is not step)
        read = paths_read((others, self._playbook.workbook))
        return any(path[0] == "ctx" and path[1:2] and path[1] in kept for path in read)

    def _can_read(self, step: Step) -> bool:
        """Can an arc read the step's result by its name?"""
        hidden = step.name in SOMETIMES_IN_SCOPE or step.name in args_given(self._playbook)
        return step.name.isidentifier() and not hidden

    def _check_views(self, step: Step) -> None:
        """Reports a step whose tool's own view is read elsewhere, when its last task is another."""
        read = paths_read(self._playbook)
        if any(path[0] == step.name and path[1:2] and path[1] in VIEW_ONLY | {"rows"} for path in read):
            self._report.say("result-view", step.at)


def _unlabelled(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """A pipeline of one task needs no label; the first language gave it the name of its definition."""
    if len(nodes) == 1 and isinstance(nodes[0], Task):
        return (msgspec.structs.replace(nodes[0], label=UNLABELLED),)
    return nodes


def _with_call_args(playbook: Playbook, report: Report) -> Playbook:
    """The args that workbook entries bind, on the tasks that call them."""
    bound = {entry.name: entry for entry in playbook.workbook if entry.args}
    if not bound:
        return playbook
    steps = tuple(
        msgspec.structs.replace(step, body=tuple(_called(node, bound, report) for node in step.body))
        for step in playbook.steps
    )
    entries = tuple(msgspec.structs.replace(entry, args={}) for entry in playbook.workbook)
    return msgspec.structs.replace(playbook, steps=steps, workbook=entries)


def _called(node: Node, bound: dict[str, WorkbookEntry], report: Report) -> Node:
    if not isinstance(node, Task) or node.kind != "workbook" or node.config.get("name") not in bound:
        return node
    entry = bound[node.config["name"]]
    # They are rendered where the call's args are: a name that is one of those would mean another thing.
    if names_read(entry.args) & (node.args.keys() | entry.args.keys() | {"args"}):
        report.say("step-args", entry.at)
    return msgspec.structs.replace(node, args=entry.args | node.args)
