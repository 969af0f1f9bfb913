"""No event is larger than it may be, whatever a playbook gathers; what was taken out is read as before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from noetl.embedded import Embedded
from noetl.engine.limits import EVENT_BYTES
from noetl.playbook.load import load
from noetl.store.memory import MemoryStore
from noetl.testing import Run, play
from noetl.tools.registry import builtin_kinds

HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
"""
BLOCK = """
workflow:
  - step: start
    tool:
      - gather:
          loop: {in: "{{ range(150) | list }}", iterator: n, spec: {mode: MODE}}
          tool:
            - fetch: {kind: python, code: pass, spec: {result: {inline_max_bytes: MOST}}}
      - count: {kind: python, code: pass, args: {pages: "{{ gather | length }}", last: "{{ gather[149].n }}"}}
"""
READING = """
workload: {greeting: hello}
workflow:
  - step: start
    spec: {deadline: "{{ workload.name_3 }}"}
    tool: {kind: python, code: pass, args: {one: "{{ workload.name_2 }}", other: "{{ name_9999 }}"}}
    next: {arcs: [{step: last, when: "{{ workload.name_7 == 7 }}"}]}
  - step: last
    tool: {kind: python, code: pass, args: {greeting: "{{ greeting }}"}}
"""


def largest(run: Run) -> int:
    return max(len(msgspec.json.encode(event.payload)) for event in run.events)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize(("most", "size"), [(60_000, 5_000), (1_000, 2_000)], ids=["inline", "stored"])
def test_a_block_of_many_middle_sized_results_ends_with_a_reference(mode: str, most: int, size: int) -> None:
    text = HEAD + BLOCK.replace("MODE", mode).replace("MOST", str(most))
    pages = iter(range(150))
    tools = {
        "start/fetch": lambda call: {"text": "x" * size, "n": next(pages)},
        "start/count": lambda call: call.args,
    }
    run = play(text, tools=tools)
    assert run.status == "completed", run.error
    assert run.result == {"pages": 150, "last": 149}
    assert largest(run) <= EVENT_BYTES


def test_a_workload_of_very_many_values_is_read_as_any_other() -> None:
    given = {f"name_{number}": number for number in range(10_000)}
    run = play(HEAD + READING, given, tools={"python": lambda call: call.args})
    assert run.status == "completed", run.error
    assert [call.args for call in run.calls] == [{"one": 2, "other": 9999}, {"greeting": "hello"}]
    assert largest(run) <= EVENT_BYTES


def test_code_finds_the_values_of_names_it_leaves_free_whatever_their_size(tmp_path: Path) -> None:
    task = '{kind: python, code: "result = len(rows)"}'
    text = f"{HEAD}workload: {{rows: []}}\nworkflow: [{{step: start, tool: {task}}}]\n"

    async def result(given: dict[str, object]) -> object:
        async with Embedded(MemoryStore(), tmp_path) as engine:
            execution_id = await engine.start(load(text.encode(), builtin_kinds()), given)
            return (await engine.finished(execution_id)).result

    assert asyncio.run(result({"rows": ["x" * 20] * 5_000})) == 5_000
    many = {f"other_{number}": number for number in range(9_000)}
    assert asyncio.run(result({"rows": [1, 2], **many})) == 2


def test_counts_and_durations_may_read_a_workload_that_is_stored_for_its_size() -> None:
    many = {f"k{number}": "p" * 40 for number in range(3_000)}
    block = (
        "    spec: {max_task_runs: '{{ workload.n * 100 }}'}\n"
        "    tool:\n"
        "      - each:\n"
        "          loop:\n"
        "            {in: [1, 2], iterator: x, spec: {mode: parallel, max_in_flight: '{{ workload.n }}'}}\n"
        "          tool: {kind: python, code: pass}\n"
    )
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\nworkload: {n: 2}\nworkflow:\n"
    found = play(f"{text}  - step: start\n{block}", {**many, "n": 2}, tools={"python": 1})
    assert (found.status, found.error) == ("completed", None)
    waiting = (
        "    spec: {eval_mode: on_event, timeout: '{{ workload.n }}'}\n"
        "    case:\n"
        "      - {when: \"{{ event.name == 'timer.fired' }}\", then: [{result: {from: \"{{ 'late' }}\"}}]}\n"
    )
    late = play(f"{text}  - step: start\n{waiting}", {**many, "n": 2})
    assert (late.status, late.result) == ("completed", "late")
