"""The inside of steps: labels, jumps, workbook calls, and the fields of each tool."""

from __future__ import annotations

import pytest

from tests.unit.playbook.reports import HEAD, assert_reports, only, step, task, valid, workflow


def jump(to: str, label: str = "") -> str:
    rule = f"spec: {{policy: {{rules: [{{else: {{then: {{do: jump, to: {to}}}}}}}]}}}}"
    return f"{{kind: noop, {rule}}}" if not label else f"{{{label}: {{kind: noop, {rule}}}}}"


# --- labels and jumps --------------------------------------------------


def test_two_tasks_of_one_label_are_reported_at_the_second_label() -> None:
    found = only(
        workflow(
            """
            - step: start
              tool:
                - fetch: {kind: noop}
                - ‹label.duplicate›fetch: {kind: noop}
            """
        )
    )
    assert "line 7" in found.message


def test_a_generated_label_may_collide_with_a_written_one() -> None:
    assert_reports(step("tool: [{kind: noop}, {‹label.duplicate›task_1: {kind: noop}}]"))


def test_labels_of_different_pipelines_may_be_the_same() -> None:
    valid(
        workflow(
            """
            - step: start
              tool:
                - fetch: {kind: noop}
                - rooms: {loop: {in: [1], iterator: r}, tool: [{fetch: {kind: noop}}]}
              next: {arcs: [{step: other}]}
            - {step: other, tool: [{fetch: {kind: noop}}]}
            """
        )
    )


@pytest.mark.parametrize("label", ["a", "b", "task_3"])
def test_a_jump_may_lead_to_any_label_of_its_pipeline_also_its_own(label: str) -> None:
    valid(step(f"tool: [{jump(label, 'a')}, {{b: {{kind: noop}}}}, {{kind: noop, auth: x}}]"))


def test_a_jump_to_an_unknown_label_is_reported_at_the_label_with_the_nearest() -> None:
    found = only(step(f"tool: [{jump('‹jump.unknown_label›stroe')}, {{store: {{kind: noop}}}}]"))
    assert found.hint == "did you mean `store`?"
    far = only(step(f"tool: [{jump('‹jump.unknown_label›zzzz')}, {{store: {{kind: noop}}}}]"))
    assert far.hint == "labels here: `task_1`, `store`"


def test_a_jump_neither_enters_nor_leaves_a_block() -> None:
    inside = f"{{loop: {{in: [1], iterator: i}}, tool: [{jump('‹jump.unknown_label›outer', 'inner')}]}}"
    assert_reports(step(f"tool: [{jump('‹jump.unknown_label›inner', 'outer')}, {{block: {inside}}}]"))


def test_a_jump_in_a_workbook_entry_stays_in_it() -> None:
    entries = f"workbook: [{{name: w, tool: [{jump('‹jump.unknown_label›start')}]}}]\n"
    assert_reports(f"{HEAD}{entries}workflow: [{{step: start, tool: {{kind: workbook, name: w}}}}]\n")


# --- tool kinds and fields --------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "meant"),
    [
        *[("pg", "postgres"), ("py", "python"), ("duck", "duckdb"), ("bash", "shell"), ("htpp", "http")],
        *[("Python", "python"), ("postgress", "postgres")],
    ],
)
def test_an_unknown_kind_is_reported_at_the_kind_with_the_right_word(kind: str, meant: str) -> None:
    found = only(step(f"tool: {{url: x, kind: ‹tool.unknown_kind›{kind}}}"))
    assert found.hint == f"did you mean `{meant}`?"


def test_without_a_near_kind_all_are_listed() -> None:
    found = only(step("tool: {kind: ‹tool.unknown_kind›zzzzzzzzz}"))
    assert found.hint is not None
    assert "`http`" in found.hint


@pytest.mark.parametrize(
    "tool",
    [
        "{‹tool.missing_field›kind: python}",
        "{‹tool.missing_field›args: {}, kind: python}",
        "{‹tool.missing_field›kind: http}",
        "{‹tool.missing_field›kind: postgres}",
        "{‹tool.missing_field›kind: workbook}",
        "{kind: http, url: x, ‹tool.unknown_field›urll: y}",
        "{kind: http, url: x, ‹tool.field_value›method: FETCH}",
        "{kind: http, url: x, ‹tool.field_value›headers: [1]}",
        "{kind: http, ‹tool.field_value›url: 5}",
        "{kind: http, url: x, ‹tool.same_field_twice›endpoint: y}",
        "{kind: http, endpoint: x, ‹tool.same_field_twice›url: y}",
        "{kind: http, url: x, json: 1, ‹tool.same_field_twice›data: 2}",
        "{kind: http, url: x, ‹tool.unknown_field›retry: 3}",
        "{kind: http, url: x, ‹tool.unknown_field›'{{ x }}': 3}",
    ],
)
def test_a_mistake_in_the_fields_of_a_tool_is_reported_where_it_stands(tool: str) -> None:
    assert_reports(step(f"tool: {tool}"))


