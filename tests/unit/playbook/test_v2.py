"""The v2 front end: cases and their actions, retries and polls, transitions, and what they lower to."""

from __future__ import annotations

import pytest

from noetl.playbook.model import (
    Block,
    CallAction,
    Case,
    CollectAction,
    FailAction,
    NextAction,
    ResultAction,
    Retry,
    RetryAction,
    SetAction,
    SinkAction,
    SkipAction,
    Task,
    TaskAction,
)
from noetl.template import Template
from tests.unit.playbook.reports import (
    HEAD,
    assert_never_raises,
    assert_reports,
    first_step,
    first_task,
    loaded,
    marked,
    only,
    playbook,
    step,
    valid,
)

CALL = "tool: {kind: noop}"


def entry(written: str) -> str:
    """A playbook whose step has one call and a case with one entry."""
    return step(f"{CALL}, case: [{written}]")


def then(actions: str) -> str:
    return entry(f"{{when: '{{{{ response is defined }}}}', then: {actions}}}")


def case_of(text: str) -> Case:
    node = first_step(text).body[0]
    assert isinstance(node, Case)
    return node


def actions_of(written: str) -> tuple[object, ...]:
    return case_of(then(written)).branches[0].actions


def kinds_of(written: str) -> list[str]:
    return [type(action).__name__ for action in actions_of(written)]


# --- case --------------------------------------------------


def test_a_case_surrounds_the_one_call_of_its_step() -> None:
    found = case_of(
        step(
            f"{CALL}, spec: {{case_mode: inclusive, branch_order: priority, next_policy: defer}}, case: ["
            "{when: '{{ response.ok }}', priority: 5, spec: {cache: true}, then: {next: end}},"
            " {else: {skip: {}}}]"
        )
    )
    assert found.call is not None
    assert (found.call.kind, found.mode, found.order, found.next_policy, found.on_event) == (
        *("noop", "inclusive", "priority", "defer"),
        False,
    )
    first, otherwise = found.branches
    assert (first.id, first.priority, otherwise.id, otherwise.when) == ("case_0", 5, "case_1", None)


@pytest.mark.parametrize(
    ("when", "every"),
    [
        ("{{ event.name == 'step.enter' }}", True),
        ("{{ error is defined and event.name == 'call.error' }}", True),
        ("{{ response.event }}", False),
        ("{{ response.ok }}", False),
    ],
)
def test_an_entry_that_names_the_event_is_asked_at_every_moment(when: str, every: bool) -> None:
    found = case_of(entry(f'{{when: "{when}", then: {{next: end}}}}'))
    assert found.branches[0].every_moment is every


@pytest.mark.parametrize(
    "otherwise", ["{next: end}", "[{next: end}]", "{then: {next: end}}", "{then: [{next: end}]}"]
)
def test_else_takes_actions_directly_or_under_then(otherwise: str) -> None:
    branch = case_of(entry(f"{{else: {otherwise}}}")).branches[0]
    assert branch.when is None
    assert isinstance(branch.actions[0], NextAction)


def test_a_step_that_waits_for_events_has_timers_and_no_task_timeout() -> None:
    found = first_step(
        step(
            "spec: {eval_mode: on_event, timeout: 300s, timers: {soon: 1m}},"
            "case: [{when: \"{{ event.name == 'x' }}\", then: {next: end}}]"
        )
    )
    (node,) = found.body
    assert isinstance(node, Case)
    assert (node.on_event, node.call, node.timers) == (True, None, {"soon": 60.0, "timeout": 300.0})
    assert "timeout" not in found.spec


# --- actions --------------------------------------------------


def test_a_mapping_runs_in_fixed_order_and_a_list_as_written() -> None:
    mapping = (
        "{next: end, mail: {tool: {kind: noop}}, sink: {tool: {kind: noop}}, result: response.data,"
        " collect: {from: response.data, into: pages}, set: {ctx: {a: 1}}}"
    )
    in_order = ["SetAction", "CollectAction", "ResultAction", "SinkAction", "TaskAction", "NextAction"]
    assert kinds_of(mapping) == in_order
    listed = "[{mail: {tool: {kind: noop}}}, {set: {ctx: {a: 1}}}, {sink: {tool: {kind: noop}}}, {next: end}]"
    assert kinds_of(listed) == ["TaskAction", "SetAction", "SinkAction", "NextAction"]


