"""No secret comes to light by a failure: of a tool, of a template, of a call that cannot be made."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.embedded import Embedded
from noetl.playbook.load import load
from noetl.records.event import Event
from noetl.records.protocols import ToolCall
from noetl.secrets.keychain import Resolver
from noetl.store.memory import MemoryStore
from noetl.testing import Answer, FakeClock, ScriptedTool, fails
from noetl.tools.registry import builtin_kinds, runnable

SECRET = "a-very-s3cret/token"
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
keychain: [{name: KEY, kind: env}]
workflow:
  - step: start
    tool:
      kind: http
      url: "https://example.com"
      headers: {key: "{{ keychain.KEY }}"}
      args: {n: ARG}
      spec: {timeout: 5, policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 2}}]}}
"""  # noqa: E501 - a task on one line reads better than folded


def crash(call: ToolCall) -> Answer:
    raise RuntimeError(f"no connection with {SECRET}")


def events_of(answer: Answer, argument: str = "1") -> list[Event]:
    """The log of an execution whose one call is answered so."""
    loaded = load(PLAYBOOK.replace("ARG", argument).encode(), builtin_kinds())
    assert loaded.playbook is not None, loaded.diagnostics
    clock, events = FakeClock(), list[Event]()

    def tool(kind: str) -> Any:
        return ScriptedTool(kind, {"start": answer}, clock, []) if kind == "http" else runnable(kind)

    async def to_its_end() -> None:
        with tempfile.TemporaryDirectory() as folder:
            resolver = Resolver({"KEY": SECRET}, Path(folder), clock)
            engine = Embedded(
                MemoryStore(),
                Path(folder),
                clock=clock,
                on_event=events.append,
                tool=tool,
                resolver=resolver,
            )
            async with engine:
                await engine.finished(await engine.start(loaded, {}))

    clock.run(to_its_end())
    return events


@pytest.mark.parametrize(
    "answer",
    [
        fails("http.status", f"401: {SECRET} is not known", retryable=True),
        fails("http.status", "401", result={"echo": [SECRET, {SECRET: 1}]}),
        fails("http.status", "401", http={"status": 401, "headers": {"www-authenticate": SECRET}}),
        crash,
    ],
    ids=["message", "result", "fields of the kind", "crash"],
)
def test_what_a_tool_says_about_its_failure_is_written_without_secrets(answer: Answer) -> None:
    events = events_of(answer)
    assert [event.status for event in events if event.event_type == "task.done"] == ["error", "error"]
    written = msgspec.json.encode(events).decode()
    assert "***" in written
    assert SECRET not in written


def test_an_argument_that_cannot_be_evaluated_is_told_without_the_secret_in_it() -> None:
    events = events_of({"ok": True}, argument='"{{ (keychain.KEY ~ [1]) | int(default=none) + [1] }}"')
    failed = next(event for event in events if event.event_type == "task.done")
    assert failed.status == "error"
    assert SECRET not in msgspec.json.encode(events).decode()
