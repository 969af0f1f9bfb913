"""The v1 front end: root, steps, calls, iterators, the clauses of `next`, loops and joins."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import msgspec
import pytest
import yaml

from noetl.playbook.diagnostics import Diagnostic, Position
from noetl.playbook.dialects import v1
from noetl.playbook.dialects.lowering import Lowering
from noetl.playbook.findings import Findings
from noetl.playbook.load import Loaded, load
from noetl.playbook.model import Playbook, Step, Task
from noetl.playbook.reader import Mapping, read
from noetl.records.tool import ToolDescription
from noetl.template import Template

CASES = Path(__file__).resolve().parents[2] / "conformance" / "cases"
KINDS = frozenset({"http", "python", "postgres", "workbook", "noop"})
HEAD = "apiVersion: noetl.io/v1\nkind: Playbook\nname: weather\npath: examples/weather\n"
WORKBOOK = "workbook:\n  - {task: add, type: python, code: 'def main(): return 1'}\n"


class AnyFields(msgspec.Struct):
    """The fields of the kinds these tests use."""

    name: str | None = None
    code: str | None = None
    endpoint: str | None = None


DESCRIPTIONS = {
    kind: ToolDescription(kind=kind, summary=f"Tool {kind}.", config=AnyFields) for kind in sorted(KINDS)
}


def lower(text: str) -> tuple[Playbook, tuple[Diagnostic, ...]]:
    document = read(text.encode())
    assert document.diagnostics == []
    assert isinstance(document.root, Mapping)
    findings = Findings()
    return v1.lower(Lowering(findings, KINDS), document.root), findings.sorted()


def workflow(steps: str, rest: str = WORKBOOK) -> str:
    """A playbook whose first step stands on line 6."""
    return HEAD + "workflow:\n" + indent(dedent(steps).strip("\n"), "  ") + "\n" + rest


def steps_of(steps: str) -> dict[str, Step]:
    playbook, found = lower(workflow(steps))
    assert found == ()
    return {step.name: step for step in playbook.steps}


def problems(steps: str, rest: str = WORKBOOK) -> list[tuple[str, int, int]]:
    return [(each.code, each.line, each.column) for each in lower(workflow(steps, rest))[1]]


def only_problem(steps: str) -> Diagnostic:
    (found,) = lower(workflow(steps))[1]
    return found


def loaded(text: str) -> Loaded:
    return load(text.encode(), DESCRIPTIONS)


# --- the root -------------------------------------------------------------------------------------


def test_the_root_gives_name_path_description_workload_and_the_entry_step():
    text = workflow(
        "- {step: start}", "desc: forecasts\nworkload: {limit: 3, twice: '{{ workload.limit * 2 }}'}\n"
    )
    playbook, found = lower(text)
    assert found == ()
    assert (playbook.name, playbook.path, playbook.dialect) == ("weather", "examples/weather", "v1")
    assert playbook.metadata == {"description": "forecasts"}
    assert playbook.workload == {"limit": 3, "twice": Template("{{ workload.limit * 2 }}")}
    assert playbook.entry == "start"


def test_keychain_and_executor_are_accepted_as_in_the_other_dialects():
    playbook, found = lower(
        workflow("- {step: start}", "keychain: [{name: token, kind: env}]\nexecutor: {profile: local}\n")
    )
    assert found == ()
    assert playbook.keychain[0].name == "token"
    assert playbook.executor.profile == "local"


def test_name_path_and_workflow_are_required():
    _, found = lower("apiVersion: noetl.io/v1\nkind: Playbook\n")
    assert [(each.code, each.line) for each in found] == [("key.missing", 1)] * 3
    assert {
        word for each in found for word in ("name", "path", "workflow") if f"`{word}`" in each.message
    } == {
        "name",
        "path",
        "workflow",
    }


def test_root_keys_of_other_dialects_and_unknown_ones_are_errors_with_hints():
    text = workflow("- {step: start}", "metadata: {name: x}\nvars: {}\nworkbok: []\n")
    found = lower(text)[1]
    assert [(each.code, each.line) for each in found] == [
        ("key.replaced", 7),
        ("root.vars", 8),
        ("key.unknown", 9),
    ]
    assert found[0].hint == "write `name` and `path` at the root"
    assert found[2].hint == "did you mean `workbook`?"


def test_a_workflow_without_start_is_an_error():
    assert problems("- {step: first}") == [("entry.no_start", 5, 1)]


def test_two_steps_of_one_name_are_an_error_at_the_second():
    assert problems("- {step: start}\n- {step: start}") == [("step.duplicate", 7, 12)]


# --- steps and calls ------------------------------------------------------------------------------


def test_a_call_is_a_workbook_task_whose_name_also_binds_the_result():
    step = steps_of("- {step: start, desc: sums, with: {b: 2}, call: {task: add, with: {a: '{{ b }}'}}}")[
        "start"
    ]
    assert step.description == "sums"
    assert step.args == {"b": 2}
    assert step.binds == "add"
    (task,) = step.body
    assert isinstance(task, Task)
    assert (task.label, task.kind, task.config) == ("add", "workbook", {"name": "add"})
    assert task.args == {"a": Template("{{ b }}")}
    assert task.at == task.config_at["name"] == Position(6, 58)


def test_a_call_of_an_unknown_task_is_an_error_at_its_name():
    (found,) = loaded(workflow("- {step: start, call: {task: ad}}")).diagnostics
    assert (found.code, found.line, found.column) == ("workbook.unknown", 6, 32)
    assert found.hint == "did you mean `add`?"


def test_names_and_types_of_nested_tasks_are_checked_like_those_of_any_pipeline():
    workbook = """
