"""The canonical front end: root sections, steps, tasks, rules, loops, routes, and what they lower to."""

from __future__ import annotations

import pytest

from noetl.playbook.diagnostics import Position
from noetl.playbook.model import Block, Task
from noetl.template import Template
from tests.unit.playbook.reports import (
    HEAD,
    assert_never_raises,
    assert_reports,
    first_step,
    first_task,
    loaded,
    only,
    playbook,
    rules,
    step,
    task,
    valid,
    workflow,
)

FLOW = "workflow: [{step: start, tool: {kind: noop}}]\n"


# --- the root and its sections --------------------------------------------------


def test_the_sections_of_the_root_reach_the_model() -> None:
    model = valid(
        playbook(
            """
            keychain:
              - {name: token, kind: env, var: TOKEN}
              - {name: db, kind: postgres_credential}
            executor: {profile: distributed, version: noetl-runtime/2, spec: {timeout: 5s, deadline: 1h}}
            workload: {city: Oslo, url: "https://example.com/{{ workload.city }}"}
            workbook: [{name: greet, desc: Hello, tool: {kind: noop}}]
            workflow: [{step: start, desc: First, tool: {kind: workbook, name: greet}}]
            """
        )
    )
    assert (model.name, model.path, model.dialect, model.entry) == ("demo", "demo", "canonical", "start")
    assert [(entry.name, entry.kind, entry.fields) for entry in model.keychain] == [
        ("token", "env", {"var": "TOKEN"}),
        ("db", "postgres_credential", {}),
    ]
    executor = model.executor
    assert (executor.profile, executor.version, executor.deadline) == (
        "distributed",
        "noetl-runtime/2",
        3600.0,
    )
    assert executor.spec == {"timeout": "5s"}
    assert model.workload["city"] == "Oslo"
    assert isinstance(model.workload["url"], Template)
    assert [(entry.name, entry.description) for entry in model.workbook] == [("greet", "Hello")]
    assert model.steps[0].description == "First"


def test_the_path_is_the_name_unless_it_is_written() -> None:
    head = "apiVersion: noetl.io/v2\nkind: Playbook\n"
    model = valid(head + "metadata: {name: a, path: b/c, description: D, labels: {x: 1}}\n" + FLOW)
    assert (model.name, model.path) == ("a", "b/c")
    assert model.metadata == {"description": "D", "labels": {"x": 1}}


@pytest.mark.parametrize("section", ["keychain:", "executor:", "workload:", "workbook:"])
def test_an_optional_section_may_be_left_empty(section: str) -> None:
    valid(f"{HEAD}{section}\n{FLOW}")


@pytest.mark.parametrize(
    "root",
    [
        "‹root.vars›vars: {a: 1}\n" + FLOW,
        "‹key.unknown›steps: []\n" + FLOW,
        "workload: ‹value.type›[1]\n" + FLOW,
        "keychain: ‹value.type›{name: a}\n" + FLOW,
        "keychain: [‹value.type›token]\n" + FLOW,
        "keychain: [{‹key.missing›name: a}]\n" + FLOW,
        "keychain: [{name: a, kind: ‹value.choice›envv}]\n" + FLOW,
        "keychain: [{name: a, kind: env, ‹key.unknown›path: x}]\n" + FLOW,
        "keychain: [{name: a, kind: env}, {name: ‹keychain.duplicate›a, kind: env}]\n" + FLOW,
        "executor: ‹value.type›local\n" + FLOW,
        "executor: {profile: ‹value.choice›remote}\n" + FLOW,
        "executor: {‹key.unknown›profil: local}\n" + FLOW,
        "executor: {version: ‹executor.version›noetl-runtime/3}\n" + FLOW,
        "executor: {‹executor.credentials›auth: x}\n" + FLOW,
        "executor: {spec: {‹executor.credentials›credentials: x}}\n" + FLOW,
        "executor: {spec: {‹knob.unknown›retries: 3}}\n" + FLOW,
        "executor: {spec: {entry_step: ‹step.unknown›strat}}\n" + FLOW,
        "executor: {spec: {‹knob.unknown›policy: {rules: [{‹do.outside_task›do: fail}]}}}\n" + FLOW,
        "workbook: ‹value.type›{a: 1}\n" + FLOW,
        "workbook: [‹value.type›5]\n" + FLOW,
        "workbook: [{‹key.missing›name: a}]\n" + FLOW,
        "workbook: [{name: a, tool: {kind: noop}, ‹key.unknown›args: {}}]\n" + FLOW,
        "‹workflow.empty›workflow: []\n",
        "‹workflow.empty›workflow:\n",
        "workflow: ‹value.type›5\n",
        "workflow: [‹value.type›5]\n",
        "workflow: [{‹key.missing›tool: {kind: noop}}]\n",
    ],
)
def test_a_mistake_in_a_root_section_is_reported_where_it_stands(root: str) -> None:
    assert_reports(HEAD + root)