def test_an_entry_with_a_tool_is_a_task_even_when_it_is_named_like_an_action() -> None:
    text = then("[{‹name.hidden›result: {tool: {kind: noop}}}]")
    assert only(text).severity == "warning"
    found = loaded(marked(text)[0]).playbook
    assert found is not None
    (node,) = found.steps[0].body
    assert isinstance(node, Case)
    assert isinstance(node.branches[0].actions[0], TaskAction)


def test_each_action_lowers_to_its_record() -> None:
    written = (
        "[{set: {ctx: {n: 1}}}, {collect: {from: response.data, into: pages, mode: extend}},"
        " {result: {from: pages}}, {call: {params: {page: '{{ response.page + 1 }}'}}},"
        " {fail: {message: no}},"
        " {fail: no}, {skip: {}}, {retry: {max_attempts: 2}}]"
    )
    change, collect, result, call, fail, short_fail, skip, retry = actions_of(written)
    assert isinstance(change, SetAction)
    assert change.values == {"n": 1}
    assert isinstance(collect, CollectAction)
    assert (collect.source.source, collect.into, collect.mode) == ("{{ response.data }}", "pages", "extend")
    assert isinstance(result, ResultAction)
    assert result.source.source == "{{ pages }}"
    assert isinstance(call, CallAction)
    assert isinstance(call.overrides["params"]["page"], Template)
    assert isinstance(fail, FailAction)
    assert isinstance(short_fail, FailAction)
    assert (fail.message, short_fail.message) == ("no", "no")
    assert isinstance(skip, SkipAction)
    assert isinstance(retry, RetryAction)
    assert retry.retry.max_attempts == 2


@pytest.mark.parametrize(
    ("written", "steps"),
    [
        ("end", ["end"]),
        ("[end, start]", ["end", "start"]),
        ("[{step: end}, {step: start}]", ["end", "start"]),
        ("{step: end}", ["end"]),
        ("{to: end}", ["end"]),
        ("{to: [{step: end}]}", ["end"]),
    ],
)
def test_a_next_action_takes_every_form_and_carries_no_args(written: str, steps: list[str]) -> None:
    (action,) = actions_of(f"{{next: {written}}}")
    assert isinstance(action, NextAction)
    assert [target.step for target in action.targets] == steps
    assert not any(target.carry for target in action.targets)


def test_a_next_action_may_have_a_policy_a_priority_a_delay_and_a_computed_target() -> None:
    written = "{next: {to: [{step: \"{{ 'end' if result.ok else 'start' }}\", args: {a: 1}}],"
    (action,) = actions_of(f"{written} policy: break_chain, priority: 10, spec: {{delay: 5s}}}}}}")
    assert isinstance(action, NextAction)
    assert (action.policy, action.priority, action.delay) == ("break_chain", 10, 5.0)
    assert isinstance(action.targets[0].step, Template)
    assert action.targets[0].args == {"a": 1}


def test_a_named_task_may_have_a_retry_and_a_poll() -> None:
    written = (
        "{wait: {tool: {kind: noop}, retry: {on: error}, poll: {until: '{{ result.ready }}', interval: 5s,"
    )
    (action,) = actions_of(f"{written} max_attempts: 6, deadline: 300s}}}}}}")
    assert isinstance(action, TaskAction)
    poll = action.task.poll
    assert poll is not None
    assert (poll.interval, poll.max_attempts, poll.deadline) == (5.0, 6, 300.0)
    assert action.task.retry is not None


def test_a_sink_inserts_what_its_args_say_when_its_condition_holds() -> None:
    found = first_step(
        step(
            f"{CALL}, sink: {{tool: {{kind: postgres, table: t, args: {{a: '{{{{ result }}}}'}}}},"
            f" when: '{{{{ result }}}}'}}"
        )
    ).sink
    assert found is not None
    assert (found.task.kind, found.task.config, list(found.task.args)) == ("postgres", {"table": "t"}, ["a"])
    assert isinstance(found.when, Template)
    (action,) = actions_of("{sink: {tool: {kind: noop}}}")
    assert isinstance(action, SinkAction)


# --- retry --------------------------------------------------


def test_the_words_of_the_first_retry_clause() -> None:
    found = first_task(
        step(
            f"{CALL}, retry: {{max_attempts: 5, initial_delay: 0.5, backoff_multiplier: 3,"
            " retry_when: '{{ status_code == 503 }}', stop_when: '{{ attempt > 2 }}'}"
        )
    ).retry
    assert found is not None
    assert (found.max_attempts, found.backoff.kind, found.backoff.delay, found.backoff.multiplier) == (
        *(5, "exponential", 0.5),
        3,
    )
    assert isinstance(found.retry_when, Template)
    assert isinstance(found.stop_when, Template)


