"""Templates and the names they read: syntax, exact positions, and what can exist at each place."""

from __future__ import annotations

import pytest

from tests.unit.playbook.reports import (
    HEAD,
    assert_reports,
    loaded,
    only,
    playbook,
    rules,
    step,
    task,
    valid,
    workflow,
)


def reads(template: str) -> str:
    """A playbook whose one task has this template in a field."""
    return task(f'url: "{template}"', "http")


def arc(template: str, fields: str = "tool: {kind: noop}") -> str:
    return step(f'{fields}, next: {{arcs: [{{step: end, when: "{template}"}}]}}')


# --- positions --------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        '"{{ ‹name.ctx›ctx.no }}"',
        "'{{ ‹name.ctx›ctx.no }}'",
        '"a{{ ‹name.ctx›ctx.no }}b{{ ‹name.ctx›ctx.no2 }}"',
        '"tab\\tquote\\"x\\x41\\u0041 {{ ‹name.ctx›ctx.no }}"',
        "'it''s {{ ‹name.ctx›ctx.no }}'",
        '"{{ ctx\\\n          [‹template.syntax›}}"',
        "http://{{ ‹name.ctx›ctx.no }}",
        "|\n          one\n          two {{ ‹name.ctx›ctx.no }}\n",
        "|-\n          first\n\n            deeper\n          {{ ‹name.ctx›ctx.no }}",
        ">\n          one\n          {{ ‹name.ctx›ctx.no }}\n\n          {{ ‹name.ctx›ctx.no2 }}\n",
        ">-\n          {{ execution_id\n             and ‹name.ctx›ctx.no }}",
        '"one\n          two {{ ‹name.ctx›ctx.no }}"',
        '"ünïcode 🎈 {{ ‹name.ctx›ctx.no }}"',
    ],
)
def test_a_name_is_reported_at_its_first_character_in_every_notation(url: str) -> None:
    assert_reports(f"{HEAD}workflow:\n  - step: start\n    tool:\n      kind: http\n      url: {url}\n")


def test_crlf_line_ends_do_not_move_positions() -> None:
    text = workflow("- step: start\n  tool:\n    kind: python\n    code: |\n      a\n      {{ ctx.no }}\n")
    (found,) = loaded(text.replace("\n", "\r\n")).diagnostics
    assert (found.line, found.column) == (10, 12)


@pytest.mark.parametrize(
    "template", ["{{ a }", "{{ workload.x + }}", "{{ }}", "{% if x %}", "{% nothing %}", "{{ a b }}"]
)
def test_a_template_that_does_not_parse_is_one_error(template: str) -> None:
    found = loaded(reads(template)).diagnostics
    assert [(one.code, one.severity, one.line) for one in found] == [("template.syntax", "error", 5)]


def test_what_is_missing_at_the_end_of_a_template_is_reported_on_its_last_line() -> None:
    code = "tool:\n      kind: shell\n      command: |\n        {% if true %}‹template.syntax›\n"
    assert_reports(f"{HEAD}workflow:\n  - step: start\n    {code}    desc: a\n")


@pytest.mark.parametrize("template", ["{{ workload.x + ‹template.syntax›}}", "{{ a ‹template.syntax›b }}"])
def test_a_syntax_error_is_reported_at_the_character_where_it_goes_wrong(template: str) -> None:
    assert_reports(reads(template))
    assert_reports(arc(template))


@pytest.mark.parametrize(
    "when",
    [
        "‹when.not_one_expression›'{{ true }} and {{ false }}'",
        "‹when.not_one_expression›'x {{ true }}'",
        "‹when.not_one_expression›'{% if true %}1{% endif %}'",
    ],
)
def test_a_condition_is_exactly_one_expression(when: str) -> None:
    found = only(step(f"tool: {{kind: noop}}, next: {{arcs: [{{step: end, when: {when}}}]}}"))
    assert "`and` or `or`" in (found.hint or "")


@pytest.mark.parametrize(
    "when", ["' {{ true }} '", "true", "false", '"{{ true }}\\n"', ">\n      {{ true }}\n"]
)
def test_white_space_around_a_condition_and_plain_booleans_are_fine(when: str) -> None:
    text = workflow(f"- step: start\n  next:\n    arcs:\n      - step: end\n        when: {when}\n")
    valid(text.replace(">\n      ", ">\n            "))


# --- what is certain is an error, what a payload may bring is a warning ----------------------------