def test_the_knobs_of_a_tool_kind_may_stand_in_any_spec_even_where_the_kind_is_called_secrets() -> None:
    model = valid(
        f"{HEAD}executor: {{spec: {{secrets: {{timeout: 5}}, http: {{timeout: {{read: 60}}}}}}}}\n{FLOW}"
    )
    assert model.executor.spec == {"secrets": {"timeout": 5}, "http": {"timeout": {"read": 60}}}


def test_missing_sections_are_reported_at_the_first_key() -> None:
    assert_reports("‹key.missing›‹key.missing›apiVersion: noetl.io/v2\nkind: Playbook\n")
    assert_reports("apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {‹key.missing›path: a}\n" + FLOW)


def test_the_entry_is_start_or_what_the_executor_says_or_the_first_step() -> None:
    steps = "workflow: [{step: a, next: {arcs: [{step: b}]}}, {step: b, tool: {kind: noop}}]\n"
    assert valid(f"{HEAD}executor: {{spec: {{entry_step: a}}}}\n{steps}").entry == "a"
    warned = only(f"{HEAD}‹entry.first_step›{steps}")
    assert "`a`" in warned.message
    assert valid(HEAD + FLOW).entry == "start"


# --- steps --------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ("‹step.when›when: '{{ true }}', tool: {kind: noop}", "spec.policy.admit.rules"),
        ("‹key.replaced›type: http, tool: {kind: noop}", "tool: {kind"),
        ("‹key.replaced›as: x, tool: {kind: noop}", "by the step's name"),
        ("‹key.replaced›call: {}, tool: {kind: noop}", "kind: workbook"),
        ("‹key.replaced›policy: {}, tool: {kind: noop}", "spec.policy"),
        ("‹key.replaced›join: {}, tool: {kind: noop}", "spec.join"),
        ("‹key.replaced›condition: x, tool: {kind: noop}", "`when`"),
        ("‹key.replaced›next_mode: x, tool: {kind: noop}", "next.spec.mode"),
        ("‹key.unknown›dsec: x, tool: {kind: noop}", "did you mean `desc`?"),
        ("spec: {‹key.replaced›next_mode: x}, tool: {kind: noop}", "next.spec.mode"),
        ("spec: {‹knob.unknown›tiemout: 5}, tool: {kind: noop}", "did you mean `timeout`?"),
        ("spec: {timeout: ‹value.duration›soon}, tool: {kind: noop}", "250ms"),
        ("spec: {on_error: ‹value.choice›retry}, tool: {kind: noop}", "`ignore`"),
        ("spec: {limits: {task_runs: 5, ‹knob.unknown›tasks: 5}}, tool: {kind: noop}", "task_runs"),
    ],
)
def test_a_slip_on_a_step_is_reported_with_the_right_word(fields: str, hint: str) -> None:
    found = only(step(fields))
    assert found.hint is not None
    assert hint in found.hint


def test_a_refused_key_of_a_step_is_not_offered_as_a_known_one() -> None:
    found = only(step("tool: {kind: noop}, ‹key.unknown›zzzzzzz: 1"))
    assert found.hint == "known keys: `desc`, `loop`, `next`, `spec`, `step`, `tool`"


def test_a_step_that_does_nothing_is_warned_of_at_its_first_key() -> None:
    assert_reports(HEAD + "workflow:\n  - ‹step.idle›step: start\n    desc: x\n")


def test_two_steps_of_one_name_are_reported_at_the_second() -> None:
    text = (
        HEAD
        + "workflow:\n  - {step: start, tool: {kind: noop}}\n"
        + "  - {step: ‹step.duplicate›start, tool: {kind: noop}}\n"
    )
    assert "line 5" in only(text).message


