"""The result of a loop that is too large to be kept is read from the events of its iterations."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.records.protocols import ToolCall
from noetl.records.report import AnyCommand, LeaseReport, ReportedEvent
from noetl.testing import Answer, Run, after, play
from tests.unit.control.planes import HEAD, Planes, claimed, report

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


BLOCK_INSIDE = HEAD + (
    "workflow:\n"
    "  - step: start\n"
    "    loop: {in: [a, b], iterator: n}\n"
    "    tool: [{inner: {loop: {in: [c], iterator: m}, tool: [{work: {kind: noop}}]}}]\n"
    "    next: {arcs: [{step: last, args: {sizes: \"{{ start | map('length') | list }}\"}}]}\n"
    "  - {step: last, tool: {kind: noop}}\n"
)


def told(work: AnyCommand, event_type: str, *indexes: int, **payload: Any) -> ReportedEvent:
    """What a worker says of an iteration; one of the block inside has an index more."""
    path = "/".join((work.step_run_id, *map(str, indexes)))
    return ReportedEvent(
        idem_key=f"{path} {event_type} {sorted(payload)}",
        event_type=event_type,
        timestamp="2025-06-15T15:06:40.000000Z",
        entity_type="loop",
        entity_id=path,
        status="success",
        iteration_id=path,
        iteration=indexes[-1],
        payload=payload,
    )


def test_what_an_item_of_a_block_gave_is_not_taken_for_the_result_of_an_item_of_the_loop() -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane()
        await control.begin(await planes.register(BLOCK_INSIDE), {}, execution_id="1")
        work = await claimed(control)
        block: dict[str, Any] = {"block": "inner", "visit": ":1"}
        first = told(work, "loop.iteration.done", 0, result="x" * 30_000)
        await report(control, LeaseReport(lease=work.lease, events=(first,)))
        # In one report: when the arc reads the loop's result, none of this is in the log yet.
        rest = (
            told(work, "loop.started", 1, **block, items=["c"], total=1, args={}),
            told(work, "loop.iteration.started", 1, 0, **block),
            told(work, "loop.iteration.done", 1, 0, **block, result="of the block"),
            told(work, "loop.done", 1, **block, result=["of the block"], next=1),
            told(work, "loop.iteration.done", 1, result="x" * 20_000),
        )
        await report(control, LeaseReport(lease=work.lease, events=rest))
        assert (await claimed(control)).context.args == {"sizes": [30_000, 20_000]}

    planes.play(scenario)
