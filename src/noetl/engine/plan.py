"""A playbook as the engine asks it: steps by name, the ways between them, what each step reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec

from noetl.engine.state import StepResult
from noetl.playbook.check.flow import Flow
from noetl.playbook.diagnostics import Position
from noetl.playbook.model import Case, Playbook, Step, Task
from noetl.template import Template

DEFAULT_POOL: Final = "default"

_LEAVES: Final = frozenset({type(None), bool, int, float, str, Position})
"""What most of a model is made of, and holds no template."""


class Plan:
    """Made once for each version of a playbook."""

    def __init__(self, playbook: Playbook) -> None:
        self.playbook = playbook
        self.steps = {step.name: step for step in playbook.steps}
        self._reads: dict[str, frozenset[str]] = {}
        self._binding = [(step.binds, step.name) for step in playbook.steps if step.binds is not None]

    @cached_property
    def flow(self) -> Flow:
        """Only joins ask for it."""
        return Flow(self.playbook)

    @cached_property
    def _read_everywhere(self) -> frozenset[str]:
        return _roots((self.playbook.workbook, self.playbook.executor.spec))

    def can_still_reach(self, live: set[str], target: str) -> bool:
        """Whether a token on one of the live steps can come to `target`, or is there."""
        return target in live or any(
            self.flow.can_precede(name, target) for name in live if name in self.steps
        )

    def bound(self, steps: Mapping[str, StepResult]) -> dict[str, str]:
        """Second names of results, each with the step that gave the last one."""
        found: dict[str, str] = {}
        for second, name in self._binding:
            if name in steps and (second not in found or steps[name].seq > steps[found[second]].seq):
                found[second] = name
        return found

    def is_closed_by_worker(self, step: Step) -> bool:
        """Whether more than its iterations belongs to a loop step: a case, a sink, variables."""
        return step.sink is not None or bool(step.vars) or self.has_case(step)

    def has_case(self, step: Step) -> bool:
        """Whether a case, which whoever runs the step evaluates, may choose the way out of it."""
        return any(isinstance(node, Case) for node in step.body)

    def waits_for_events(self, step: Step) -> bool:
        return any(isinstance(node, Case) and node.on_event for node in step.body)

    @cached_property
    def has_children(self) -> bool:
        """Whether any of its tasks may call another playbook."""
        return any(task.kind == "playbook" for task in tasks_in(self.playbook))

    def pool(self, step: str) -> str:
        """The pool of workers that a step's work is for."""
        for spec in (self.steps[step].spec, self.playbook.executor.spec):
            pool = spec.get("pool")
            if isinstance(pool, str):
                return pool
        return DEFAULT_POOL

    def names_read(self, step: Step) -> frozenset[str]:
        """The root names that the templates of a step's body read."""
        known = self._reads.get(step.name)
        if known is None:
            own = (step.body, step.loop, step.args, step.sink, step.vars, step.spec)
            known = self._reads[step.name] = _roots(own) | self._read_everywhere
        return known


def _roots(part: object) -> frozenset[str]:
    return frozenset(read.path[0] for template in templates_in(part) for read in template.reads)


def templates_in(part: object) -> Iterator[Template]:
    """Every template inside a part of the model."""
    return (item for item in parts_in(part) if isinstance(item, Template))


def tasks_in(part: object) -> Iterator[Task]:
    return (item for item in parts_in(part) if isinstance(item, Task))


def parts_in(part: object) -> Iterator[object]:
    """Everything inside a part of the model, itself included, but for its leaves."""
    waiting = [part]
    while waiting:
        item = waiting.pop()
        if type(item) in _LEAVES:
            continue
        yield item
        if isinstance(item, Template):
            continue
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, msgspec.Struct):
            waiting.extend(getattr(item, name) for name in item.__struct_fields__)