@pytest.mark.parametrize(
    "name", ["‹value.type›''", "‹value.type›5", "‹value.type›[x]", "‹value.template›'{{ x }}'"]
)
def test_a_step_has_a_plain_name(name: str) -> None:
    assert_reports(
        f"{HEAD}workflow: [{{step: start, tool: {{kind: noop}}}}, {{step: {name}, tool: {{kind: noop}}}}]\n"
    )


def test_the_knobs_of_a_step_reach_the_model_by_scope() -> None:
    found = first_step(
        step(
            "spec: {timeout: 5s, deadline: 2m, on_error: ignore, limits: {task_runs: 7}, http: {timeout: 1}},"
            " tool: {kind: noop}"
        )
    )
    assert found.spec == {"timeout": "5s", "http": {"timeout": 1}}
    assert (found.deadline, found.on_error, found.max_task_runs) == (120.0, "ignore", 7)


# --- tool --------------------------------------------------


def test_one_task_a_list_and_a_labelled_list_all_become_labelled_tasks() -> None:
    assert [node.label for node in first_step(step("tool: {kind: noop}")).body if isinstance(node, Task)] == [
        "task_1"
    ]
    body = first_step(step("tool: [{kind: noop}, {fetch: {kind: noop}}, {kind: noop, auth: x}]")).body
    assert [node.label for node in body if isinstance(node, Task)] == ["task_1", "fetch", "task_3"]


def test_a_labelled_task_stands_at_its_label_and_an_unlabelled_one_at_its_first_key() -> None:
    body = first_step(
        workflow(
            """
            - step: start
              tool:
                - fetch:
                    kind: python
                    code: x
                - kind: noop
            """
        )
    ).body
    fetch, other = body
    assert isinstance(fetch, Task)
    assert isinstance(other, Task)
    assert (fetch.at, fetch.first_at, other.at) == (Position(7, 9), Position(8, 11), Position(10, 9))
    assert fetch.config_at == {"kind": Position(8, 17), "code": Position(9, 11)}


def test_the_keys_of_the_language_are_not_fields_of_the_tool() -> None:
    found = first_task(task("url: x, args: {a: 1}, timeout: 5s, spec: {pool: big}", "http"))
    assert found.config == {"url": "x"}
    assert found.args == {"a": 1}
    assert found.spec == {"pool": "big", "timeout": "5s"}


def test_a_timeout_under_spec_wins_over_one_on_the_tool() -> None:
    assert first_task(task("timeout: 5, spec: {timeout: 9}")).spec == {"timeout": 9}


@pytest.mark.parametrize(
    "tool",
    [
        "‹tool.shape›noop",
        "‹tool.shape›5",
        "[‹tool.shape›noop]",
        "[{‹tool.shape›fetch: }]",
        "‹tool.no_kind›{}",
        "{‹tool.no_kind›url: x}",
        "[{fetch: {‹tool.no_kind›url: x}}]",
        "[{fetch: ‹tool.no_kind›{}}]",
        "{‹key.replaced›type: http}",
        "{kind: noop, ‹key.replaced›type: http}",
        "{kind: noop, ‹key.replaced›as: x}",
        "{kind: ‹value.type›5}",
        "{kind: ‹value.template›'{{ x }}'}",
        "{kind: noop, ‹task.when›when: '{{ true }}'}",
        "{kind: noop, ‹key.replaced›if: '{{ true }}'}",
        "{kind: noop, ‹key.replaced›expr: x}",
        "{kind: noop, ‹key.misplaced›policy: {rules: []}}",
        "{kind: noop, ‹key.misplaced›rules: []}",
        "{kind: noop, timeout: ‹value.duration›soon}",
        "{kind: noop, spec: ‹value.type›fast}",
        "{kind: noop, spec: {‹key.replaced›eval: 1}}",
        "{kind: noop, spec: {isolation: ‹value.choice›thread}}",
        "{kind: noop, spec: {on_lease_loss: ‹value.choice›ignore}}",
        "{kind: noop, spec: {http: ‹value.type›5}}",
        "{kind: noop, spec: {result: {‹knob.unknown›size: 5}}}",
        "[{rooms: {loop: {in: [1], iterator: i}, tool: {kind: noop}, ‹task.when›when: '{{ true }}'}}]",
        "[{rooms: {loop: {in: [1], iterator: i}, tool: {kind: noop}, ‹key.unknown›args: {}}}]",
        "[{rooms: {‹key.missing›tool: {kind: noop}}}]",
        "[{‹value.template›'{{ x }}': {kind: noop}}]",
        (
            "[{b: {loop: {in: [1], iterator: i}, tool: {kind: noop},"
            " spec: {‹knob.unknown›policy: {‹do.outside_task›do: fail}}}}]"
        ),
        "{kind: iterator, in: [1], iterator: i, task: {kind: noop}, spec: {‹knob.unknown›tiemout: 5}}",
        "{kind: iterator, in: [1], iterator: i, task: {kind: noop}, ‹key.unknown›when: x}",
        "{‹key.missing›kind: iterator, in: [1], iterator: i}",
    ],
)
def test_a_mistake_in_a_tool_is_reported_where_it_stands(tool: str) -> None:
    assert_reports(step(f"tool: {tool}"))


