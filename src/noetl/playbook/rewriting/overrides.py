"""Says `call` with overrides as a jump to the call, whose fields read what changed, or else what they had.

The first call sees the field as it was written; each further one sees the value that the rule kept by
`set_iter` before it jumped back.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from noetl.playbook.model import CallAction, Task, Value
from noetl.playbook.rewriting.bodies import Labels
from noetl.playbook.rewriting.expressions import expression, literal, operand
from noetl.playbook.rewriting.inexpressible import Report
from noetl.template import Template

Path = tuple[str, ...]


class Overrides:
    """The fields that calls change, each with the name under which its value is kept."""

    def __init__(self, call: Task, actions: Iterable[CallAction], labels: Labels, report: Report) -> None:
        self._call = call
        self._report = report
        self.names: dict[Path, str] = {}
        found = [(action, dict(_leaves(action.overrides))) for action in actions]
        changed = {
            path
            for _, leaves in found
            for path, value in leaves.items()
            if _at(call, path) != (value,) or isinstance(value, Template)
        }
        for action, leaves in found:
            # A call that leaves a field as the call before it set it cannot be told from one that resets it.
            if changed - leaves.keys():
                report.say("call-override", action.at)
        for path in sorted(changed):
            self.names[path] = labels.fresh(path[-1] if path[-1].isidentifier() else "value")

    def call(self) -> Task:
        """The call with its changing fields as templates."""
        call = self._call
        for path, name in self.names.items():
            call = self._replaced(call, path, name)
        return call

    def patch(self, action: CallAction) -> dict[str, Value]:
        leaves = dict(_leaves(action.overrides))
        return {name: leaves[path] for path, name in self.names.items() if path in leaves}

    def _replaced(self, call: Task, path: Path, name: str) -> Task:
        found = _at(call, path)
        template = _with_default(name, found[0]) if found else None
        if template is None:
            self._report.say("call-override", call.at)
            return call
        if path[0] == "args":
            return msgspec.structs.replace(call, args=_set(call.args, path[1:], template))
        return msgspec.structs.replace(call, config=_set(call.config, path, template))


def _leaves(value: Value, path: Path = ()) -> Iterable[tuple[Path, Value]]:
    """Overrides are merged deeply: each value that is no mapping replaces what stands at its path."""
    if isinstance(value, dict) and (value or not path):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    else:
        yield path, value


def _at(call: Task, path: Path) -> tuple[Value, ...]:
    """The value at a path, in a tuple; empty where there is none."""
    found: Value = {"args": call.args} | call.config
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return ()
        found = found[name]
    return () if isinstance(found, dict) else (found,)


def _set(data: Value, path: Path, value: Value) -> Value:
    if not path:
        return value
    return data | {path[0]: _set(data[path[0]], path[1:], value)}


def _with_default(name: str, value: Value) -> Template | None:
    """What was kept under the name, or the value as it was written."""
    if isinstance(value, Template):
        if not value.sole:
            return None
        written = operand(expression(value))
        return Template("{{ iter." + f"{name} if iter.{name} is defined else {written}" + " }}")
    text = literal(value)
    return None if text is None else Template("{{ iter." + name + f" | default({text})" + " }}")
