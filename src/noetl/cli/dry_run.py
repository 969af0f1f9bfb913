"""`noetl run --dry-run`: what a run would begin with. Nothing is run, and no store is touched.

The templates of the first step are resolved as far as they can be before anything has happened; secrets
are shown by name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from noetl.cli.diagnostics import visible
from noetl.cli.files import write_json
from noetl.engine.bodies import Bodies
from noetl.engine.scope import Iteration, Surroundings, pipeline_scope
from noetl.engine.state import Data, Frame
from noetl.engine.workload import materialise
from noetl.errors import TemplateError, UndefinedNameError
from noetl.playbook.drawing.text import text as drawn
from noetl.playbook.graph import graph_of
from noetl.playbook.model import Block, Case, Loop, Node, Parallel, Playbook, Step, Task
from noetl.template import Scope, Template

NO_EXECUTION: Final = "dry-run"


class NamedSecrets(Mapping[str, str]):
    """Stands in for the keychain: each entry is its own name."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def __getitem__(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(name)
        return f"<keychain.{name}>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def dry_run(playbook: Playbook, payload: Data, *, as_json: bool) -> int:
    """Shows it on standard output, as text or as one JSON document; the exit code."""
    try:
        workload = materialise(playbook.workload, payload, NO_EXECUTION)
    except TemplateError as error:
        if as_json:
            write_json(document(playbook, None, None, [{"template": None, "message": error.message}]))
        else:
            print(f"the request would fail: {error.message}", file=sys.stderr)
        return 1
    resolving = Resolving(playbook, workload)
    step = next(step for step in playbook.steps if step.name == playbook.entry)
    first = resolving.step(step)
    if as_json:
        write_json(document(playbook, workload, first, resolving.problems))
        return 0
    print(drawn(graph_of(playbook)))
    if workload:
        print("workload")
        print(indented(workload))
        print()
    print(f"begins with: {visible(step.name)}")
    for line in (*_loop_lines(first, 2), *_task_lines(first["tasks"], 2)):
        print(line)
    return 0


def document(playbook: Playbook, workload: Data | None, first: Data | None, problems: list[Data]) -> Data:
    """What a run would begin with; without a workload and a first step where the request would fail."""
    arcs: dict[str, list[Data]] = {step.name: [] for step in playbook.steps}
    for edge in graph_of(playbook).edges:
        arcs[edge.source].append({"step": edge.target, "route": edge.route, "label": edge.label or None})
    return {
        "status": "dry_run",
        "playbook": {"name": playbook.name, "path": playbook.path, "dialect": playbook.dialect},
        "entry": playbook.entry,
        "workload": workload,
        "steps": [{"step": name, "arcs": found} for name, found in arcs.items()],
        "first_step": first,
        "problems": problems,
    }


class Resolving:
    """The first step with its templates resolved.

    `problems` has the templates that could not be, but not those that read what a task before theirs gives.
    """

    def __init__(self, playbook: Playbook, workload: Data) -> None:
        self.problems: list[Data] = []
        self._before: set[str] = set()
        self._around = Surroundings(
            execution_id=NO_EXECUTION,
            workload=workload,
            ctx={},
            vars={},
            args={},
            keychain=NamedSecrets([entry.name for entry in playbook.keychain]),
            results={},
            bodies=Bodies(),
        )

    def step(self, step: Step) -> Data:
        boundary = self._around.boundary(None)
        self._around.args = {name: self._resolved(value, boundary) for name, value in step.args.items()}
        shown: Data = {"step": step.name}
        if self._around.args:
            shown["args"] = self._around.args
        iteration = None
        if step.loop is not None:
            items = self._resolved(step.loop.source, self._around.boundary(None))
            shown["loop"] = {"iterator": step.loop.iterator, "in": items}
            iteration = _first(step.loop, items, None)
        return shown | {"tasks": list(self._nodes(step.body, iteration))}

    def _nodes(self, nodes: tuple[Node, ...], iteration: Iteration | None) -> Iterator[Data]:
        for node in nodes:
            if isinstance(node, Task):
                yield self._task(node, iteration)
            elif isinstance(node, Block):
                yield self._block(node, iteration)
            elif isinstance(node, Parallel):
                yield from self._nodes(tuple(branch.node for branch in node.branches), iteration)
            elif isinstance(node, Case) and node.call is not None:
                yield self._task(node.call, iteration)
            if not isinstance(node, Case):
                self._before.add(node.label)

    def _block(self, block: Block, iteration: Iteration | None) -> Data:
        shown: Data = {"label": block.label}
        if block.loop is not None:
            items = self._resolved(block.loop.source, self._scope(iteration, block.label, {}))
            shown["loop"] = {"iterator": block.loop.iterator, "in": items}
            iteration = _first(block.loop, items, iteration)
        return shown | {"tasks": list(self._nodes(block.body, iteration))}

    def _task(self, task: Task, iteration: Iteration | None) -> Data:
        args = self._resolved(task.args, self._scope(iteration, task.label, {}))
        scope = self._scope(iteration, task.label, args if isinstance(args, dict) else {})
        fields: Data = {
            name: self._resolved(value, scope) for name, value in task.config.items() if name != "kind"
        }
        if args:
            fields["args"] = args
        return {"label": task.label, "kind": task.kind, "fields": fields}

    def _scope(self, iteration: Iteration | None, label: str, args: Data) -> Scope:
        return pipeline_scope(
            self._around,
            Frame(),
            iteration,
            label=label,
            action_id=NO_EXECUTION,
            task_args=args,
            outer_results={},
        )

    def _resolved(self, value: Any, scope: Scope) -> Any:  # noqa: ANN401 - plain data
        """The value, evaluated; templates that need what has not happened yet stay as written."""
        if isinstance(value, Template):
            try:
                return value.evaluate(scope)
            except TemplateError as error:
                awaited = isinstance(error, UndefinedNameError) and error.name.split(".")[0] in self._before
                if not awaited:
                    self.problems.append({"template": value.source, "message": error.message})
                return value.source
        if isinstance(value, dict):
            return {name: self._resolved(item, scope) for name, item in value.items()}
        if isinstance(value, list):
            return [self._resolved(item, scope) for item in value]
        return value


def _first(loop: Loop, items: object, outer: Iteration | None) -> Iteration | None:
    """The first iteration of a loop, to show its templates with."""
    if not isinstance(items, list) or not items:
        return outer
    return Iteration(loop.iterator, items[0], 0, outer, {})


def _task_lines(tasks: list[Data], margin: int) -> Iterator[str]:
    pad = " " * margin
    for shown in tasks:
        if "kind" not in shown:
            yield f"{pad}{shown['label']}"
            yield from _loop_lines(shown, margin + 2)
            yield from _task_lines(shown["tasks"], margin + 2)
            continue
        yield f"{pad}{shown['label']}: {shown['kind']}"
        if shown["fields"]:
            yield indented(shown["fields"], margin + 4)


def _loop_lines(shown: Data, margin: int) -> Iterator[str]:
    if "loop" in shown:
        yield f"{' ' * margin}once for each {shown['loop']['iterator']} of"
        yield indented(shown["loop"]["in"], margin + 4)


def indented(value: object, margin: int = 2) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return "\n".join(" " * margin + visible(line) for line in text.splitlines())