@pytest.mark.parametrize(
    "place", ["args: {if: 1}", "body: {expr: 1, condition: 2}", "headers: {if: x}", "params: {eval: 1}"]
)
def test_words_of_other_languages_are_free_in_data(place: str) -> None:
    valid(task(f"url: x, {place}", "http"))
    valid(f"{HEAD}workload: {{if: 1, expr: {{condition: 2}}}}\n{FLOW}")
    valid(rules("{else: {then: {do: continue, set_ctx: {if: 1}, set_iter: {expr: 2}}}}"))


def test_a_block_in_a_pipeline_has_its_own_loop_and_body() -> None:
    found = first_step(
        step("tool: [{rooms: {loop: {in: [1], iterator: r}, spec: {timeout: 5}, tool: [{a: {kind: noop}}]}}]")
    ).body[0]
    assert isinstance(found, Block)
    assert found.loop is not None
    assert (found.label, found.loop.iterator, found.spec) == ("rooms", "r", {"timeout": 5})
    assert [node.label for node in found.body if isinstance(node, Task)] == ["a"]


def test_a_workbook_entry_may_be_a_block() -> None:
    text = f"{HEAD}workbook: [{{name: w, loop: {{in: [1], iterator: i}}, tool: {{kind: noop}}}}]\n"
    entry = valid(text + "workflow: [{step: start, tool: {kind: workbook, name: w}}]\n").workbook[0]
    assert entry.loop is not None
    assert entry.loop.iterator == "i"


# --- loops --------------------------------------------------


def test_a_loop_reaches_the_model_with_its_knobs() -> None:
    found = first_step(
        step(
            "tool: {kind: noop}, loop: {in: [1, 2], iterator: n, spec: {mode: parallel, max_in_flight: 4,"
            " batch_size: 10, on_error: continue, policy: {exec: local}, reduce: {a: sum}, timeout: 9}}"
        )
    ).loop
    assert found is not None
    assert (found.source, found.iterator, found.mode, found.max_in_flight) == ([1, 2], "n", "parallel", 4)
    assert (found.batch_size, found.on_error, found.execution) == (10, "continue", "local")
    assert (found.reduce, found.spec) == ({"a": "sum"}, {"timeout": 9})


def test_a_loop_is_sequential_with_sixteen_in_flight_and_fails_fast_unless_it_says_otherwise() -> None:
    found = first_step(step("tool: {kind: noop}, loop: {in: [], iterator: n}")).loop
    assert found is not None
    assert (found.mode, found.max_in_flight, found.batch_size, found.on_error, found.execution) == (
        *("sequential", 16, 1, "fail"),
        None,
    )