workbook:
  - task: top
    type: task
    run:
      - {task: a, type: htp}
      - {task: a, type: noop}
"""
    found = loaded(workflow("- {step: start, call: {task: top}}", workbook)).diagnostics
    assert [(each.code, each.line, each.column) for each in found] == [
        ("tool.unknown_kind", 12, 25),
        ("label.duplicate", 13, 16),
    ]


@pytest.mark.parametrize("call", ["[{task: add}, {task: add}]", "add"])
def test_a_step_calls_exactly_one_task(call):
    assert problems(f"- step: start\n  call: {call}") == [("value.type", 7, 11)]


def test_a_call_with_the_words_of_other_dialects_gets_the_right_ones():
    found = lower(workflow("- {step: start, call: {task: add, args: {}}}"))[1]
    assert [(each.code, each.hint) for each in found] == [("key.replaced", "write `with`")]


def test_run_on_a_step_is_an_error_that_points_to_a_composite_task():
    found = only_problem("- step: start\n  run: [{task: add}]")
    assert (found.code, found.line, found.column) == ("key.misplaced", 7, 5)
    assert found.hint is not None
    assert "`type: task`" in found.hint


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("tool", "call: {task: …}"),
        ("args", "`with`"),
        ("case", "under `next`"),
        ("retry", "on the task"),
        ("when", "next: [{when"),
        ("sink", "`save`"),
    ],
)
def test_step_keys_of_other_dialects_are_errors_that_name_the_right_word(key, hint):
    found = only_problem(f"- step: start\n  {key}: {{}}")
    assert (found.code, found.line, found.column) == ("key.replaced", 7, 5)
    assert hint in (found.hint or "")


def test_an_unknown_step_key_is_an_error_with_the_nearest_word():
    found = only_problem("- step: start\n  nxt: [{step: end}]")
    assert (found.code, found.hint) == ("key.unknown", "did you mean `next`?")


def test_a_step_of_any_type_but_iterator_is_an_error():
    found = only_problem("- step: start\n  type: python")
    assert (found.code, found.line, found.column) == ("value.choice", 7, 11)
    assert "call: {task: …}" in (found.hint or "")
    assert only_problem("- step: start\n  type: iteratr").hint == "did you mean `iterator`?"


def test_the_keys_of_an_iterator_are_errors_on_any_other_step():
    assert problems("- step: start\n  task: add\n  save: {}\n  collection: []") == [
        ("key.misplaced", 7, 5),
        ("key.misplaced", 8, 5),
        ("key.misplaced", 9, 5),
    ]


# --- iterators ------------------------------------------------------------------------------------


def test_an_iterator_step_loops_over_its_nested_task_and_takes_a_scalar_as_a_list_of_one():
    step = steps_of(
        """
        - step: start
          type: iterator
          collection: abc
          element: word
          mode: parallel
          task:
            task: shout
            type: python
            with: {word: "{{ word }}"}
            code: "def main(word): return word"
            save: {type: postgres, table: words, args: {w: "{{ result }}"}}
          save: {tool: {kind: postgres, table: lists}, when: "{{ result }}"}
        """
    )["start"]
    assert step.loop is not None
    assert (step.loop.source, step.loop.iterator, step.loop.mode) == ("abc", "word", "parallel")
    assert step.loop.wrap_scalar
    assert step.binds is None
    (task,) = step.body
    assert isinstance(task, Task)
    assert (task.label, task.kind, task.args) == ("shout", "python", {"word": Template("{{ word }}")})
    assert task.sink is not None
    assert (task.sink.task.kind, task.sink.task.config) == ("postgres", {"table": "words"})
    assert task.sink.task.args == {"w": Template("{{ result }}")}
    assert step.sink is not None
    assert (step.sink.task.kind, step.sink.when) == ("postgres", Template("{{ result }}"))


def test_the_task_of_an_iterator_needs_no_name():
    step = steps_of("- {step: start, type: iterator, in: [1], iterator: n, task: {type: noop}}")["start"]
    assert [node.label for node in step.body if isinstance(node, Task)] == ["task_1"]


def test_an_iterator_needs_a_collection_an_element_and_a_task():
    found = lower(workflow("- {step: start, type: iterator}"))[1]
    assert [each.code for each in found] == ["key.missing"] * 3
    assert all("step `start` needs" in each.message for each in found)


def test_an_iterator_that_names_a_workbook_task_is_told_to_define_it_inline():
    assert problems("- {step: start, type: iterator, in: [1], iterator: n, task: {task: add}}") == [
        ("task.reference", 6, 70)
    ]
    assert problems("- {step: start, type: iterator, in: [1], iterator: n, task: add}") == [
        ("value.type", 6, 63)
    ]


@pytest.mark.parametrize("extra", ["call: {task: add}", "loop: {in: [1], iterator: m}"])
def test_an_iterator_neither_calls_nor_loops_besides(extra):
    step = f"- step: start\n  type: iterator\n  in: [1]\n  iterator: n\n  task: {{type: noop}}\n  {extra}"
    assert problems(step) == [("key.misplaced", 11, 5)]


# --- next -----------------------------------------------------------------------------------------


def arcs(next_: str) -> list[tuple[object, list[str]]]:
    router = steps_of(f"- {{step: start, next: {next_}}}")["start"].router
    assert router.mode == "exclusive"
    for arc in router.arcs:
        assert not arc.takes_failure
        assert not any(target.carry for target in arc.targets)
    return [(arc.when, [str(target.step) for target in arc.targets]) for arc in router.arcs]


def test_the_clauses_of_next_are_arcs_in_order_and_else_is_last_wherever_it_stands():
    found = arcs(
        "[{else: [{step: c}]}, {when: '{{ a }}', then: [{step: a}]}, {when: '{{ b }}', then: [{step: b}]}]"
    )
    assert found == [(Template("{{ a }}"), ["a"]), (Template("{{ b }}"), ["b"]), (None, ["c"])]


def test_a_clause_without_when_is_an_else():
    assert arcs("[{then: [{step: c}]}, {when: '{{ a }}', then: [{step: a}]}]") == [
        (Template("{{ a }}"), ["a"]),
        (None, ["c"]),
    ]


def test_several_targets_of_one_clause_leave_together():
    assert arcs("[{then: [{step: a}, {step: b}]}]") == [(None, ["a", "b"])]


@pytest.mark.parametrize("next_", ["[{step: a}, b]", "[{step: a}, {step: b}]"])
def test_bare_references_form_one_unconditional_clause(next_):
    assert arcs(next_) == [(None, ["a", "b"])]


def test_bare_references_beside_conditions_are_what_remains():
    found = arcs("[{step: b}, {when: '{{ a }}', then: [{step: a}]}, {step: c}]")
    assert found == [(Template("{{ a }}"), ["a"]), (None, ["b", "c"])]


@pytest.mark.parametrize("next_", ["a", "{step: a}", "[a]", "{then: a}", "[{else: {step: a}}]"])
def test_a_single_step_may_stand_where_a_list_is_expected(next_):
    assert arcs(next_) == [(None, ["a"])]


def test_a_reference_takes_only_its_own_with_along():
    (arc,) = steps_of("- {step: start, next: [{step: a, with: {x: '{{ y }}'}}]}")["start"].router.arcs
    assert arc.targets[0].args == {"x": Template("{{ y }}")}
    assert arc.targets[0].at == Position(6, 33)


@pytest.mark.parametrize(
    ("next_", "code", "column"),
    [
        ("[{else: [a]}, {step: b}]", "next.two_fallbacks", 25),
        ("[{else: [a]}, {then: [b]}]", "next.two_fallbacks", 26),
        ("[{when: '{{ a }}', then: [a], else: [b]}]", "rule.else_with_when", 13),
        ("[{when: '{{ a }}', step: b}]", "next.shape", 13),
        ("[{when: '{{ a }}'}]", "key.missing", 13),
        ("[{when: a > 1, then: [a]}]", "when.plain_text", 19),
        ("[{then: []}]", "value.type", 19),
        ("[{step: a, args: {x: 1}}]", "key.replaced", 22),
        ("[{step: '{{ a }}'}]", "value.template", 19),
        ("['{{ a }}']", "value.template", 12),
        ("[{stp: a}]", "key.unknown", 13),
        ("[3]", "next.shape", 12),
        ("{arcs: []}", "next.shape", 11),
    ],
)
def test_a_next_that_cannot_be_read_is_reported_where_it_is_wrong(next_, code, column):
    assert (code, 7, column) in problems(f"- step: start\n  next: {next_}")


# --- loops and joins ------------------------------------------------------------------------------

LOOP_STEPS = """
- step: start
  loop: {LOOP}
  next: [{step: fetch}]