def test_the_words_of_the_second_retry_clause() -> None:
    found = first_task(
        step(
            f"{CALL}, retry: {{on: [502, exception], backoff: {{type: linear, delay_seconds: 1,"
            " max_delay_seconds: 30, jitter: true}}"
        )
    ).retry
    assert found is not None
    assert found.on == (502, "exception")
    backoff = found.backoff
    assert (backoff.kind, backoff.delay, backoff.max_delay, backoff.jitter) == ("linear", 1.0, 30.0, True)
    fixed = first_task(step(f"{CALL}, retry: {{backoff: fixed}}")).retry
    assert fixed is not None
    assert fixed.backoff.kind == "none"


@pytest.mark.parametrize(
    ("fields", "attempts"),
    [
        ("tool: {kind: noop, retry: 2, spec: {retry: 3}}, retry: 4", 2),
        ("tool: {kind: noop, spec: {retry: 3}}, retry: 4", 3),
        ("tool: {kind: noop}, retry: 4", 4),
        ("tool: {kind: noop}, spec: {on_error: retry}, vars: {a: 1}", 3),
        ("tool: {kind: noop}, spec: {on_error: retry}, retry: 7", 7),
    ],
)
def test_the_nearest_retry_of_a_call_wins(fields: str, attempts: int) -> None:
    found = first_task(step(fields)).retry
    assert found is not None
    assert found.max_attempts == attempts


@pytest.mark.parametrize(
    ("named", "clause", "attempts"),
    [
        ("{tool: {kind: noop, retry: 2}, retry: 3}", "retry: {max_attempts: 4}", 2),
        ("{tool: {kind: noop, spec: {retry: 2}}, retry: 3}", "retry: {max_attempts: 4}", 2),
        ("{tool: {kind: noop}, retry: 3}", "retry: {max_attempts: 4}", 3),
        ("{tool: {kind: noop}}", "retry: {max_attempts: 4}", 4),
        ("{tool: {kind: noop}}", "priority: 1", 5),
        ("{tool: {kind: noop}}", "retry: {scope: chain, max_attempts: 4}", 5),
    ],
)
def test_the_nearest_retry_of_a_named_task_wins(named: str, clause: str, attempts: int) -> None:
    text = step(
        f"{CALL}, retry: 5, case: [{{when: '{{{{ response is defined }}}}', {clause},"
        f" then: {{mail: {named}}}}}]"
    )
    branch = case_of(text).branches[0]
    (action,) = branch.actions
    assert isinstance(action, TaskAction)
    assert action.task.retry is not None
    assert action.task.retry.max_attempts == attempts
    assert (branch.retry is not None) is ("chain" in clause)


def test_without_a_retry_a_call_has_none() -> None:
    assert first_task(step(f"{CALL}, vars: {{a: 1}}")).retry is None


def test_the_retry_of_a_step_reaches_the_calls_inside_an_iterator() -> None:
    node = first_step(
        step("tool: {kind: iterator, in: [1], iterator: i, task: {kind: noop}}, retry: 4")
    ).body[0]
    assert isinstance(node, Block)
    (inner,) = node.body
    assert isinstance(inner, Task)
    assert isinstance(inner.retry, Retry)
    assert inner.retry.max_attempts == 4


@pytest.mark.parametrize(
    ("actions", "reported"),
    [
        ("{next: end}", False),
        ("{retry: {max_attempts: 2}}", False),
        ("{mail: {tool: {kind: noop}}}", True),
        ("{call: {}}", True),
        ("{sink: {tool: {kind: noop}}}", True),
    ],
)
def test_a_step_is_repeated_as_a_whole_only_if_its_case_calls_no_tools(actions: str, reported: bool) -> None:
    mark = "‹retry.step_scope›" if reported else ""
    assert_reports(
        step(
            f"{CALL}, {mark}retry: {{scope: step}}, case: [{{when: '{{{{ response is defined }}}}',"
            f" then: {actions}}}]"
        )
    )


# --- steps, loops and transitions --------------------------------------------------