@pytest.mark.parametrize(
    "loop",
    [
        "‹value.type›[1, 2]",
        "‹value.type›'{{ workload.items }}'",
        "‹key.missing›‹key.missing›{}",
        "{‹key.missing›in: [1]}",
        "{‹key.missing›iterator: n}",
        "{in: ‹loop.in›5, iterator: n}",
        "{in: ‹loop.in›text, iterator: n}",
        "{in: ‹loop.in›{a: 1}, iterator: n}",
        "{in: [1], iterator: ‹name.identifier›a b}",
        "{in: [1], iterator: ‹name.reserved›iter}",
        "{in: [1], iterator: ‹name.hidden›data}",
        "{in: [1], iterator: ‹name.hidden›none}",
        "{in: [1], iterator: ‹value.type›5}",
        "{in: [1], iterator: n, ‹key.unknown›spce: {}}",
        "{in: [1], iterator: n, spec: {‹key.unknown›batch: 5}}",
        "{in: [1], iterator: n, spec: {mode: ‹value.choice›serial}}",
        "{in: [1], iterator: n, spec: {max_in_flight: ‹value.type›0}}",
        "{in: [1], iterator: n, spec: {policy: {exec: ‹value.choice›remote}}}",
        "{in: [1], iterator: n, spec: {policy: {‹do.outside_task›do: continue}}}",
        "{in: [1], iterator: n, spec: {policy: {‹knob.unknown›order: x}}}",
        "{in: [1], iterator: n, spec: {mode: parallel, reduce: {a: ‹value.choice›mean}}}",
        "{in: [1], iterator: n, spec: {‹knob.idle›reduce: {a: sum}}}",
        "{in: [1], iterator: n, spec: {‹knob.idle›checkpoint: {items: 5}}}",
        "{in: [1], iterator: n, spec: {‹knob.idle›checkpoint: {‹key.unknown›rows: 5}}}",
        "{in: [1], iterator: n, spec: {‹knob.idle›tracing: {sample: 0.1}}}",
        "{in: [1], iterator: n, ‹key.replaced›condition: x}",
    ],
)
def test_a_mistake_in_a_loop_is_reported_where_it_stands(loop: str) -> None:
    assert_reports(step(f"loop: {loop}, tool: {{kind: noop}}"))


# --- admission, joins and routes --------------------------------------------------


def test_admission_rules_reach_the_model() -> None:
    admit = "spec: {policy: {admit: {rules: [{when: '{{ args.a is defined }}', then: {allow: true}},"
    found = first_step(
        step(f"{admit} {{else: {{then: {{allow: false}}}}}}]}}}}}}, tool: {{kind: noop}}")
    ).admit
    assert found is not None
    assert [(rule.when is None, rule.allow) for rule in found] == [(False, True), (True, False)]


@pytest.mark.parametrize(
    "policy",
    [
        "‹value.type›open",
        "{‹knob.unknown›admission: 1}",
        "{admit: ‹value.type›true}",
        "{admit: ‹key.missing›{}}",
        "{admit: {rules: ‹value.type›true}}",
        "{admit: {rules: [], ‹key.unknown›mode: x}}",
        "{admit: {rules: [{else: {then: {‹do.outside_task›do: continue}}}]}}",
        "{admit: {rules: [{else: {then: {‹key.unknown›alow: true}}}]}}",
        "{admit: {rules: [{else: {then: {allow: ‹value.type›yes}}}]}}",
        "{admit: {‹rules.no_else›rules: [{when: '{{ true }}', then: {allow: true}}]}}",
        (
            "{admit: {rules: [{‹key.replaced›if: x, when: '{{ true }}', then: {allow: true}},"
            " {else: {then: {allow: true}}}]}}"
        ),
        "{‹do.outside_task›do: fail}",
    ],
)
def test_a_mistake_in_admission_is_reported_where_it_stands(policy: str) -> None:
    assert_reports(step(f"spec: {{policy: {policy}}}, tool: {{kind: noop}}"))


@pytest.mark.parametrize(
    "join",
    [
        "‹value.type›a",
        "{‹key.missing›mode: all}",
        "{of: ‹value.type›start}",
        "{of: [‹value.type›5]}",
        "{of: [], mode: ‹value.choice›some}",
        "{of: [], ‹key.unknown›from: 1}",
    ],
)
def test_a_mistake_in_a_join_is_reported_where_it_stands(join: str) -> None:
    assert_reports(step(f"spec: {{join: {join}}}, tool: {{kind: noop}}"))


def test_arcs_carry_the_args_of_the_token_unless_they_say_otherwise() -> None:
    router = first_step(
        step(
            "next: {spec: {mode: inclusive, policy: {}}, arcs: [{step: end, args: {a: 1}},"
            " {step: end, when: \"{{ event.name == 'step.failed' }}\", spec: {carry: false}}]}"
        )
    ).router
    first, second = router.arcs
    assert router.mode == "inclusive"
    assert (first.targets[0].step, first.targets[0].args, first.targets[0].carry) == ("end", {"a": 1}, True)
    assert (first.when, first.takes_failure) == (None, False)
    assert (second.targets[0].carry, second.takes_failure) == (False, True)