- step: fetch
  next: [{FETCH}]
- step: gather
  JOIN
  next: [{step: report}]
- step: report
- step: other
  next: [{step: report}]
"""


def loop_steps(
    loop: str = "in: '{{ workload.cities }}', iterator: city", join: str = "", fetch: str = "step: gather"
):
    return LOOP_STEPS.replace("LOOP", loop).replace("FETCH", fetch).replace("JOIN", join or "desc: no join")


def test_a_loop_is_joined_by_the_step_that_names_it():
    steps = steps_of(loop_steps(join="join: start"))
    spread, join = steps["start"].spread, steps["gather"].join
    assert spread is not None
    assert (spread.source, spread.iterator) == (Template("{{ workload.cities }}"), "city")
    assert (spread.join, spread.max_in_flight, spread.at) == ("gather", 16, Position(7, 5))
    assert join is not None
    assert (join.mode, join.of) == ("spread", ("start",))
    assert (join.at, join.of_at) == (Position(12, 5), (Position(12, 11),))
    assert steps["start"].loop is None


def test_a_loop_may_name_the_step_that_joins_it():
    steps = steps_of(loop_steps("collection: [1], element: n, join: gather"))
    assert steps["start"].spread is not None
    assert steps["start"].spread.join == "gather"
    assert steps["gather"].join is not None
    assert steps["gather"].join.of == ("start",)


def test_a_loop_and_its_joining_step_may_name_each_other():
    steps = steps_of(loop_steps("in: [1], iterator: n, join: gather", join="join: start"))
    assert steps["start"].spread is not None
    assert steps["start"].spread.join == "gather"


def test_join_end_in_a_loop_means_that_nobody_joins_it():
    steps = steps_of(loop_steps("in: abc, iterator: n, join: end", fetch="step: report"))
    assert steps["start"].spread is not None
    assert steps["start"].spread.join is None
    assert all(step.join is None for step in steps.values())


@pytest.mark.parametrize(
    ("loop", "width"),
    [
        ("in: [1], iterator: n, join: end", 16),
        ("in: [1], iterator: n, join: end, mode: sequential", 1),
        ("in: [1], iterator: n, join: end, spec: {max_in_flight: 4}", 4),
        ("in: [1], iterator: n, join: end, mode: parallel, spec: {max_in_flight: 4}", 4),
        ("in: [1], iterator: n, join: end, spec: {mode: sequential}", 1),
    ],
)
def test_mode_and_max_in_flight_say_how_many_items_are_under_way(loop, width):
    spread = steps_of(loop_steps(loop, fetch="step: report"))["start"].spread
    assert spread is not None
    assert spread.max_in_flight == width


@pytest.mark.parametrize(
    ("loop", "join", "expected"),
    [
        ("in: [1], iterator: n", "", ("loop.no_join", 7, 5)),
        ("in: [1], iterator: n, join: gater", "", ("step.unknown", 7, 40)),
        ("in: [1], iterator: n, join: start", "", ("join.conflict", 7, 40)),
        ("in: [1], iterator: n, join: report", "join: start", ("join.conflict", 7, 40)),
        ("in: [1], iterator: n, join: end", "join: start", ("join.conflict", 7, 40)),
        ("in: [1], iterator: n, join: end", "join: fetch", ("join.no_loop", 12, 11)),
        ("in: [1], iterator: n, join: end", "join: stat", ("step.unknown", 12, 11)),
        ("in: [1], iterator: n, join: end, wide: 3", "", ("key.unknown", 7, 45)),
        ("in: [1], iterator: n, join: end, spec: {batch_size: 3}", "", ("key.unknown", 7, 52)),
        ("in: [1], join: end", "", ("key.missing", 7, 12)),
    ],
)
def test_a_loop_and_its_join_that_do_not_fit_are_reported(loop, join, expected):
    assert problems(loop_steps(loop, join)) == [expected]


def test_an_unknown_join_is_given_the_nearest_step():
    assert only_problem(loop_steps("in: [1], iterator: n, join: gater")).hint == "did you mean `gather`?"


def test_join_end_beside_a_loop_belongs_into_it():
    steps = "- step: start\n  loop: {in: [1], iterator: n, join: end}\n  join: end"
    assert problems(steps) == [("key.misplaced", 8, 5)]


def test_one_loop_has_one_joining_step_and_one_step_joins_one_loop():
    two_joins = loop_steps(join="join: start").replace("- step: other", "- step: other\n  join: start")
    assert problems(two_joins) == [("join.conflict", 16, 11)]
    two_loops = loop_steps(join="join: start").replace(
        "- step: other", "- step: other\n  loop: {in: [1], iterator: n, join: gather}"
    )
    assert ("join.conflict", 16, 40) in problems(two_loops)


def test_a_step_may_join_an_iterator_whose_list_it_gets():
    steps = steps_of(
        """
        - {step: start, type: iterator, in: [1], iterator: n, task: {type: noop}, next: [{step: all}]}
        - {step: all, join: start, with: {rows: "{{ join_results }}"}}
        """
    )
    assert steps["all"].join is not None
    assert (steps["all"].join.mode, steps["all"].join.of) == ("spread", ("start",))
    assert steps["start"].spread is None


# --- leaving a loop -------------------------------------------------------------------------------


def test_items_that_go_past_the_joining_step_are_an_error_at_the_way_they_take():
    steps = loop_steps(
        join="join: start", fetch="when: '{{ city }}', then: [{step: gather}]}, {else: [{step: report}]"
    )
    found = only_problem(steps)
    assert (found.code, found.line) == ("loop.escapes", 10)
    assert "`report`" in found.message
    assert found.hint == "lead them to `gather` or to `end`"


def test_items_that_end_or_go_to_steps_of_their_own_stay_in_the_loop():
    steps = loop_steps(
        join="join: start",
        fetch="when: '{{ city }}', then: [{step: gather}, {step: note}]}, {else: [{step: end}]",
    )
    steps_of(steps + "- step: note\n- step: end\n")


def test_a_loop_inside_a_loop_and_one_that_is_entered_again_stay_in_order():
    steps_of(
        """
        - {step: start, next: [{step: countries}]}
        - {step: countries, loop: {in: [1], iterator: c, join: world}, next: [{step: cities}]}
        - {step: cities, loop: {in: [1], iterator: t, join: country}, next: [{step: visit}]}
        - {step: visit, next: [{step: country}]}
        - {step: country, next: [{step: world}]}
        - {step: world, next: [{when: "{{ again }}", then: [{step: countries}]}, {else: [{step: end}]}]}
        """
    )


def test_items_of_an_inner_loop_that_reach_the_outer_join_leave_their_loop():
    assert problems(
        """
        - {step: start, loop: {in: [1], iterator: c, join: world}, next: [{step: cities}]}
        - {step: cities, loop: {in: [1], iterator: t, join: country}, next: [{step: visit}]}
        - step: visit
          next:
            - {step: country}
            - {step: world}
        - {step: country, next: [{step: world}]}
        - {step: world}
        """
    ) == [("loop.escapes", 11, 16)]


# --- whole playbooks ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", sorted((CASES / "v1").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_playbooks_of_the_conformance_cases_are_lowered_without_a_finding(case):
    playbook = yaml.safe_load(case.read_text())["playbook"]
    lowered, found = lower(yaml.safe_dump(playbook, sort_keys=False))
    assert found == ()
    assert [step.name for step in lowered.steps] == [step["step"] for step in playbook["workflow"]]


def test_the_constraints_of_the_language_are_reported_at_their_lines():
    text = yaml.safe_load((CASES / "validation" / "v1_constraints.yaml").read_text())["text"]
    found = {(each.code, each.line) for each in loaded(text).diagnostics if each.severity == "error"}
    assert found == {("workbook.unknown", 7), ("step.duplicate", 10), ("workbook.duplicate", 13)}


def test_the_weather_loop_of_the_specification_is_lowered():
    steps = steps_of(
        """
        - {step: start, next: [{step: city_loop}]}
        - step: city_loop
          type: iterator
          collection: "{{ workload.cities }}"
          element: city
          task:
            type: http
            endpoint: "{{ workload.base_url }}/forecast"
            params:
              latitude:  "{{ city.lat }}"
              longitude: "{{ city.lon }}"
          next:
            - step: aggregate_alerts
        - step: aggregate_alerts
          join: city_loop
          with:
            alerts: "{{ join_results }}"
        """
    )
    assert steps["aggregate_alerts"].args == {"alerts": Template("{{ join_results }}")}
    assert steps["city_loop"].loop is not None