def test_a_step_of_v2_has_args_vars_and_an_unconditional_next() -> None:
    found = first_step(
        step(
            f"{CALL}, args: {{a: 1}}, vars: {{b: '{{{{ result }}}}'}}, next: [{{step: end,"
            f" args: {{c: 2}}}}, end]"
        )
    )
    assert found.args == {"a": 1}
    assert list(found.vars) == ["b"]
    (arc,) = found.router.arcs
    assert [(target.step, target.args, target.carry) for target in arc.targets] == [
        ("end", {"c": 2}, False),
        ("end", {}, False),
    ]
    assert (arc.when, arc.takes_failure) == (None, False)


@pytest.mark.parametrize(("written", "on_error"), [("fail", "fail"), ("ignore", "ignore"), ("retry", "fail")])
def test_on_error_of_a_step(written: str, on_error: str) -> None:
    assert first_step(step(f"{CALL}, spec: {{on_error: {written}}}, vars: {{a: 1}}")).on_error == on_error


@pytest.mark.parametrize(
    "loop",
    [
        "{in: [1], iterator: n, mode: parallel}",
        "{collection: [1], element: n, mode: async}",
        "{collection: [1], element: n, spec: {mode: parallel}}",
        "{in: [1], element: n, mode: sequential, spec: {mode: parallel}}",
    ],
)
def test_a_loop_may_be_written_with_either_words(loop: str) -> None:
    found = first_step(step(f"{CALL}, loop: {loop}, vars: {{a: 1}}")).loop
    assert found is not None
    assert (found.source, found.iterator, found.mode) == ([1], "n", "parallel")


def test_with_means_args_on_a_tool() -> None:
    assert first_task(step("tool: {kind: python, code: x, with: {a: 1}}, next: end")).args == {"a": 1}


def test_the_iterator_of_a_step_with_a_case_is_a_workbook_task_that_it_calls() -> None:
    tool = "tool: {kind: iterator, collection: [1], element: e, task: {kind: noop}}"
    text = step(f"{tool}, case: [{{when: '{{{{ response is defined }}}}', then: {{next: end}}}}]")
    call = case_of(text).call
    assert call is not None
    (entry,) = valid(text).workbook
    assert (call.kind, call.config["name"]) == ("workbook", entry.name)
    assert isinstance(entry.body[0], Block)


def test_a_tool_may_have_a_poll() -> None:
    task = first_task(step("tool: {kind: noop, poll: {until: '{{ result }}', interval: 2s}}, next: end"))
    assert task.poll is not None
    assert task.poll.interval == 2


def test_an_iterator_is_a_block_with_a_loop() -> None:
    node = first_step(
        step(
            "tool: {kind: iterator, collection: [1], element: n, mode: parallel, task: {kind: noop},"
            " save: {tool: {kind: noop}}}, next: end"
        )
    ).body[0]
    assert isinstance(node, Block)
    assert node.loop is not None
    assert (node.loop.iterator, node.loop.mode, node.sink is not None) == ("n", "parallel", True)