def test_an_unknown_field_is_a_warning_with_the_nearest_field_or_what_other_dialects_mean_by_it() -> None:
    assert only(task("url: x, ‹tool.unknown_field›header: {}", "http")).hint == "did you mean `headers`?"
    assert "do: retry" in (only(task("url: x, ‹tool.unknown_field›retry: 3", "http")).hint or "")
    assert only(task("‹tool.unknown_field›with: {a: 1}")).severity == "warning"
    assert "block" in (only(task("‹tool.unknown_field›loop: {in: [1], iterator: i}")).hint or "")


def test_a_missing_field_of_a_labelled_task_is_reported_at_its_first_key() -> None:
    assert_reports(
        workflow(
            """
            - step: start
              tool:
                - fetch:
                    ‹tool.missing_field›kind: http
                    method: GET
            """
        )
    )


@pytest.mark.parametrize("method", ["'{{ workload.m }}'", "'{{ workload.m | upper }}'"])
def test_a_value_with_a_template_is_judged_when_it_is_rendered(method: str) -> None:
    valid(
        f"{HEAD}workload: {{m: GET}}\nworkflow: [{{step: start, tool: {{kind: http, url: x,"
        f" method: {method}}}}}]\n"
    )


@pytest.mark.parametrize(
    "fields",
    [
        "case: [{when: '{{ event.name }}', then: {mail: {tool: {kind: ‹tool.unknown_kind›htp}}}}]",
        "case: [{when: '{{ event.name }}', then: {sink: {tool: {kind: ‹tool.unknown_kind›pg}}}}]",
        "sink: {tool: {kind: ‹tool.unknown_kind›pg}}",
    ],
)
def test_tasks_in_cases_and_sinks_are_checked_too(fields: str) -> None:
    assert_reports(step(f"tool: {{kind: noop}}, {fields}"))


def test_tasks_in_blocks_and_iterators_are_checked_too() -> None:
    bad = "{kind: ‹tool.unknown_kind›noob}"
    assert_reports(step(f"tool: [{{b: {{loop: {{in: [1], iterator: i}}, tool: {bad}}}}}]"))
    assert_reports(step(f"tool: {{kind: iterator, in: [1], iterator: i, task: {bad}}}"))
    good = "{kind: noop}"
    assert_reports(
        step(
            f"tool: {{kind: iterator, in: [1], iterator: i, task: {good}, save: {{tool: {bad}}}}}, next: end"
        )
    )


# --- the workbook --------------------------------------------------

WORKBOOK = "workbook: [{name: greet, tool: {kind: noop}}]\n"


@pytest.mark.parametrize(
    "name",
    [
        "‹workbook.unknown›name: great",
        "‹value.template›name: '{{ execution_id }}'",
        "‹tool.field_value›name: 5",
    ],
)
def test_a_workbook_task_is_called_by_its_plain_name(name: str) -> None:
    assert_reports(f"{HEAD}{WORKBOOK}workflow: [{{step: start, tool: {{kind: workbook, {name}}}}}]\n")


def test_workbook_tasks_that_call_each_other_in_a_circle_are_reported() -> None:
    assert_reports(
        HEAD
        + "workbook:\n"
        + "  - {name: ‹workbook.recursive›a, tool: {kind: workbook, name: b}}\n"
        + "  - {name: ‹workbook.recursive›b, tool: [{kind: noop}, {kind: workbook, name: a}]}\n"
        + "  - {name: c, tool: {kind: workbook, name: a}}\n"
        + "workflow: [{step: start, tool: {kind: workbook, name: c}}]\n"
    )


def test_a_workbook_name_used_twice_is_reported_at_the_second() -> None:
    entries = "workbook: [{name: a, tool: {kind: noop}}, {name: ‹workbook.duplicate›a, tool: {kind: noop}}]\n"
    assert_reports(f"{HEAD}{entries}workflow: [{{step: start, tool: {{kind: workbook, name: a}}}}]\n")