@pytest.mark.parametrize(
    ("text", "severity", "words"),
    [
        (reads("{{ ‹name.ctx›ctx.page }}"), "error", "`ctx.page` is never written"),
        (reads("{{ ‹name.iter›iter.page }}"), "error", "`iter.page` is never written in this pipeline"),
        (reads("{{ ‹name.keychain›keychain.token }}"), "error", "is not declared"),
        (
            arc("{{ ‹name.iterator›i }}", "loop: {in: [1], iterator: i}, tool: {kind: noop}"),
            "error",
            "inside its loop",
        ),
        (arc("{{ ‹name.ctx_in_guard›ctx.page }}"), "warning", "always false"),
        (reads("{{ ‹name.unknown›city }}"), "warning", "nothing in this playbook is called `city`"),
        (reads("{{ ‹name.workload›workload.city }}"), "warning", "not in the playbook's workload"),
        (reads("{{ ‹name.args›args.city }}"), "warning", "passed by no way"),
        (reads("{{ ‹name.vars›vars.city }}"), "warning", "never set"),
        (reads("{{ ‹name.not_here›outcome.status }}"), "warning", "not in scope"),
        (arc("{{ ‹name.not_here›outcome.status }}"), "warning", "not in scope"),
        (arc("{{ ‹name.not_here›iter.x }}"), "warning", "not in scope"),
        (reads("{{ ‹name.not_here›event.name }}"), "warning", "not in scope"),
        (arc("{{ ‹name.field›event.nmae }}"), "warning", "`event.nmae` does not exist"),
        (
            rules("{when: '{{ ‹name.field›outcome.stauts }}', then: {do: fail}}, {else: {then: {do: fail}}}"),
            "warning",
            "exist",
        ),
        (
            rules(
                "{when: '{{ ‹name.field›outcome.http.status }}', then: {do: fail}},"
                " {else: {then: {do: fail}}}"
            ),
            "warning",
            "exist",
        ),
    ],
)
def test_a_name_that_cannot_be_there_is_reported(text: str, severity: str, words: str) -> None:
    found = only(text)
    assert found.severity == severity
    assert words in found.message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            playbook(
                "workload: {city: 1}\n"
                + step('tool: {kind: http, url: "{{ ‹name.unknown›ctiy }}"}').removeprefix(HEAD)
            ),
            "city",
        ),
        (
            playbook(
                "workload: {city: 1}\n"
                + step('tool: {kind: http, url: "{{ ‹name.workload›workload.citty }}"}').removeprefix(HEAD)
            ),
            "workload.city",
        ),
        (
            playbook(
                "keychain: [{name: token, kind: env}]\n"
                + step('tool: {kind: http, url: "{{ ‹name.keychain›keychain.tokn }}"}').removeprefix(HEAD)
            ),
            "keychain.token",
        ),
        (arc("{{ ‹name.field›event.nmae }}"), "event.name"),
        (arc("{{ args | ‹template.syntax›uper }}"), "upper"),
    ],
)
def test_the_hint_has_the_nearest_name_in_scope(text: str, hint: str) -> None:
    assert only(text).hint == f"did you mean `{hint}`?"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ctx.page | default(1) }}",
        "{{ ctx.page is defined }}",
        "{{ ctx.page if ctx.page is defined else 1 }}",
        "{% if iter.page is defined %}{{ iter.page.number }}{% endif %}",
        "{{ city | d('Oslo') }}",
        "{{ workload.get('city') }}",
        "{{ ctx.get('page', 1) }}",
        "{% set city = 'Oslo' %}{{ city }}",
        "{% for city in ['a'] %}{{ city }}{{ loop.index }}{% endfor %}",
        "{{ range(3) | list }}",
        "{{ execution_id }}{{ _task }}{{ _attempt }}{{ _action_id }}{{ _prev }}{{ loop_index }}",
        "{{ iter.index }}{{ iter.parent.anything }}",
        "plain {text} with braces",
    ],
)
def test_what_is_guarded_bound_or_always_there_is_not_reported(template: str) -> None:
    valid(reads(template))


def test_a_workload_key_is_reported_once() -> None:
    text = step('tool: {kind: http, url: "{{ ‹name.workload›workload.city }}", body: "{{ workload.city }}"}')
    assert_reports(text)


def test_keys_of_ctx_vars_and_workload_may_be_named_like_anything() -> None:
    valid(
        playbook(
            """
            workload: {result: 1, items: [1], outcome: 2}
            workflow:
              - step: start
                tool:
                  - a:
                      kind: http
                      url: "{{ workload.result }}{{ workload.items }}{{ ctx.result | default(0) }}"
                      spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {result: 1}}}}]}}
                  - b: {kind: http, url: "{{ ctx.result }}"}
            """
        )
    )


