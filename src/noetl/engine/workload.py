"""The workload of an execution: the payload laid over the playbook's, then the playbook's templates.

Text that came with the payload is data and never a template. Values that are made from others are
rendered after them.
"""

from __future__ import annotations

from typing import Any

from noetl.engine.scope import render_inner
from noetl.engine.state import Data
from noetl.errors import TemplateError, TemplateValueError
from noetl.playbook.layering import merge
from noetl.playbook.model import Value
from noetl.template import Scope, Template


def materialise(workload: dict[str, Value], payload: Data, execution_id: str) -> Data:
    """The merged and rendered workload; TemplateError where a value cannot be rendered."""
    merged = merge(workload, payload)
    # What came with the payload alone is data: a large one is not looked through.
    ready: Data = {name: value for name, value in merged.items() if name not in workload}
    waiting = {name: _needs(value, merged) for name, value in merged.items() if name in workload}
    while waiting:
        free = [name for name, needs in waiting.items() if waiting.keys().isdisjoint(needs)]
        if not free:
            raise TemplateValueError("these workload values need each other: " + ", ".join(sorted(waiting)))
        scope = Scope({"workload": ready, "execution_id": execution_id}, [ready])
        for name in free:
            ready[name] = _rendered(name, merged[name], scope)
            del waiting[name]
    return {name: ready[name] for name in merged}


def _rendered(name: str, value: Value, scope: Scope) -> Any:  # noqa: ANN401 - plain data
    try:
        return render_inner(value, scope)
    except TemplateError as error:
        raise TemplateValueError(f"workload value `{name}` cannot be rendered: {error.message}") from error


def _needs(value: Value, workload: dict[str, Value]) -> set[str]:
    """The workload keys a value is made from."""
    found: set[str] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Template):
            for read in item.reads:
                name = read.path[1] if read.path[0] == "workload" and len(read.path) > 1 else read.path[0]
                if name in workload:
                    found.add(name)
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return found
