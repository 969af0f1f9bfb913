"""The v1 front end: the tasks of the workbook, what stands under `run`, retries and `save`."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from noetl.playbook.diagnostics import Diagnostic, Position
from noetl.playbook.dialects import v1
from noetl.playbook.dialects.lowering import Lowering
from noetl.playbook.findings import Findings
from noetl.playbook.model import Backoff, Block, Node, Parallel, Task, WorkbookEntry
from noetl.playbook.reader import Mapping, read
from noetl.template import Template

KINDS = frozenset({"http", "python", "postgres", "workbook", "noop"})
HEAD = "apiVersion: noetl.io/v1\nkind: Playbook\nname: t\npath: t\nworkflow: [{step: start}]\nworkbook:\n"


def lower(tasks: str) -> tuple[tuple[WorkbookEntry, ...], tuple[Diagnostic, ...]]:
    """The workbook of a playbook whose first task stands on line 7."""
    document = read((HEAD + indent(dedent(tasks).strip("\n"), "  ") + "\n").encode())
    assert document.diagnostics == []
    assert isinstance(document.root, Mapping)
    findings = Findings()
    return v1.lower(Lowering(findings, KINDS), document.root).workbook, findings.sorted()


def entry(tasks: str) -> WorkbookEntry:
    entries, found = lower(tasks)
    assert found == ()
    return entries[0]


def body(tasks: str) -> Node:
    (node,) = entry(tasks).body
    return node


def task(text: str) -> Task:
    node = body(text)
    assert isinstance(node, Task)
    return node


def parallel(node: Node) -> Parallel:
    assert isinstance(node, Parallel)
    return node


def block(node: Node) -> Block:
    assert isinstance(node, Block)
    return node


def labels(nodes: tuple[Node, ...]) -> list[str]:
    return [node.label for node in nodes if isinstance(node, Task | Block | Parallel)]


def waits(node: Parallel) -> dict[str, tuple[int, ...]]:
    names = labels(tuple(branch.node for branch in node.branches))
    return dict(zip(names, (branch.after for branch in node.branches), strict=True))


def problems(tasks: str) -> list[tuple[str, int, int]]:
    return [(each.code, each.line, each.column) for each in lower(tasks)[1]]


def only_problem(tasks: str) -> Diagnostic:
    (found,) = lower(tasks)[1]
    return found


# --- one task -------------------------------------------------------------------------------------


def test_a_task_is_an_entry_whose_body_is_one_call_with_the_fields_of_its_type():
    found = entry(
        """
        - task: get
          type: http
          desc: a forecast
          with: {city: Oslo}
          when: "{{ city }}"
          method: GET
          endpoint: "{{ workload.url }}/{{ city }}"
        """
    )
    assert (found.name, found.description, found.args) == ("get", "a forecast", {"city": "Oslo"})
    assert found.at == Position(7, 11)
    (call,) = found.body
    assert isinstance(call, Task)
    assert (call.label, call.kind, call.args) == ("get", "http", {})
    assert call.when == Template("{{ city }}")
    assert call.config == {"method": "GET", "endpoint": Template("{{ workload.url }}/{{ city }}")}
    assert call.config_at["method"] == Position(12, 5)
    assert call.config_at["kind"] == Position(8, 11)
    assert call.first_at == Position(7, 5)


def test_a_task_may_be_of_any_tool_kind_and_have_its_knobs():
    found = task("- {task: q, type: postgres, query: select 1, timeout: 5s, spec: {isolation: sandbox}}")
    assert (found.kind, found.config) == ("postgres", {"query": "select 1"})
    assert found.spec == {"isolation": "sandbox", "timeout": "5s"}


def test_retry_counts_the_executions_after_the_first():
    found = task("- {task: get, type: http, retry: 3, retry_delay: 250ms}")
    assert found.retry is not None
    assert (found.retry.max_attempts, found.retry.backoff) == (4, Backoff(delay=0.25))
    assert found.config == {}


def test_retry_and_on_error_are_accepted_on_every_type():
    found = task("- {task: run_it, type: python, retry: 0, on_error: continue}")
    assert found.retry is not None
    assert (found.retry.max_attempts, found.on_error) == (1, "continue")
    assert task("- {task: run_it, type: python, on_error: fail}").on_error == "fail"


@pytest.mark.parametrize("retry", ["-1", "1.5", "true", "'{{ n }}'", "[3]", "many"])
def test_a_retry_that_is_no_whole_number_of_more_executions_is_an_error(retry):
    assert problems(f"- task: get\n  type: http\n  retry: {retry}") == [("value.type", 9, 12)]


@pytest.mark.parametrize(
    ("line", "code", "column"),
    [
        ("retry_delay: soon", "value.duration", 18),
        ("on_error: ignore", "value.choice", 15),
        ("when: a > 1", "when.plain_text", 11),
        ("loop: {in: [1], iterator: n}", "key.misplaced", 5),
        ("next: [{step: end}]", "key.misplaced", 5),
        ("args: {a: 1}", "key.replaced", 5),
        ("condition: x", "key.replaced", 5),
    ],
)
def test_what_does_not_belong_on_a_task_is_reported_where_it_stands(line, code, column):
    assert (code, 9, column) in problems(f"- task: get\n  type: http\n  {line}")


def test_a_retry_delay_without_retry_is_a_warning():
    found = only_problem("- task: get\n  type: http\n  retry_delay: 1")
    assert (found.code, found.severity, found.line) == ("task.idle_key", "warning", 9)


@pytest.mark.parametrize("kind", ["iterator", "workbook"])
def test_types_that_only_a_step_can_be_are_refused(kind):
    assert problems(f"- task: get\n  type: {kind}") == [("value.choice", 8, 11)]


def test_a_task_needs_a_name_and_a_type():
    assert problems("- {type: noop}") == [("key.missing", 7, 6)]
    assert problems("- {task: a}") == [("key.missing", 7, 6)]
    assert only_problem("- {task: a, run: [{task: b, type: noop}]}").hint == "type: task"


def test_a_task_named_like_something_always_in_scope_is_an_error():
    assert problems("- {task: workload, type: noop}") == [("name.reserved", 7, 12)]


def test_two_top_level_tasks_of_one_name_are_an_error_at_the_second():
    assert problems("- {task: a, type: noop}\n- {task: a, type: noop}") == [("workbook.duplicate", 8, 12)]


# --- run ------------------------------------------------------------------------------------------


def test_the_tasks_under_a_called_task_start_together():
    found = parallel(
        body(
            """
            - task: both
              type: task
              when: "{{ ready }}"
              run:
                - {task: a, type: http, endpoint: "{{ url }}/a"}
                - {task: b, type: http, endpoint: "{{ url }}/b"}
            """
        )
    )
    assert (found.label, found.when, found.args) == ("both", Template("{{ ready }}"), {})
    assert waits(found) == {"a": (), "b": ()}


def test_a_task_that_reads_an_earlier_sibling_waits_for_it():
    found = parallel(
        body(
            """
            - task: all
              type: task
              run:
                - {task: a, type: noop}
                - {task: b, type: noop, with: {x: "{{ c.result }}"}}
                - {task: c, type: noop, with: {x: "{{ a.result }} of {{ b }}"}}
                - {task: d, type: noop, save: {type: postgres, table: t, args: "{{ a.rows }}"}}
                - task: e
                  type: task
                  run:
                    - {task: deep, type: noop, params: [{of: "{{ c.result }}"}]}
            """
        )
    )
    assert waits(found) == {"a": (), "b": (), "c": (0, 1), "d": (0,), "e": (2,)}


def test_a_condition_that_reads_an_earlier_sibling_makes_its_task_wait():
    tasks = (
        "[{task: a, type: noop}, {task: b, type: noop, when: '{{ a }}', save: {type: noop, args: [{x: 1}]}}]"
    )
    assert waits(parallel(body(f"- {{task: all, type: task, run: {tasks}}}"))) == {"a": (), "b": (0,)}


def test_a_name_that_a_task_binds_itself_does_not_make_it_wait():
    found = parallel(
        body(
            """
            - task: all
              type: task
              run:
                - {task: a, type: noop}
                - {task: b, type: noop, with: {a: 1}, text: "{{ a }}"}
                - {task: c, type: noop, with: {a: "{{ a }}"}, text: "{{ a }}"}
                - {task: d, type: task, with: {a: 1}, run: [{task: deep, type: noop, text: "{{ a }}"}]}
            """
        )
    )
    assert waits(found) == {"a": (), "b": (), "c": (0,), "d": ()}


def test_an_unreadable_template_makes_no_task_wait():
    found = parallel(
        body("- {task: all, type: task, run: [{task: a, type: noop}, {task: b, type: noop, x: '{{ a. }}'}]}")
    )
    assert waits(found) == {"a": (), "b": ()}


def test_a_nested_task_with_run_is_its_own_call_and_then_a_sequence():
    found = parallel(
        body(
            """
            - task: top
              type: task
              run:
                - task: B
                  type: python
                  with: {n: 1}
                  when: "{{ n }}"
                  code: "def main(): return 1"
                  retry: 1
                  run:
                    - {task: C, type: noop}
                    - {task: D, type: noop, with: {x: "{{ C }}"}}
            """
        )
    )
    inner = block(found.branches[0].node)
    assert (inner.label, inner.args, inner.when, inner.loop) == ("B", {"n": 1}, Template("{{ n }}"), None)
    assert labels(inner.body) == ["B", "C", "D"]
    own = inner.body[0]
    assert isinstance(own, Task)
    assert (own.kind, own.args, own.when) == ("python", {}, None)
    assert own.retry is not None
    assert all(isinstance(node, Task) for node in inner.body)


def test_a_nested_composite_task_is_only_the_sequence_of_its_children():
    found = parallel(
        body(
            """
            - task: top
              type: task
              run:
                - task: middle
                  type: task
                  run:
                    - {task: one, type: noop}
                    - {task: two, type: task, run: [{task: three, type: noop}]}
            """
        )
    )
    middle = block(found.branches[0].node)
    assert labels(middle.body) == ["one", "two"]
    assert labels(block(middle.body[1]).body) == ["three"]


def test_a_called_task_with_a_call_of_its_own_runs_it_before_its_children_start_together():
    found = block(
        body(
            """
            - task: top
              type: http
              endpoint: x
              run:
                - {task: a, type: noop}
                - {task: b, type: noop}
            """
        )
    )
    assert labels(found.body) == ["top", "top_run"]
    assert isinstance(found.body[0], Task)
    assert waits(parallel(found.body[1])) == {"a": (), "b": ()}


def test_a_nested_task_cannot_refer_to_a_top_level_task():
    found = only_problem(
        """
        - task: top
          type: task
          run: [{task: other}]
        - {task: other, type: noop}
        """
    )
    assert (found.code, found.line, found.column) == ("task.reference", 9, 18)
    assert "define it inline" in (found.hint or "")


def test_a_nested_task_may_have_the_name_of_a_top_level_task_if_it_is_defined():
    found = entry("- {task: top, type: task, run: [{task: other, type: noop}]}\n- {task: other, type: noop}")
    assert waits(parallel(found.body[0])) == {"other": ()}


def test_the_untyped_example_of_a_composite_task_needs_types():
    assert problems(
        """
        - task: process_city_weather
          type: task
          run:
            - task: get_forecast
            - task: evaluate_weather
        """
    ) == [("key.missing", 10, 9), ("key.missing", 11, 9)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("desc: nothing to do", ("key.missing", 7, 5)),
        ("run: []", ("value.type", 9, 10)),
        ("run: {task: a, type: noop}", ("value.type", 9, 10)),
        ("run: [a]", ("value.type", 9, 11)),
        ("run: [{type: noop}]", ("key.missing", 9, 12)),
    ],
)
def test_a_composite_task_needs_a_list_of_definitions(line, expected):
    assert problems(f"- task: top\n  type: task\n  {line}") == [expected]


@pytest.mark.parametrize(
    ("key", "code"),
    [("retry: 3", "key.misplaced"), ("on_error: continue", "key.misplaced"), ("endpoint: x", "key.unknown")],
)
def test_a_composite_task_calls_nothing_so_it_has_no_fields_of_a_call(key, code):
    tasks = f"- task: top\n  type: task\n  {key}\n  run: [{{task: a, type: noop}}]"
    assert problems(tasks) == [(code, 9, 5)]


# --- save -----------------------------------------------------------------------------------------


def test_save_with_the_fields_of_its_tool_is_a_sink():
    sink = task(
        "- {task: a, type: noop, save: {type: postgres, table: t, with: {x: 1}, when: '{{ result }}'}}"
    ).sink
    assert sink is not None
    assert (sink.task.kind, sink.task.config, sink.task.args) == ("postgres", {"table": "t"}, {"x": 1})
    assert (sink.when, sink.at) == (Template("{{ result }}"), Position(7, 27))


def test_save_with_a_tool_is_a_sink():
    sink = task("- {task: a, type: noop, save: {tool: {kind: postgres, table: t, args: {x: 1}}}}").sink
    assert sink is not None
    assert (sink.task.kind, sink.task.config, sink.task.args) == ("postgres", {"table": "t"}, {"x": 1})


def test_save_on_a_composite_task_stores_what_bubbles_up():
    found = block(
        body("- {task: top, type: task, save: {type: postgres, table: t}, run: [{task: a, type: noop}]}")
    )
    assert found.sink is not None
    assert labels(found.body) == ["top_run"]


@pytest.mark.parametrize(
    ("save", "expected"),
    [("[x]", ("value.type", 9, 11)), ("{table: t}", ("key.missing", 9, 12))],
)
def test_a_save_without_a_tool_is_an_error(save, expected):
    assert problems(f"- task: a\n  type: noop\n  save: {save}") == [expected]