# --- iterators --------------------------------------------------


def test_nested_blocks_see_the_iterators_labels_and_iter_keys_around_them() -> None:
    valid(
        playbook(
            """
            workload: {hotels: [{rooms: [1]}]}
            workflow:
              - step: start
                loop: {in: "{{ workload.hotels }}", iterator: hotel}
                tool:
                  - first:
                      kind: noop
                      spec: {policy: {rules: [{else: {then: {do: continue, set_iter: {page: 1}}}}]}}
                  - rooms:
                      loop: {in: "{{ hotel.rooms }}", iterator: room}
                      tool:
                        kind: http
                        url: "{{ room }}{{ iter.room }}{{ hotel }}{{ first }}"
                        body: "{{ iter.parent.hotel }}{{ iter.parent.page }}"
                  - last: {kind: http, url: "{{ rooms }}{{ _prev }}{{ iter.page }}{{ iter.hotel }}"}
            """
        )
    )


def test_an_inner_iterator_is_gone_after_its_block() -> None:
    assert_reports(
        workflow(
            """
            - step: start
              tool:
                - rooms: {loop: {in: [1], iterator: room}, tool: {kind: noop}}
                - last: {kind: http, url: "{{ ‹name.iter›iter.room }}{{ ‹name.unknown›room }}"}
            """
        )
    )


@pytest.mark.parametrize(
    "fields",
    [
        "loop: {in: '{{ ‹name.iterator›i }}', iterator: i}, tool: {kind: noop}",
        (
            "loop: {in: [1], iterator: i}, tool: {kind: noop}, next: {arcs: [{step: end,"
            " args: {a: '{{ ‹name.iterator›i }}'}}]}"
        ),
        "loop: {in: [1], iterator: i}, tool: {kind: noop}, args: {a: '{{ ‹name.iterator›i }}'}",
        (
            "loop: {in: [1], iterator: i}, tool: {kind: noop}, next: [{step: end,"
            " args: {a: '{{ ‹name.iterator›i }}'}}]"
        ),
        (
            "loop: {in: [1], iterator: i}, tool: {kind: noop},"
            " case: [{when: \"{{ event.name == 'step.exit' }}\", then: {next: [{step: end,"
            " args: {a: '{{ ‹name.iterator›i }}'}}]}}]"
        ),
    ],
)
def test_an_iterator_is_not_visible_outside_its_loop(fields: str) -> None:
    found = only(step(fields))
    assert "list" in (found.hint or "")


def test_an_iterator_is_visible_in_the_case_and_the_sinks_of_its_step() -> None:
    valid(
        step(
            "loop: {in: [1], iterator: i}, tool: {kind: http, url: '{{ i }}'}, case: ["
            "{when: '{{ response.ok and i }}', then: [{collect: {from: '{{ i }}', into: all}},"
            " {sink: {tool: {kind: noop, args: {a: '{{ i }}'}}}}, {call: {url: '{{ i }}'}}]}]"
        )
    )


# --- args, vars, results --------------------------------------------------


def test_args_are_carried_along_canonical_arcs_and_not_along_v2_transitions() -> None:
    chain = """
    - {step: start, tool: {kind: noop}, next: %s}
    - {step: b, tool: {kind: noop}, next: %s}
    - {step: c, tool: {kind: http, url: "{{ %sargs.x }}"}}
    """
    valid(workflow(chain % ("{arcs: [{step: b, args: {x: 1}}]}", "{arcs: [{step: c}]}", "")))
    assert_reports(workflow(chain % ("[{step: b, args: {x: 1}}]", "[{step: c}]", "‹name.args›")))


def test_token_args_and_step_args_are_read_by_their_bare_names() -> None:
    valid(
        workflow(
            """
            - step: start
              args: {a: 1}
              tool: {kind: http, url: "{{ a }}{{ args.a }}"}
              next: [{step: b, args: {x: 1}}]
            - {step: b, tool: {kind: http, url: "{{ x }}{{ args.x }}"}}
            """
        )
    )


def test_the_args_of_a_task_are_seen_by_its_own_fields_only() -> None:
    valid(task("url: '{{ city }}', args: {city: Oslo}", "http"))
    assert_reports(
        step("tool: [{kind: noop, args: {city: 1}}, {kind: http, url: '{{ ‹name.unknown›city }}'}]")
    )
    valid(task("url: '{{ city }}', args: '{{ _prev }}'", "http"))


