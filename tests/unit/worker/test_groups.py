# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""Tasks inside tasks (v1): what runs side by side, what waits, and which result bubbles up."""

from __future__ import annotations

from collections.abc import Mapping

from noetl.testing import Answer, Run, after, fails, play, replies

HEAD = "apiVersion: noetl.io/v1\nkind: Playbook\nname: p\npath: tests/p\nworkload: {items: [a, b, c], n: 3}\n"
CALL = """
workflow:
  - {step: start, call: {task: whole, with: {n: 4}}, next: [{step: end}]}
  - {step: end, call: {task: show, with: {value: "{{ whole }}"}}}
"""
SHOW = (
    "  - {task: show, type: http, method: POST, url: 'http://x.example', payload: {value: '{{ value }}'}}\n"
)


def played(workbook: str, tools: Mapping[str, Answer], workflow: str = CALL) -> Run:
    return play(f"{HEAD}{workflow}workbook:\n{workbook}{SHOW}", tools={"http": 1, **tools})


def shown(run: Run) -> object:
    config = run.calls[-1].config
    return (config.get("payload") or config["body"])["value"]


def by_value(seconds: float = 10) -> Answer:
    return lambda call: after(seconds, {"v": (call.args or {}).get("v")})


def test_siblings_run_side_by_side_unless_one_reads_anothers_result() -> None:
    run = played(
        """
  - task: whole
    type: task
    run:
      - {task: one, type: python, code: pass, with: {v: 1}}
      - {task: two, type: python, code: pass, with: {v: 2}}
      - {task: three, type: python, code: pass, with: {v: "{{ one.v + two.v }}"}}
""",
        {"python": by_value()},
    )
    assert run.status == "completed", run.error
    assert run.elapsed == 20
    assert [call.args["v"] for call in run.calls if call.kind == "python"] == [1, 2, 3]
    assert shown(run) == {"v": 3}


def test_a_list_in_a_nested_run_goes_in_sequence_after_its_parent_and_sees_its_result() -> None:
    run = played(
        """
  - task: whole
    type: task
    run:
      - task: parent
        type: python
        code: pass
        with: {v: "{{ n }}"}
        run:
          - {task: first, type: python, code: pass, with: {v: "{{ parent.v + 1 }}"}}
          - {task: second, type: python, code: pass, with: {v: 6}}
""",
        {"python": by_value()},
    )
    assert run.status == "completed", run.error
    assert [call.args["v"] for call in run.calls if call.kind == "python"] == [4, 5, 6]
    assert run.elapsed == 30
    assert shown(run) == {"v": 6}


def test_a_false_when_gives_null_and_an_error_can_be_passed_over() -> None:
    run = played(
        """
  - task: whole
    type: task
    run:
      - task: inner
        type: task
        run:
          - {task: bad, type: python, code: pass, on_error: continue}
          - {task: off, type: python, code: pass, when: "{{ n > 9 }}"}
""",
        {"start": fails("broken")},
    )
    assert run.status == "completed", run.error
    assert shown(run) is None
    assert len([call for call in run.calls if call.kind == "python"]) == 1


def test_a_failed_sibling_fails_the_step_and_stops_the_others() -> None:
    run = played(
        """
  - task: whole
    type: task
    run:
      - {task: bad, type: python, code: pass}
      - {task: slow, type: python, code: pass}
""",
        {"python": replies(after(1, fails("broken")), after(1000, 1))},
    )
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["kind"] == "broken"
    assert run.elapsed == 1


def test_a_retry_counts_the_calls_that_come_on_top() -> None:
    run = played("  - {task: whole, type: python, code: pass, retry: 2}\n", {"start": fails("broken")})
    assert run.status == "failed"
    assert len(run.calls) == 3


def test_an_iterator_gives_the_list_of_its_results_and_saves_each_and_all() -> None:
    run = played(
        "  - {task: gather, type: python, code: pass}\n",
        {"each": lambda call: {"v": (call.args or {}).get("v")}, "gather": lambda call: call.args["v"]},
        workflow="""
workflow:
  - {step: start, next: [{step: each}]}
  - step: each
    type: iterator
    collection: "{{ workload.items }}"
    element: item
    task:
      task: look
      type: python
      code: pass
      with: {v: "{{ item }}"}
      save: {tool: {kind: http, method: POST, url: "http://x.example", body: {one: "{{ result.v }}"}}}
    save: {tool: {kind: http, method: POST, url: "http://x.example", body: {all: "{{ result | length }}"}}}
    next: [{step: gather}]
  - {step: gather, join: each, call: {task: gather, with: {v: "{{ join_results | map(attribute='v') | join('') }}"}}, next: [{step: end}]}
  - {step: end}
""",
    )
    assert run.status == "completed", run.error
    saved = [call.config["body"] for call in run.calls if call.kind == "http"]
    assert saved == [{"one": "a"}, {"one": "b"}, {"one": "c"}, {"all": 3}]
    assert run.state.steps["gather"].result == "abc"
