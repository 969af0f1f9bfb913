"""Reducers around and inside blocks: every write counts, in the order of the elements."""

from __future__ import annotations

import pytest

from noetl.testing import Run, after, fails, play
from tests.unit.worker.restarts import Play, survives_death_after_every_commit

WRITE = """
            - write:
                kind: python
                code: pass
                args: {n: "{{ n }}"}
                spec:
                  policy:
                    rules: [{else: {then: {do: continue, set_ctx: {KEY: "{{ outcome.result }}"}}}}]
"""
BLOCK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - step: start
    tool:
      - many:
          loop:
            in: [1, 2, 3, 4]
            iterator: n
            spec: {mode: parallel, on_error: continue, reduce: {KEY: HOW}}
          tool:WRITES
      - last: {kind: python, code: pass, args: {seen: "{{ ctx.KEY }}"}}
"""
LOOP_AROUND = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow:
  - step: start
    loop: {in: [10, 20], iterator: m, spec: {mode: parallel, reduce: {KEY: HOW}}}
    tool:
      - many:
          loop: {in: [1, 2], iterator: n, spec: {mode: MODE INNER}}
          tool:WRITES
"""
WORKBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workbook:
  - name: both
    tool:WRITES
workflow:
  - step: start
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, reduce: {KEY: HOW}}}
    tool:
      - call: {kind: workbook, name: both, args: {n: "{{ n }}"}}
"""


def played(text: str, how: str, give: object, *, writes: int = 1, **words: str) -> Run:
    twice = WRITE + WRITE.replace("- write:", "- again:") if writes == 2 else WRITE
    for word, stands_for in {"WRITES": twice, "KEY": "seen", "HOW": how, **words}.items():
        text = text.replace(word, stands_for)
    return play(text, tools={"start/last": lambda call: call.args["seen"], "start": give})


@pytest.mark.parametrize(
    ("how", "combined"), [("sum", 10), ("min", 1), ("max", 4), ("append", [1, 2, 3, 4]), ("last", 4)]
)
def test_a_parallel_block_combines_the_writes_of_its_iterations_in_their_order(
    how: str, combined: object
) -> None:
    run = played(BLOCK, how, lambda call: after(10 - call.args["n"], call.args["n"]))  # the last ends first
    assert run.status == "completed", run.error
    assert run.state.ctx == {"seen": combined}
    assert run.result == combined


def test_every_write_of_an_iteration_counts() -> None:
    run = played(BLOCK, "append", lambda call: after(10 - call.args["n"], call.args["n"]), writes=2)
    assert run.state.ctx == {"seen": [1, 1, 2, 2, 3, 3, 4, 4]}


def test_a_write_that_a_reducer_cannot_take_fails_its_iteration_and_the_others_count() -> None:
    run = played(BLOCK, "sum", lambda call: "x" if call.args["n"] == 2 else call.args["n"])
    assert run.state.ctx == {"seen": 8}
    (failed,) = run.named("loop.iteration.failed")
    assert failed.payload["error"]["kind"] == "ctx.reduce"
    assert "reducer `sum` of ctx key `seen` cannot take `x`" in failed.payload["error"]["message"]


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
@pytest.mark.parametrize("inner", ["", ", reduce: {seen: sum}"], ids=["outer", "both"])
def test_a_loop_combines_what_the_blocks_inside_it_write(mode: str, inner: str) -> None:
    if mode == "parallel" and not inner:
        inner = ", reduce: {seen: last}"
    run = played(LOOP_AROUND, "sum", lambda call: call.args["n"], MODE=mode, INNER=inner)
    assert run.status == "completed", run.error
    assert run.state.ctx == {"seen": 6}


def test_a_loop_combines_what_the_workbook_task_it_calls_writes() -> None:
    run = played(WORKBOOK, "append", lambda call: after(9 - call.args["n"], call.args["n"]), writes=2)
    assert run.status == "completed", run.error
    assert run.state.ctx == {"seen": [1, 1, 2, 2, 3, 3]}


INSIDE_A_PARALLEL_LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workbook:
  - name: many
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, reduce: {KEY: HOW}}}
    tool:WRITES
workflow:
  - step: start
    loop: {in: [7], iterator: m, spec: {mode: parallel}}
    tool:
      - first:
          loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, reduce: {KEY: HOW}}}
          tool:WRITES
      - call: {kind: workbook, name: many}
      - last: {kind: python, code: pass, args: {n: "{{ ctx.KEY }}"}}
"""


@pytest.mark.parametrize(
    ("text", "combined"), [(BLOCK, [1, 2, 3, 4]), (INSIDE_A_PARALLEL_LOOP, [1, 2, 3, 1, 2, 3])]
)
def test_a_death_after_any_commit_changes_nothing(text: str, combined: list[int]) -> None:
    for word, stands_for in {"WRITES": WRITE, "KEY": "seen", "HOW": "append"}.items():
        text = text.replace(word, stands_for)
    tools = {"python": lambda call: after(10 - call.args["n"], call.args["n"]), "start/last": None}
    state = survives_death_after_every_commit(Play(text, tools))
    assert (state.status, state.ctx) == ("completed", {"seen": combined})


def test_what_was_written_before_a_block_failed_counts() -> None:
    text = BLOCK.replace("on_error: continue", "on_error: fail")
    run = played(text, "sum", lambda call: fails("k") if call.args["n"] == 4 else call.args["n"])
    assert (run.status, run.state.ctx) == ("failed", {"seen": 6})
