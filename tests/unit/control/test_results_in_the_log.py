"""The result of a loop that is too large to be kept is read from the events of its iterations."""

from __future__ import annotations

import pytest

from noetl.records.protocols import ToolCall
from noetl.testing import Answer, Run, after, play

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - step: start
    loop: {in: "{{ range(60) | list }}", iterator: n, spec: {mode: MODE, max_in_flight: 7}}
    tool: {kind: python, code: pass, args: {n: "{{ iter.n }}"}}
    next: {arcs: [{step: last, args: {there: "{{ start | reject('none') | list | length }}"}}]}
  - step: last
    tool: {kind: python, code: pass, args: {by_arc: "{{ args.there }}", numbers: "{{ start | map(attribute='n') | list }}"}}
"""  # noqa: E501 - a task on one line reads better than folded


def large(call: ToolCall) -> Answer:
    n = call.args["n"]
    return after((n * 7) % 5, {"n": n, "text": "x" * 4_000})


def played(mode: str) -> Run:
    run = play(PLAYBOOK.replace("MODE", mode), tools={"start": large, "last": None})
    assert run.status == "completed", run.error
    (done,) = run.named("loop.done")
    assert done.payload["result"]["store"] == "log"
    return run


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_tasks_read_it_whole_and_in_order(mode: str) -> None:
    (call,) = played(mode).calls_of("last")
    assert call.args["numbers"] == list(range(60))


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_arcs_read_it_whole(mode: str) -> None:
    (call,) = played(mode).calls_of("last")
    assert call.args["by_arc"] == 60
