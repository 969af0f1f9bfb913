"""What a playbook is asked while it runs: pools, second names of results, what a step reads."""

from __future__ import annotations

from noetl.engine.leases import command_id, run_and_lease
from noetl.engine.plan import Plan
from noetl.engine.state import StepResult
from noetl.playbook.load import load
from noetl.tools.registry import builtin_kinds

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"


def plan_of(text: str) -> Plan:
    loaded = load((HEAD + text).encode(), builtin_kinds())
    assert loaded.playbook is not None, loaded.diagnostics
    return Plan(loaded.playbook)


def test_a_steps_own_pool_wins_over_the_playbooks_and_that_over_the_default() -> None:
    own = "{step: start, spec: {pool: own}, tool: {kind: noop}}"
    steps = f"workflow: [{own}, {{step: other, tool: {{kind: noop}}}}]\n"
    plan = plan_of(steps + "executor: {spec: {pool: ours}}\n")
    assert (plan.pool("start"), plan.pool("other")) == ("own", "ours")
    assert plan_of(steps).pool("other") == "default"


def test_a_playbook_has_children_if_any_of_its_tasks_calls_one() -> None:
    assert not plan_of("workflow: [{step: start, tool: {kind: noop}}]\n").has_children
    nested = "workflow: [{step: start, tool: [{a: {kind: noop}}, {b: {kind: playbook, path: q}}]}]\n"
    assert plan_of(nested).has_children


def test_a_step_reads_what_its_templates_name_and_what_every_step_does() -> None:
    plan = plan_of(
        "workflow:\n"
        "  - {step: start, tool: {kind: noop, args: {a: '{{ execution_id }}', b: ['{{ earlier.rows }}']}}}\n"
        "  - {step: earlier, tool: {kind: noop}}\n"
    )
    assert plan.names_read(plan.steps["start"]) == {"execution_id", "earlier"}
    assert plan.names_read(plan.steps["earlier"]) == frozenset()


def test_of_steps_that_share_a_second_name_the_last_to_end_has_it() -> None:
    plan = plan_of("workflow: [{step: start, tool: {kind: noop}}]\n")
    plan._binding = [("rows", "a"), ("rows", "b"), ("other", "c")]
    ended = {name: StepResult(status="done", seq=seq) for name, seq in (("a", 5), ("b", 3))}
    assert plan.bound(ended) == {"rows": "a"}
    ended["b"].seq = 7
    assert plan.bound(ended) == {"rows": "b"}


def test_a_command_is_named_for_its_run_and_its_lease() -> None:
    assert [command_id("1.1", lease) for lease in (0, 1, 12)] == ["1.1", "1.1~1", "1.1~12"]
    assert [run_and_lease(name) for name in ("1.1", "1.1~1", "1.1~12")] == [
        ("1.1", 0),
        ("1.1", 1),
        ("1.1", 12),
    ]


def test_a_step_can_still_be_reached_where_a_token_is_or_from_where_a_way_leads_there() -> None:
    plan = plan_of(
        "workflow:\n"
        "  - {step: start, tool: {kind: noop}, next: {arcs: [{step: one}]}}\n"
        "  - {step: one, tool: {kind: noop}, next: {arcs: [{step: two}]}}\n"
        "  - {step: two, tool: {kind: noop}}\n"
    )
    assert plan.can_still_reach({"two"}, "two")
    assert plan.can_still_reach({"start"}, "two")
    assert not plan.can_still_reach({"two"}, "one")
    assert not plan.can_still_reach(set(), "one")