def test_a_workbook_task_sees_what_its_callers_give_it() -> None:
    valid(
        playbook(
            """
            workbook:
              - {name: send, tool: {kind: http, url: "{{ email }}{{ args.email }}{{ city }}{{ region }}"}}
              - {name: outer, tool: {kind: workbook, name: send, args: {email: x}}}
            workflow:
              - step: start
                loop: {in: [1], iterator: city}
                tool: {kind: workbook, name: send, args: {email: x}}
                next: {arcs: [{step: b, args: {region: 1}}]}
              - {step: b, tool: {kind: workbook, name: outer}}
            """
        )
    )


def test_a_workbook_task_that_nobody_gives_a_name_to_is_warned_of() -> None:
    entries = "workbook: [{name: send, tool: {kind: http, url: '{{ ‹name.unknown›email }}'}}]\n"
    assert_reports(f"{HEAD}{entries}workflow: [{{step: start, tool: {{kind: workbook, name: send}}}}]\n")


def test_results_are_read_by_the_names_of_steps_and_labels() -> None:
    valid(
        workflow(
            """
            - step: start
              tool:
                - a: {kind: noop}
                - b: {kind: http, url: "{{ a }}{{ a.result }}", body: "{{ result[0].x }}{{ response.x }}"}
                - c: {kind: http, url: "{{ this.data }}{{ data }}"}
              next:
                arcs: [{step: d, when: "{{ start.rows | length > 0 }}", args: {x: "{{ start.data.result }}"}}]
            - step: d
              tool: {kind: http, url: "{{ start[0].a }}{{ start.error }}{{ start.results.a }}{{ x }}"}
            """
        )
    )


def test_a_step_that_never_runs_before_has_no_result_yet() -> None:
    found = only(
        workflow(
            """
            - step: start
              tool: {kind: http, url: "{{ ‹name.not_yet›later.x }}"}
              next: {arcs: [{step: later}]}
            - {step: later, tool: {kind: noop}}
            """
        )
    )
    assert found.severity == "warning"


def test_a_step_may_read_its_own_earlier_result_in_a_cycle() -> None:
    valid(
        workflow(
            "- {step: start, tool: {kind: http, url: '{{ start.x }}'}, next: {arcs: [{step: start,"
            " when: '{{ start.x }}'}]}}"
        )
    )


def test_a_label_that_a_step_does_not_have_is_reported_with_the_nearest() -> None:
    found = only(
        workflow(
            """
            - {step: start, tool: [{fetch: {kind: noop}}], next: {arcs: [{step: b}]}}
            - {step: b, tool: {kind: http, url: "{{ ‹name.field›start.results.fetsh }}"}}
            """
        )
    )
    assert found.hint == "did you mean `start.results.fetch`?"


# --- cases, sinks, retries --------------------------------------------------


def test_the_moments_of_a_call_have_their_names() -> None:
    valid(
        workflow(
            """
            - step: start
              tool: {kind: http, url: x}
              vars: {id: "{{ result.id }}", status: "{{ this.status }}"}
              sink:
                tool:
                  kind: postgres
                  table: t
                  args: {a: "{{ result }}", b: "{{ this.meta }}", c: "{{ vars.id }}"}
                when: "{{ error is not defined }}"
              retry:
                retry_when: "{{ status_code == 503 and attempt < max_attempts and not success }}"
                stop_when: "{{ error or data or response }}"
              case:
                - when: "{{ event.name == 'step.enter' }}"
                  then: {set: {ctx: {pages: [], n: 0}}}
                - when: "{{ error is defined and error.status in [500] }}"
                  then: {retry: {stop_when: "{{ result.ok }}"}}
                - when: "{{ response.more }}"
                  then:
                    - collect: {from: response.data, into: pages}
                    - mail:
                        tool: {kind: http, url: "{{ pages }}{{ ctx.n }}{{ n }}{{ result }}"}
                        poll: {until: "{{ result.ok and attempt > 1 }}"}
                    - log: {tool: {kind: http, url: "{{ mail.result }}{{ event.timestamp }}"}}
                    - result: {from: pages}
                    - next: {to: [{step: done, args: {p: "{{ pages }}", m: "{{ mail }}", r: "{{ result }}"}}]}
            - step: done
              tool: {kind: http, url: "{{ p }}{{ args.m }}{{ vars.status }}{{ start.results.mail }}"}
            """
        )
    )


def test_a_dotted_path_is_checked_like_a_template_at_its_own_characters() -> None:
    case = "case: [{when: '{{ response.ok }}', then: {result: {from: ‹name.unknown›respons.data}}}]"
    assert only(step(f"tool: {{kind: noop}}, {case}")).hint == "did you mean `response`?"


