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
from noetl.engine.bodies import Bodies
from noetl.engine.scope import Iteration, Surroundings, pipeline_scope
from noetl.engine.state import Data, Frame
from noetl.engine.workload import materialise
from noetl.errors import TemplateError
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


def dry_run(playbook: Playbook, payload: Data) -> int:
    """Shows it on standard output; the exit code."""
    try:
        workload = materialise(playbook.workload, payload, NO_EXECUTION)
    except TemplateError as error:
        print(f"the request would fail: {error.message}", file=sys.stderr)
        return 1
    print(drawn(graph_of(playbook)))
    if workload:
        print("workload")
        print(indented(workload))
        print()
    step = next(step for step in playbook.steps if step.name == playbook.entry)
    print(f"begins with: {visible(step.name)}")
    for line in _step(playbook, step, workload):
        print(line)
    return 0


def _step(playbook: Playbook, step: Step, workload: Data) -> Iterator[str]:
    around = Surroundings(
        execution_id=NO_EXECUTION,
        workload=workload,
        ctx={},
        vars={},
        args={},
        keychain=NamedSecrets([entry.name for entry in playbook.keychain]),
        results={},
        bodies=Bodies(),
    )
    around.args = {name: resolved(value, around.boundary(None)) for name, value in step.args.items()}
    iteration = None
    if step.loop is not None:
        items = resolved(step.loop.source, around.boundary(None))
        yield f"  once for each {step.loop.iterator} of"
        yield indented(items, 6)
        iteration = _first(step.loop, items, None)
    yield from _nodes(step.body, around, iteration, 2)


def _first(loop: Loop, items: object, outer: Iteration | None) -> Iteration | None:
    """The first iteration of a loop, to show its templates with."""
    if not isinstance(items, list) or not items:
        return outer
    return Iteration(loop.iterator, items[0], 0, outer, {})


def _nodes(
    nodes: tuple[Node, ...], around: Surroundings, iteration: Iteration | None, margin: int
) -> Iterator[str]:
    pad = " " * margin
    for node in nodes:
        if isinstance(node, Task):
            yield from _task(node, around, iteration, margin)
        elif isinstance(node, Block):
            yield f"{pad}{node.label}"
            inner = iteration
            if node.loop is not None:
                items = resolved(node.loop.source, _scope(around, iteration, node.label, {}))
                yield f"{pad}  once for each {node.loop.iterator} of"
                yield indented(items, margin + 4)
                inner = _first(node.loop, items, iteration)
            yield from _nodes(node.body, around, inner, margin + 2)
        elif isinstance(node, Parallel):
            yield from _nodes(tuple(branch.node for branch in node.branches), around, iteration, margin)
        elif isinstance(node, Case) and node.call is not None:
            yield from _task(node.call, around, iteration, margin)


def _task(task: Task, around: Surroundings, iteration: Iteration | None, margin: int) -> Iterator[str]:
    yield f"{' ' * margin}{task.label}: {task.kind}"
    outer = _scope(around, iteration, task.label, {})
    args = resolved(task.args, outer)
    scope = _scope(around, iteration, task.label, args if isinstance(args, dict) else {})
    shown: Data = {name: resolved(value, scope) for name, value in task.config.items() if name != "kind"}
    if args:
        shown["args"] = args
    if shown:
        yield indented(shown, margin + 4)


def _scope(around: Surroundings, iteration: Iteration | None, label: str, args: Data) -> Scope:
    return pipeline_scope(
        around, Frame(), iteration, label=label, action_id=NO_EXECUTION, task_args=args, outer_results={}
    )


def resolved(value: Any, scope: Scope) -> Any:  # noqa: ANN401 - plain data
    """The value with its templates evaluated; those that need what has not happened yet stay as written."""
    if isinstance(value, Template):
        try:
            return value.evaluate(scope)
        except TemplateError:
            return value.source
    if isinstance(value, dict):
        return {name: resolved(item, scope) for name, item in value.items()}
    if isinstance(value, list):
        return [resolved(item, scope) for item in value]
    return value


def indented(value: object, margin: int = 2) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return "\n".join(" " * margin + visible(line) for line in text.splitlines())