@pytest.mark.parametrize(
    "text",
    [
        step(f"{CALL}, ‹key.unknown›foo: 1, next: end"),
        step(f"{CALL}, ‹step.when›when: '{{{{ true }}}}', next: end"),
        step(f"{CALL}, ‹key.replaced›as: x, next: end"),
        step(f"{CALL}, args: ‹value.type›[1]"),
        step(f"{CALL}, vars: ‹value.type›[1]"),
        step(f"{CALL}, case: ‹value.type›{{when: x}}"),
        step(f"{CALL}, case: ‹value.type›"),
        step(f"{CALL}, case: [‹value.type›x]"),
        step(f"{CALL}, spec: {{case_mode: ‹value.choice›all}}, next: end"),
        step(f"{CALL}, spec: {{‹case.idle_timers›timers: {{a: 5}}}}, next: end"),
        step("tool: {kind: noop, ‹key.misplaced›with: {a: 1}, args: {}}, next: end"),
        step("‹case.one_tool›tool: [{kind: noop}, {kind: noop}], case: [{else: {next: end}}]"),
        step("spec: {‹case.missing›eval_mode: on_event}, next: end"),
        step("spec: {eval_mode: on_event}, case: [{‹case.else_on_event›else: {next: end}}]"),
        step(
            "spec: {eval_mode: on_event}, ‹retry.step_scope_on_event›retry: {scope: step},"
            " case: [{when: '{{ event.name }}', then: {next: end}}]"
        ),
        step(
            "spec: {eval_mode: on_event}, ‹case.loop_on_event›loop: {in: [1], iterator: i},"
            " case: [{when: '{{ event.name }}', then: {next: end}}]"
        ),
        step("case: [{when: '{{ true }}', then: [{‹case.no_call›call: {}}]}]"),
        step("case: [{when: '{{ true }}', then: [{‹case.no_call›retry: {}}]}]"),
        step(
            f"{CALL}, loop: {{in: [1], iterator: i}},"
            """ case: [{when: "{{ event.name == 'step.enter' }}", then: [{‹case.no_call›call: {}}]}]"""
        ),
        entry("""{when: "{{ event.name == 'step.exit' and result.n }}", then: [{‹case.no_call›call: {}}]}"""),
        entry("""{when: "{{ event.name == 'step.exit' }}", then: [{‹case.no_call›retry: {}}]}"""),
        entry("""{when: "{{ event.name == 'step.enter' }}", then: [{‹case.no_call›retry: {}}]}"""),
        step(f"{CALL}, retry: {{‹retry.good_answer›retry_when: '{{{{ result.n }}}}'}}"),
        step("tool: {kind: noop, poll: {‹key.missing›interval: 5}}, next: end"),
        step(f"{CALL}, loop: {{in: [1], ‹key.misplaced›collection: [2], iterator: i}}"),
        step(f"{CALL}, loop: {{in: [1], iterator: i, mode: ‹value.choice›serial}}"),
        step(f"{CALL}, retry: ‹value.type›0"),
        step(f"{CALL}, retry: ‹value.type›[1]"),
        step(f"{CALL}, retry: {{‹key.unknown›attempts: 2}}"),
        step(f"{CALL}, retry: {{on: ‹value.choice›timeout}}"),
        step(f"{CALL}, retry: {{scope: ‹value.choice›loop}}"),
        step(f"{CALL}, retry: {{retry_when: ‹when.plain_text›error}}"),
        step(f"{CALL}, retry: {{backoff: {{type: ‹value.choice›exp, ‹key.unknown›delay: 1}}}}"),
        step(f"{CALL}, sink: ‹value.type›x"),
        step(f"{CALL}, sink: {{‹key.missing›when: '{{{{ result }}}}'}}"),
        step(f"{CALL}, sink: {{tool: {{kind: noop}}, ‹key.unknown›args: {{}}}}"),
        step(f"{CALL}, sink: {{tool: {{kind: noop, ‹task.when›when: '{{{{ true }}}}'}}}}"),
        step(f"{CALL}, next: [‹next.shape›[end]]"),
        step(f"{CALL}, next: [‹value.type›5]"),
        step(f"{CALL}, next: [{{‹key.missing›args: {{}}}}]"),
        step(f"{CALL}, next: ‹value.template›'{{{{ x }}}}'"),
        step(f"{CALL}, next: [{{step: end, ‹key.replaced›with: {{}}}}]"),
        step(f"{CALL}, next: [{{‹next.conditional›when: '{{{{ x }}}}', then: [{{step: end}}]}}]"),
        step(f"{CALL}, next: [{{‹next.conditional›else: [{{step: end}}]}}]"),
        entry("{‹key.missing›then: {next: end}}"),
        entry("{‹key.missing›when: '{{ true }}'}"),
        entry("{‹rule.else_with_when›when: '{{ true }}', else: {next: end}}"),
        entry("{else: {next: end}, ‹rule.else_with_when›then: {next: end}}"),
        entry("{when: ‹when.plain_text›ok, then: {next: end}}"),
        entry("{else: {next: end}, ‹key.replaced›if: x}"),
        entry("{else: {next: end}, ‹key.unknown›name: x}"),
        entry("{else: {next: end}, priority: ‹value.type›high}"),
        entry("{else: {next: end}, spec: {‹knob.unknown›cahce: true}}"),
        entry("{else: {next: end}, spec: ‹value.type›fast}"),
        entry("{else: ‹case.action_shape›end}"),
        entry("{else: ‹case.action_shape›}"),
        then("[‹case.action_shape›end]"),
        then("[‹case.action_shape›{next: end, skip: {}}]"),
        then("{‹case.unknown_action›goto: end}"),
        then("{next: end, ‹case.two_ends›fail: {}}"),
        then("{set: {‹key.unknown›‹key.missing›vars: {}}}"),
        then("{set: ‹value.type›x}"),
        then("{collect: {‹key.missing›from: response}}"),
        then("{collect: {from: response, into: a, mode: ‹value.choice›merge}}"),
        then("{collect: {from: ‹value.type›'a b', into: a}}"),
        then("{result: {‹key.unknown›form: a}}"),
        then("{call: ‹value.type›x}"),
        then("{fail: {‹key.unknown›msg: x}}"),
        then("{next: {‹key.missing›policy: defer}}"),
        then("{next: {to: end, policy: ‹value.choice›stop}}"),
        then("{next: {to: end, spec: {‹key.unknown›wait: 1}}}"),
        then("{next: ‹step.unknown›strat}"),
        then("{mail: {tool: {‹tool.no_kind›url: x}}}"),
        then("{mail: {tool: ‹value.type›noop}}"),
        then("{mail: {tool: {kind: noop}, ‹key.unknown›when: x}}"),
        then("{mail: {tool: {kind: noop}, poll: {‹key.missing›interval: 5}}}"),
        then("{mail: {tool: {kind: noop}, poll: {until: '{{ result }}', ‹key.unknown›every: 5}}}"),
        then("{‹case.task_kind›mail: {tool: {kind: iterator, in: [1], iterator: i, task: {kind: noop}}}}"),
        then("{‹name.reserved›ctx: {tool: {kind: noop}}}"),
        playbook("‹entry.no_start›workflow: [{step: a, tool: {kind: noop}, next: end}]"),
    ],
)
def test_a_mistake_is_reported_where_it_stands(text: str) -> None:
    assert_reports(text)


