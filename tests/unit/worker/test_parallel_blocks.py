"""Blocks inside a pipeline whose iterations run side by side."""

from __future__ import annotations

from noetl.testing import after, play

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: tests/p}
workflow:
  - step: start
    tool:
      - many:
          loop: {in: [1, 2], iterator: n, spec: {mode: parallel, on_error: %s}}
          tool:
            - write:
                kind: python
                code: pass
                args: {n: "{{ n }}"}
                spec:
                  policy:
                    rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ outcome.result }}"}}}}]
            - read: {kind: python, code: pass, args: {seen: "{{ ctx.seen }}"}}
      - last: {kind: python, code: pass, args: {seen: "{{ ctx.seen | default('nothing') }}"}}
"""


def test_iterations_of_a_parallel_block_that_write_different_values_are_in_conflict() -> None:
    tools = {"start/write": lambda call: after(call.args["n"], call.args["n"]), "start/read": None}
    run = play(PLAYBOOK % "fail", tools=tools)
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["kind"], run.error["task"]) == ("ctx.conflict", "many")


def test_each_of_them_sees_its_own_writes_and_the_first_to_end_is_kept() -> None:
    tools = {
        "start/write": lambda call: after(call.args["n"], call.args["n"]),
        "start/read": lambda call: after(3, call.args["seen"]),
        "start/last": lambda call: call.args["seen"],
    }
    run = play(PLAYBOOK % "continue", tools=tools)
    assert [call.args["seen"] for call in run.calls if call.task_label == "read"] == [1, 2]
    assert (run.status, run.result, run.state.ctx) == ("completed", 1, {"seen": 1})
    assert [event.payload["patch"] for event in run.named("ctx.patched")] == [{"seen": 1}]


def test_the_same_value_from_all_of_them_is_no_conflict() -> None:
    tools = {"start/write": 7, "start/read": None, "start/last": lambda call: call.args["seen"]}
    run = play(PLAYBOOK % "fail", tools=tools)
    assert (run.status, run.result, run.state.ctx) == ("completed", 7, {"seen": 7})
