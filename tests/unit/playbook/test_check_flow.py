"""The ways between steps: unknown targets, unreachable steps, joins, and boundary events."""

from __future__ import annotations

import pytest

from noetl.playbook.check.flow import Flow
from tests.unit.playbook.reports import assert_reports, loaded, only, step, valid, workflow


def flow_of(steps: str) -> Flow:
    return Flow(valid(workflow(steps)))


def test_an_arc_to_a_step_that_does_not_exist_is_reported_at_the_name_with_the_nearest() -> None:
    found = only(
        workflow(
            """
            - {step: start, next: {arcs: [{step: report}, {step: ‹step.unknown›reprot}]}}
            - {step: report, tool: {kind: noop}}
            """
        )
    )
    assert found.message == "there is no step `reprot`"
    assert found.hint == "did you mean `report`?"


@pytest.mark.parametrize(
    "fields",
    [
        "next: {arcs: [{step: end}]}",
        "next: end",
        "next: [end]",
        "case: [{when: '{{ event.name }}', then: {next: end}}]",
    ],
)
def test_end_need_not_be_defined(fields: str) -> None:
    valid(step(f"tool: {{kind: noop}}, {fields}"))


@pytest.mark.parametrize(
    "name", ["‹step.unknown›a", "[end, ‹step.unknown›b]", "{to: [{step: ‹step.unknown›c}]}"]
)
def test_the_targets_of_actions_are_checked_too(name: str) -> None:
    assert_reports(
        step(f"tool: {{kind: noop}}, case: [{{when: '{{{{ event.name }}}}', then: {{next: {name}}}}}]")
    )


def test_a_step_that_nothing_leads_to_is_warned_of_at_its_name() -> None:
    found = only(
        workflow(
            """
            - {step: start, tool: {kind: noop}}
            - {step: ‹step.unreachable›island, tool: {kind: noop}}
            """
        )
    )
    assert found.severity == "warning"


def test_steps_that_only_lead_to_each_other_are_not_reachable() -> None:
    assert_reports(
        workflow(
            """
            - {step: start, tool: {kind: noop}}
            - {step: ‹step.unreachable›a, next: {arcs: [{step: b}]}}
            - {step: ‹step.unreachable›b, next: {arcs: [{step: a}]}}
            """
        )
    )


def test_a_computed_target_may_lead_anywhere() -> None:
    valid(
        workflow(
            """
            - step: start
              tool: {kind: noop}
              case:
                - when: "{{ event.name == 'step.exit' }}"
                  then: {next: {to: "{{ 'a' if true else 'b' }}"}}
            - {step: a, tool: {kind: noop}}
            """
        )
    )


def test_a_step_can_have_run_before_those_it_leads_to_even_around_a_cycle() -> None:
    flow = flow_of(
        """
        - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}
        - {step: a, next: {arcs: [{step: c}]}}
        - {step: b, tool: {kind: noop}}
        - {step: c, next: {arcs: [{step: a, when: "{{ event.name == 'step.done' }}"}]}}
        """
    )
    assert flow.can_precede("start", "c")
    assert flow.can_precede("c", "a")
    assert flow.can_precede("a", "a")
    assert not flow.can_precede("b", "a")
    assert not flow.can_precede("a", "start")


def test_nothing_is_said_about_a_workflow_of_many_cycles() -> None:
    names = [f"s{number}" for number in range(40)]
    steps = [{"step": "start"}, *({"step": name} for name in names)]
    text = "".join(
        f"- {{step: {one['step']}, next: {{spec: {{mode: inclusive}}, arcs: ["
        + ", ".join(f"{{step: {name}}}" for name in names)
        + "]}}\n"
        for one in steps
    )
    valid(workflow(text))


# --- joins --------------------------------------------------

JOIN = """
- {step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}
- {step: a, next: {arcs: [{step: meet}]}}
- {step: b, next: {arcs: [{step: meet}]}}
- {step: meet, tool: {kind: noop}, spec: {%s}}
"""


@pytest.mark.parametrize(
    ("join", "mode"),
    [("of: [a, b]", "all"), ("of: [a, b], mode: any", "any"), ("of: [b, a], mode: active", "active")],
)
def test_a_join_keeps_the_order_in_which_steps_are_named(join: str, mode: str) -> None:
    found = valid(workflow(JOIN % f"join: {{{join}}}")).steps[-1].join
    assert found is not None
    assert found.mode == mode
    assert list(found.of) == (["b", "a"] if mode == "active" else ["a", "b"])


@pytest.mark.parametrize(
    "join",
    [
        "join: {of: [a, b, ‹join.no_arc›start]}",
        "‹join.unlisted›join: {of: [a]}",
        "join: {of: [a, b, ‹step.unknown›bb]}",
    ],
)
def test_a_join_that_does_not_fit_the_ways_to_it_is_reported(join: str) -> None:
    assert_reports(workflow(JOIN % join))


# --- boundary events --------------------------------------------------

LOOP = "loop: {in: [1], iterator: i}, tool: {kind: noop}"


@pytest.mark.parametrize(
    ("fields", "event", "right"),
    [(LOOP, "step.done", "loop.done"), ("tool: {kind: noop}", "loop.done", "step.done")],
)
def test_arcs_that_ask_only_for_the_other_kind_of_end_are_warned_of(
    fields: str, event: str, right: str
) -> None:
    arcs = f"[{{step: end, when: ‹next.boundary›\"{{{{ event.name == '{event}' }}}}\"}}]"
    found = only(step(f"{fields}, next: {{arcs: {arcs}}}"))
    assert found.hint == f"write event.name == '{right}'"


@pytest.mark.parametrize(
    "arcs",
    [
        "{step: end, when: \"{{ event.name == 'loop.done' }}\"}",
        "{step: end, when: \"{{ event.name == 'step.done' }}\"}, {step: end}",
        "{step: end, when: \"{{ event.name in ['step.done', 'loop.done'] }}\"}",
        "{step: end, when: \"{{ event.name == 'step.done' }}\"}, {step: end, when: '{{ event.step }}'}",
        "{step: end, when: \"{{ event.name == 'step.failed' }}\"}",
    ],
)
def test_arcs_of_a_loop_that_can_be_taken_are_fine(arcs: str) -> None:
    valid(step(f"{LOOP}, next: {{arcs: [{arcs}]}}"))


def test_a_long_chain_of_steps_is_checked_and_one_beyond_the_limits_names_the_limit() -> None:
    def chain(length: int) -> str:
        steps = (
            f"- {{step: s{number}, next: {{arcs: [{{step: s{number + 1}}}]}}}}" for number in range(1, length)
        )
        return workflow(
            "\n".join(
                [
                    "- {step: start, next: {arcs: [{step: s1}]}}",
                    *steps,
                    f"- {{step: s{length}, tool: {{kind: noop}}}}",
                ]
            )
        )

    assert len(valid(chain(5_000)).steps) == 5_001
    (found,) = loaded(chain(12_000)).diagnostics
    assert found.code == "yaml.too_many_nodes"
    assert "max_nodes" in found.message
