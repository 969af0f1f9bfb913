"""Plays steps with cases, and checks of every run that its log gives its state again."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from noetl.engine.fold import fold
from noetl.engine.limits import EVENT_BYTES
from noetl.engine.state import State
from noetl.testing import Answer, Run, fails, play

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: tests/p}\n"
BUSY = fails("http.status", "503", retryable=True, result={"why": "busy"}, http={"status": 503})


def played(steps: str, tools: Mapping[str, Answer] | None = None, head: str = "") -> Run:
    """Plays steps written without their common head; the log must give the same state again."""
    run = play(f"{HEAD}{head}workflow:\n{steps}", tools={"python": {"n": 1}, **(tools or {})})
    state = State(execution_id=run.state.execution_id)
    for event in run.events:
        fold(state, event)
        assert len(msgspec.json.encode(event.payload)) <= EVENT_BYTES, event.event_type
    assert msgspec.msgpack.encode(state) == msgspec.msgpack.encode(run.state)
    return run


def labels(run: Run) -> list[str]:
    return [call.task_label for call in run.calls]


def step(case: str, *, spec: str = "{}", rest: str = "", tool: str = "{kind: python, code: pass}") -> str:
    """A step `start` with a case, and the steps `x` and `y`."""
    return f"""
  - step: start
    spec: {spec}
    tool: {tool}
    case: {case}
{rest}
  - step: x
    tool: {{kind: python, code: pass, args: {{given: "{{{{ args }}}}"}}}}
  - step: y
    tool: {{kind: python, code: pass}}
"""
