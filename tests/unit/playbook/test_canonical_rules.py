"""The rules of a task's policy: their shapes, the directives they lower to, and what is wrong with them."""

from __future__ import annotations

import pytest

from noetl.template import Template
from tests.unit.playbook.reports import assert_reports, first_task, only, rules, step, task, valid


def test_a_task_without_a_policy_has_no_rules() -> None:
    assert first_task(step("tool: {kind: noop}")).rules is None


def test_rules_lower_to_directives_with_their_patches() -> None:
    found = first_task(
        rules(
            "{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 5, backoff: exponential,"
            " delay: 1.5, max_delay: 1m, jitter: true}},"
            "{when: '{{ _prev }}', then: {do: jump, to: task_1, set_iter: {page: 2}}},"
            "{else: {then: {do: continue, set_ctx: {n: '{{ outcome.result }}'}}}}"
        )
    ).rules
    assert found is not None
    retry, jump, otherwise = found
    assert (retry.then.do, retry.then.attempts) == ("retry", 5)
    backoff = retry.then.backoff
    assert (backoff.kind, backoff.delay, backoff.max_delay, backoff.jitter) == (
        "exponential",
        1.5,
        60.0,
        True,
    )
    assert (jump.then.do, jump.then.to, jump.then.set_iter) == ("jump", "task_1", {"page": 2})
    assert otherwise.when is None
    assert isinstance(otherwise.then.set_ctx["n"], Template)


def test_a_retry_has_three_attempts_without_a_wait_unless_it_says_otherwise() -> None:
    found = first_task(
        rules("{when: '{{ outcome.error }}', then: {do: retry}}, {else: {then: {do: continue}}}")
    ).rules
    assert found is not None
    then = found[0].then
    assert (then.attempts, then.backoff.kind, then.backoff.delay) == (3, "none", 0.0)


@pytest.mark.parametrize(
    "policy",
    [
        "‹policy.shape›[{else: {then: {do: continue}}}]",
        "‹policy.shape›continue",
        "{‹policy.shape›on_error: fail}",
        "‹policy.shape›{}",
        "{rules: ‹value.type›{do: continue}}",
        "{rules: [], ‹key.unknown›mode: x}",
        "{rules: ‹value.type›}",
    ],
)
def test_a_task_policy_has_one_shape(policy: str) -> None:
    assert_reports(task(f"spec: {{policy: {policy}}}"))


@pytest.mark.parametrize(
    "rule",
    [
        "‹value.type›continue",
        "{else: {then: {‹rule.no_do›set_ctx: {a: 1}}}}",
        "{else: {then: ‹rule.no_do›{}}}",
        "{else: {‹key.unknown›‹key.missing›do: continue}}",
        "{else: ‹value.type›continue}",
        "{else: ‹value.type›}",
        "{else: {then: ‹value.type›continue}}",
        "{else: {then: {do: ‹value.choice›contine}}}",
        "{else: {then: {do: ‹rule.skip_else›skip}}}",
        "{else: {then: {‹key.missing›do: jump}}}",
        "{else: {then: {do: retry, attempts: ‹value.type›0}}}",
        "{else: {then: {do: retry, backoff: ‹value.choice›exp}}}",
        "{else: {then: {do: retry, delay: ‹value.duration›soon}}}",
        "{else: {then: {do: continue, ‹rule.idle_key›attempts: 3}}}",
        "{else: {then: {do: break, ‹rule.idle_key›to: task_1}}}",
        "{else: {then: {do: continue, ‹key.unknown›set_vars: {}}}}",
        "{else: {then: {do: continue, ‹key.replaced›if: x}}}",
        "{else: {then: {do: continue, set_ctx: ‹value.type›[1]}}}",
        "{‹rule.else_with_when›when: '{{ true }}', else: {then: {do: fail}}}",
        "{‹rule.else_with_when›then: {do: fail}, else: {then: {do: fail}}}",
        "{‹key.missing›then: {do: fail}}, {else: {then: {do: fail}}}",
        "{‹key.missing›when: '{{ true }}'}, {else: {then: {do: fail}}}",
        "{when: ‹when.plain_text›always, then: {do: fail}}, {else: {then: {do: fail}}}",
        "{when: ‹value.type›1, then: {do: fail}}, {else: {then: {do: fail}}}",
        "{when: ‹value.type›, then: {do: fail}}, {else: {then: {do: fail}}}",
        "{‹key.replaced›expr: x, when: '{{ true }}', then: {do: fail}}, {else: {then: {do: fail}}}",
    ],
)
def test_a_mistake_in_a_rule_is_reported_where_it_stands(rule: str) -> None:
    assert_reports(rules(rule))


def test_rules_without_else_are_warned_of_unless_they_only_skip() -> None:
    found = only(task("spec: {policy: {‹rules.no_else›rules: [{when: '{{ true }}', then: {do: fail}}]}}"))
    assert "continues" in found.message
    valid(rules("{when: '{{ true }}', then: {do: skip}}"))


def test_parallel_iterations_that_write_ctx_are_warned_of_unless_a_reducer_is_named() -> None:
    loop = "loop: {in: [1], iterator: i, spec: {mode: parallel, reduce: {total: sum}}}"
    then = "{else: {then: {do: continue, set_ctx: {total: 1, ‹ctx.parallel_write›last: 2}}}}"
    found = only(step(f"{loop}, tool: {{kind: noop, spec: {{policy: {{rules: [{then}]}}}}}}"))
    assert found.hint == "name a reducer: loop.spec.reduce: {last: last}"