@pytest.mark.parametrize(
    "text",
    [
        entry("""{when: "{{ event.name == 'step.enter' }}", then: [{call: {}}]}"""),
        entry("""{when: "{{ event.name in ['step.exit', 'call.done'] }}", then: [{call: {}}]}"""),
        entry("""{when: "{{ event.name == 'step.exit' or result.n }}", then: [{retry: {}}]}"""),
        entry("{when: '{{ response.more }}', then: [{call: {}}]}"),
        step(f"{CALL}, retry: {{retry_when: '{{{{ error is defined and not data.n }}}}'}}"),
        step(f"{CALL}, retry: {{retry_when: '{{{{ result.n }}}}', stop_when: '{{{{ result.m }}}}'}}"),
    ],
)
def test_what_may_be_right_at_some_moment_is_not_reported(text: str) -> None:
    assert {found.code for found in loaded(text).diagnostics} & {"case.no_call", "retry.good_answer"} == set()


def test_what_an_entry_without_a_condition_does_is_still_checked() -> None:
    assert_reports(entry("{‹key.missing›then: {next: ‹step.unknown›nowhere}}"))


def test_the_hint_names_the_actions_there_are() -> None:
    found = only(then("{‹case.unknown_action›goto: end}"))
    assert found.hint is not None
    assert "`next`" in found.hint
    assert "`sink`" in found.hint


def test_v2_begins_at_start_whatever_the_executor_says() -> None:
    text = f"workflow: [{{step: start, {CALL}, next: end}}]\n"
    found = only(f"{HEAD}executor: {{spec: {{‹knob.unknown›entry_step: start}}}}\n{text}")
    assert found.severity == "warning"
    assert valid(HEAD + text).entry == "start"


def test_no_value_anywhere_raises() -> None:
    text = playbook(
        """
        workload: {items: [1]}
        workflow:
          - step: start
            spec: {case_mode: inclusive, eval_mode: on_event, timers: {t: 5}, timeout: 5, on_error: retry}
            args: {a: 1}
            loop: {collection: "{{ workload.items }}", element: i, mode: async}
            tool: {kind: http, url: x, with: {a: 1}, retry: {max_attempts: 2, on: [500]}, spec: {retry: 3}}
            retry: {scope: tool, backoff: {type: linear, delay_seconds: 1}, retry_when: "{{ error }}"}
            vars: {v: "{{ result }}"}
            sink: {tool: {kind: postgres, table: t}, when: "{{ result }}"}
            case:
              - when: "{{ event.name }}"
                priority: 1
                spec: {cache: true}
                retry: {scope: chain}
                then:
                  - mail: {tool: {kind: noop}, poll: {until: "{{ result }}", interval: 5}}
                  - sink: {tool: {kind: noop}}
                  - collect: {from: response.data, into: all, mode: extend}
                  - result: {from: all}
                  - next: {to: [{step: start, args: {x: 1}}], policy: defer, priority: 1, spec: {delay: 5s}}
              - {when: "{{ event.data }}", then: {set: {ctx: {a: 1}}, call: {params: {p: 1}}}}
              - {when: "{{ event.step }}", then: {fail: {message: m}}}
            next: [{step: start, args: {y: 1}}]
        """
    )
    assert_never_raises(text)