@pytest.mark.parametrize(
    "next_",
    [
        "‹next.shape›5",
        "‹next.shape›{}",
        "{‹next.shape›spec: {}}",
        "{arcs: ‹value.type›end}",
        "{arcs: [‹value.type›end]}",
        "{arcs: [{‹key.missing›when: '{{ true }}'}]}",
        "{arcs: [{step: ‹value.template›'{{ x }}'}]}",
        "{arcs: [{step: ‹step.unknown›strat}]}",
        "{arcs: [{step: end, when: ‹when.plain_text›ok}]}",
        "{arcs: [{step: end, ‹key.replaced›expr: x}]}",
        "{arcs: [{step: end, ‹key.unknown›with: {}}]}",
        "{arcs: [{step: end, args: ‹value.type›[1]}]}",
        "{arcs: [{step: end, spec: {‹knob.unknown›weight: 1}}]}",
        "{arcs: [{step: end, spec: {carry: ‹value.type›1}}]}",
        "{arcs: [{step: end, spec: {‹do.outside_task›do: retry}}]}",
        "{arcs: [], ‹key.unknown›mode: inclusive}",
        "{arcs: [], spec: {mode: ‹value.choice›all}}",
        "{arcs: [], spec: {‹key.unknown›delay: 1}}",
        "{arcs: [], spec: {policy: {‹do.outside_task›do: fail}}}",
        "{arcs: [], spec: {policy: {a: [{‹key.replaced›expr: x}]}}}",
    ],
)
def test_a_mistake_in_next_is_reported_where_it_stands(next_: str) -> None:
    assert_reports(step(f"tool: {{kind: noop}}, next: {next_}"))


def test_all_mistakes_of_a_file_are_found_in_one_pass() -> None:
    assert_reports(
        HEAD
        + "‹key.unknown›foo: 1\n"
        + "workflow:\n"
        + "  - step: start\n"
        + "    ‹step.when›when: x\n"
        + "    tool: {kind: ‹tool.unknown_kind›htpp}\n"
        + "    next: {arcs: [{step: ‹step.unknown›nowhere, when: ‹when.plain_text›yes}]}\n"
    )


def test_a_playbook_with_only_warnings_is_valid() -> None:
    found = loaded(step("spec: {foo: 1}, tool: {kind: noop}"))
    assert found.valid
    assert [one.severity for one in found.diagnostics] == ["warning"]


def test_no_value_anywhere_raises() -> None:
    text = playbook(
        """
        keychain: [{name: token, kind: env, var: T}]
        executor:
          profile: local
          version: noetl-runtime/2
          spec: {entry_step: start, timeout: 5, deadline: 1h}
        workload: {items: [1], url: "{{ workload.items }}"}
        workbook: [{name: w, loop: {in: [1], iterator: j}, tool: {kind: noop}}]
        workflow:
          - step: start
            desc: d
            spec:
              policy:
                admit: {rules: [{when: "{{ true }}", then: {allow: true}}, {else: {then: {allow: false}}}]}
              join: {of: [start], mode: any}
              limits: {task_runs: 5}
            loop:
              in: "{{ workload.items }}"
              iterator: i
              spec: {mode: parallel, policy: {exec: local}, reduce: {a: sum}}
            tool:
              - a:
                  kind: http
                  url: "{{ i }}"
                  args: {x: 1}
                  spec:
                    policy:
                      rules:
                        - {when: "{{ _prev }}", then: {do: skip}}
                        - when: "{{ outcome.error }}"
                          then: {do: retry, attempts: 2, backoff: linear, delay: 1, jitter: true}
                        - {else: {then: {do: jump, to: b, set_ctx: {a: 1}, set_iter: {p: 1}}}}
              - b: {loop: {in: [1], iterator: r}, tool: [{kind: workbook, name: w}]}
            next:
              spec: {mode: inclusive, policy: {}}
              arcs: [{step: start, when: "{{ event.name }}", args: {q: 1}, spec: {carry: true}}]
        """
    )
    assert_never_raises(text)