def test_a_step_that_waits_for_events_may_read_steps_that_run_meanwhile() -> None:
    valid(
        workflow(
            """
            - {step: start, tool: {kind: noop}, next: [wait, other]}
            - {step: other, tool: {kind: noop}}
            - step: wait
              spec: {eval_mode: on_event}
              case:
                - when: "{{ event.name == 'step.done' and event.step == 'other' and other.ok }}"
                  then: {next: end}
            """
        )
    )


@pytest.mark.parametrize(
    "rule",
    [
        "{when: '{{ ‹rule.skip_outcome›outcome.result }}', then: {do: skip}}",
        "{when: '{{ _prev }}', then: {do: skip, set_ctx: {a: '{{ ‹rule.skip_outcome›outcome.result }}'}}}",
        "{when: '{{ _prev }}', then: {do: skip, set_iter: {a: ['{{ ‹rule.skip_outcome›outcome.result }}']}}}",
    ],
)
def test_a_skip_rule_cannot_read_the_outcome(rule: str) -> None:
    assert "`_prev`" in (only(rules(rule)).hint or "")


def test_a_skip_rule_reads_what_came_before() -> None:
    valid(
        step(
            "loop: {in: [1], iterator: i}, tool: [{a: {kind: noop}},"
            " {b: {kind: noop, spec: {policy: {rules: ["
            "{when: '{{ a.x and _prev and i and iter.i and result }}', then: {do: skip,"
            " set_iter: {n: '{{ a }}'}}}]}}}}]"
        )
    )


def test_rules_read_the_outcome_with_the_fields_of_their_kind() -> None:
    rule = (
        "{when: '{{ outcome.%s }}', then: {do: retry, delay: '{{ outcome.%s }}'}}, {else: {then: {do: fail}}}"
    )
    for kind, fields, group in (
        ("http", "url: x", "http.status"),
        ("postgres", "query: select 1", "pg.sqlstate"),
        ("python", "code: x", "py.exception_type"),
    ):
        for read in (group, "status", "result.x", "error.kind", "meta.attempt"):
            valid(task(f"{fields}, spec: {{policy: {{rules: [{rule % (read, read)}]}}}}", kind))


# --- v1 --------------------------------------------------

V1 = """
apiVersion: noetl.io/v1
kind: Playbook
name: demo
path: examples/demo
workflow:
  - step: start
    loop: {in: [1, 2], iterator: city}
    next: [{step: fetch, with: {town: "{{ city }}"}}]
  - step: fetch
    call: {task: get, with: {where: "{{ town }}{{ city }}{{ iter.city }}%s"}}
    next: [{when: "{{ get.result.ok }}", then: [{step: report}]}, {else: [{step: end}]}]
  - step: report
    join: start
    call: {task: get, with: {where: "{{ join_results }}"}}
workbook:
  - {task: get, type: http, endpoint: "https://example.com/{{ where }}"}
"""


def test_v1_sees_iterators_along_the_loop_results_by_task_and_join_results_where_they_meet() -> None:
    valid((V1 % "").lstrip())


def test_join_results_are_there_only_in_the_joining_step() -> None:
    assert_reports((V1 % "{{ ‹name.not_here›join_results }}").lstrip())


# --- the workload --------------------------------------------------


def test_workload_values_that_need_each_other_in_a_circle_are_reported_at_one_of_them() -> None:
    found = only(
        playbook(
            """
            workload:
              a: ‹workload.cycle›"{{ workload.b }}"
              b: ["{{ c }}"]
              c: {x: "{{ workload.a }}"}
              d: "{{ workload.a }}"
            workflow: [{step: start, tool: {kind: noop}}]
            """
        )
    )
    assert all(f"`{name}`" in found.message for name in "abc")
    assert "`d`" not in found.message


def test_workload_values_may_need_each_other_in_any_order() -> None:
    valid(
        playbook(
            "workload: {a: '{{ workload.b }}', b: '{{ c }}', c: 1}\nworkflow: [{step: start,"
            " tool: {kind: noop}}]"
        )
    )


# --- results by other names --------------------------------------------------


@pytest.mark.parametrize("name", ["outcome", "error"])
def test_a_name_for_results_of_another_place_is_reported_with_those_of_a_pipeline(name: str) -> None:
    found = only(reads("{{ ‹name.not_here›" + name + ".x }}"))
    assert found.hint is not None
    assert "`_prev`" in found.hint
