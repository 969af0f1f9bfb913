"""Migration gives canonical YAML that validates and says the same, or says what it cannot say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from noetl.errors import UsageError
from noetl.playbook.load import Loaded, load
from noetl.playbook.migrate import CONSTRUCTS, Migration, migrate
from noetl.playbook.model import Playbook, Step, Task
from noetl.playbook.rewriting.inexpressible import CODE
from noetl.template import Template
from noetl.tools.registry import builtin_kinds
from tests.unit.playbook.inexpressible_examples import EXAMPLES, V1, V2

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "conformance" / "cases"
PAGE = ROOT / "docs" / "reference" / "migrate.md"

REPORTED = {
    "v1/iterator_in_scope": {"item-tokens", "step-args"},
    "v1/join_results_of_several_ways": {"item-tokens"},
    "v1/loop_joined_by_a_step": {"item-tokens"},
    "v1/loop_names_its_join": {"item-tokens"},
    "v1/nested_run": {"parallel-run"},
    "v1/run_is_parallel": {"parallel-run"},
    "v1/with_reaches_main": {"step-args"},
    "v2/call_error_before_call_done": {"failure-details"},
    "v2/case_else": {"failed-call-tasks", "failure-of-many"},
    "v2/case_exclusive": {"failed-call-tasks", "failure-of-many", "hidden-decision"},
    "v2/case_inclusive": {"inclusive-case"},
    "v2/fail_action": {"fail-message"},
    "v2/failed_call_has_no_response": {"guard-both-ways", "dead-entry"},
    "v2/inclusive_call_waits": {"inclusive-case"},
    "v2/loop_break_early": {"loop-exit"},
    "v2/loop_with_pagination_example": {"loop-exit", "loop-values"},
    "v2/loop_without_tool": {"skip-action"},
    "v2/named_tasks_in_then": {"computed-target"},
    "v2/next_policy_break_chain": {"next-policy"},
    "v2/next_policy_defer": {"next-policy"},
    "v2/next_policy_end_step": {"dead-entry"},
    "v2/on_event_exit": {"on-event"},
    "v2/on_event_signal": {"on-event"},
    "v2/on_event_timeout": {"on-event"},
    "v2/poll_deadline": {"ignored-failure", "poll-deadline"},
    "v2/poll_until": {"retry-twice"},
    "v2/retry_action_attempts": {"event-guard"},
    "v2/retry_chain": {"retry-chain"},
    "v2/retry_placement": {"failed-call-tasks", "failure-of-many"},
    "v2/sink_action": {"hidden-decision"},
    "v2/skip_action": {"skip-action"},
    "v2/step_without_tool": {"exit-action", "sink", "step-args", "vars"},
    "v2/vars": {"vars"},
    "v2/workbook_task": {"vars"},
}
"""The conformance cases that canonical YAML cannot say, with the constructs that stand in the way."""


def loaded(text: str) -> Loaded:
    found = load(text.encode(), builtin_kinds())
    assert found.valid, [(one.line, one.message) for one in found.diagnostics]
    return found


def migrated(text: str) -> str:
    found = migrate(loaded(text), builtin_kinds())
    assert found.text is not None, found.inexpressible
    return found.text


def migrated_playbook(text: str) -> Playbook:
    found = loaded(migrated(text))
    assert found.playbook is not None
    assert found.dialect == "canonical"
    return found.playbook


def constructs(found: Migration) -> set[str]:
    names = {construct.message: name for name, construct in CONSTRUCTS.items()}
    return {names[one.message] for one in found.inexpressible}


def case_text(name: str) -> str:
    case = yaml.safe_load((CASES / f"{name}.yaml").read_text())
    text: str = case.get("text") or yaml.safe_dump(case["playbook"], sort_keys=False)
    return text


def case_names() -> list[str]:
    return [
        f"{group}/{path.stem}" for group in ("v1", "v2") for path in sorted((CASES / group).glob("*.yaml"))
    ]


def step(playbook: Playbook, name: str) -> Step:
    return next(one for one in playbook.steps if one.name == name)


def guards(one: Step) -> list[str | None]:
    return [arc.when.source if isinstance(arc.when, Template) else None for arc in one.router.arcs]


def task(playbook: Playbook, name: str, label: str) -> Task:
    return next(node for node in step(playbook, name).body if isinstance(node, Task) and node.label == label)


def start(rest: str) -> str:
    """A v2 playbook with this first step and one to go to."""
    return f"{V2}  - step: start\n{rest}  - step: after\n    tool: {{kind: noop}}\n"


# --- every case, every construct -------------------------------------------------------------------------


@pytest.mark.parametrize("name", case_names())
def test_a_conformance_case_becomes_valid_canonical_yaml_or_is_reported(name: str) -> None:
    original = loaded(case_text(name))
    found = migrate(original, builtin_kinds())
    assert constructs(found) == REPORTED.get(name, set())
    if found.text is None:
        return
    again = loaded(found.text)
    assert again.dialect == "canonical"
    assert again.playbook is not None
    assert original.playbook is not None
    assert [one.name for one in again.playbook.steps] == [one.name for one in original.playbook.steps]
    assert again.playbook.workload == original.playbook.workload
    known = {one.code for one in original.diagnostics}
    assert {one.code for one in again.diagnostics} <= known, "the migration brings new warnings"
    assert migrated(found.text) == found.text


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_each_inexpressible_construct_is_reported_with_its_line(construct: str) -> None:
    text = EXAMPLES[construct]
    found = migrate(loaded(text), builtin_kinds())
    assert found.text is None
    assert constructs(found) == {construct}
    for one in found.inexpressible:
        assert (one.code, one.severity) == (CODE, "error")
        assert 1 <= one.line <= text.count("\n")
        assert one.hint == CONSTRUCTS[construct].hint


def test_the_reference_lists_exactly_the_constructs_that_are_reported() -> None:
    entries = re.findall(
        r"^### `([a-z-]+)`\n\n> (.+)\n\n.+\n\nBy hand: (.+)\.$", PAGE.read_text(), re.MULTILINE
    )
    assert [name for name, _, _ in entries] == list(CONSTRUCTS)
    assert {name: (message, hint) for name, message, hint in entries} == CONSTRUCTS


def test_the_examples_of_the_reference_are_what_migration_gives() -> None:
    pairs = re.findall(
        r"Before:\n\n```yaml\n(.*?)```\n\nAfter:\n\n```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    assert len(pairs) >= 3
    for before, after in pairs:
        assert migrated(before) == after


def test_an_invalid_playbook_cannot_be_migrated() -> None:
    with pytest.raises(UsageError):
        migrate(load(b"apiVersion: noetl.io/v2", builtin_kinds()), builtin_kinds())


def test_comments_at_the_top_stay() -> None:
    text = "# What it does.\n#\n# And why.\n" + start("    tool: {kind: noop}\n    next: after\n")
    assert migrated(text).startswith("# What it does.\n#\n# And why.\napiVersion: noetl.io/v2\n")


def test_all_that_stands_in_the_way_is_reported_at_once() -> None:
    text = start("    tool: {kind: noop}\n    vars: {a: 1}\n    args: {b: 2}\n    next: after\n")
    assert constructs(migrate(loaded(text), builtin_kinds())) == {"vars", "step-args"}


# --- ways between steps ----------------------------------------------------------------------------------


def test_a_guard_of_the_first_language_is_not_asked_at_failures() -> None:
    text = (
        V1
        + """workflow:
  - step: start
    next:
      - when: "{{ workload.a or workload.b }}"
        then: [{step: left}]
      - else: [{step: right}]
  - {step: left, next: [{step: right}]}
  - {step: right, next: [{step: end}]}
"""
    )
    assert guards(step(migrated_playbook(text), "start")) == [
        "{{ event.name == 'step.done' and (workload.a or workload.b) }}",
        None,
    ]


def test_several_targets_beside_other_ways_get_guards_that_exclude_each_other() -> None:
    text = (
        V1
        + """workflow:
  - step: start
    next:
      - when: "{{ workload.a }}"
        then: [{step: left}, {step: right}]
      - when: "{{ workload.b > 1 }}"
        then: [{step: left}]
      - else: [{step: right}]
  - {step: left, next: [{step: end}]}
  - {step: right, next: [{step: end}]}
"""
    )
    found = step(migrated_playbook(text), "start")
    assert found.router.mode == "inclusive"
    assert [
        (arc.targets[0].step, guard) for arc, guard in zip(found.router.arcs, guards(found), strict=True)
    ] == [
        ("left", "{{ event.name == 'step.done' and workload.a }}"),
        ("right", "{{ event.name == 'step.done' and workload.a }}"),
        ("left", "{{ event.name == 'step.done' and workload.b > 1 and not (workload.a) }}"),
        ("right", "{{ event.name == 'step.done' and not (workload.a) and not (workload.b > 1) }}"),
    ]


def test_a_loop_step_is_left_at_loop_done() -> None:
    text = (
        V1
        + """workflow:
  - step: start
    type: iterator
    collection: [1]
    element: item
    task: {type: python, code: "def main(): return 1"}
    next: [{when: "{{ workload.a }}", then: [{step: end}]}]
"""
    )
    assert guards(step(migrated_playbook(text), "start")) == [
        "{{ event.name == 'loop.done' and workload.a }}"
    ]


def test_args_of_a_step_move_to_the_arcs_and_those_of_the_transition_win() -> None:
    found = migrated_playbook(
        V2
        + """  - step: start
    tool: {kind: noop}
    next: [{step: use, args: {b: 1}}]
  - step: use
    args: {b: 0, c: "{{ workload.c }}"}
    tool: {kind: python, code: "result = [b, c]"}
    next: end
"""
    )
    (arc,) = step(found, "start").router.arcs
    assert arc.targets[0].args == {"b": 1, "c": Template("{{ workload.c }}")}
    assert arc.targets[0].carry
    assert not step(found, "use").router.arcs[0].targets[0].carry


@pytest.mark.parametrize("value", ["{{ args.a }}", "{{ a }}", "{{ z | default(0) }}"])
def test_args_that_would_read_something_else_on_an_arc_stay_where_they_are(value: str) -> None:
    text = (
        V2
        + f"""  - step: start
    tool: {{kind: noop}}
    next: [{{step: middle, args: {{z: 1}}}}]
  - step: middle
    tool: {{kind: noop}}
    next: [{{step: use, args: {{a: 1}}}}]
  - step: use
    args: {{b: "{value}"}}
    tool: {{kind: noop}}
"""
    )
    assert constructs(migrate(loaded(text), builtin_kinds())) == {"step-args"}


# --- results by name -------------------------------------------------------------------------------------


def test_a_task_of_the_first_language_is_read_by_the_one_step_that_may_have_called_it() -> None:
    found = migrated_playbook(case_text("v1/next_when_then_else"))
    assert task(found, "end", "task_1").args == {"value": Template("{{ hot.result }}")}


def test_the_step_behind_an_iterator_reads_the_list_by_the_loops_name() -> None:
    found = migrated_playbook(case_text("v1/iterator_and_join"))
    (arc,) = step(found, "city_loop").router.arcs
    assert arc.targets[0].args == {"alerts": Template("{{ city_loop }}")}
    assert step(found, "aggregate_alerts").join is None


# --- repeating a call ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clause", "rules"),
    [
        ("3", ["{{ outcome.status == 'error' }}", None]),
        (
            "{on: [502, 503]}",
            [
                "{{ outcome.status == 'error' and outcome.http.status in [502, 503] }}",
                "{{ outcome.status == 'error' }}",
                None,
            ],
        ),
        (
            "{retry_when: \"{{ status_code == 5 or error.kind == 'x' }}\"}",
            [
                "{{ outcome.status == 'error' and (outcome.http.status == 5 or outcome.error.kind == 'x') }}",
                "{{ outcome.status == 'error' }}",
                None,
            ],
        ),
        (
            '{max_attempts: 4, stop_when: "{{ success and result.ready }}"}',
            [
                "{{ not ((outcome.status == 'ok') and outcome.result.ready) and _attempt < 4 }}",
                "{{ outcome.status == 'error' }}",
                None,
            ],
        ),
        (
            '{retry_when: "{{ attempt < max_attempts }}", stop_when: "{{ data.ready }}"}',
            [
                "{{ _attempt < 3 and not (outcome.result.ready) and _attempt < 3 }}",
                "{{ outcome.status == 'error' }}",
                None,
            ],
        ),
    ],
)
def test_a_retry_clause_becomes_rules(clause: str, rules: list[str | None]) -> None:
    text = start(
        f'    tool: {{kind: http, method: GET, url: "http://a"}}\n    retry: {clause}\n    next: after\n'
    )
    found = task(migrated_playbook(text), "start", "task_1").rules
    assert found is not None
    assert [rule.when.source if isinstance(rule.when, Template) else None for rule in found] == rules
    assert found[0].then.do == "retry"
    assert found[-1].then.do == "continue"


@pytest.mark.parametrize(
    ("clause", "kind", "delay"),
    [
        ("{initial_delay: 2, backoff_multiplier: 2}", "exponential", 2.0),
        ("{initial_delay: 2, backoff_multiplier: 1}", "none", 2.0),
        ("{initial_delay: 2, backoff_multiplier: 1.5}", "none", Template("{{ 2 * 1.5 ** (_attempt - 1) }}")),
        ("{backoff: {type: linear, delay_seconds: 3}}", "linear", 3.0),
        ("{backoff: {type: fixed, delay_seconds: 3}}", "none", 3.0),
    ],
)
def test_delays_grow_as_before(clause: str, kind: str, delay: float | Template) -> None:
    text = start(
        f'    tool: {{kind: http, method: GET, url: "http://a"}}\n    retry: {clause}\n    next: after\n'
    )
    rules = task(migrated_playbook(text), "start", "task_1").rules
    assert rules is not None
    assert (rules[0].then.backoff.kind, rules[0].then.backoff.delay) == (kind, delay)


def test_a_poll_repeats_good_answers_only() -> None:
    text = start(
        """    tool: {kind: noop}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then:
          - ask:
              tool: {kind: http, method: GET, url: "http://a"}
              poll: {until: "{{ result.ready }}", interval: 5s, max_attempts: 7}
"""
    )
    rules = task(migrated_playbook(text), "start", "ask").rules
    assert rules is not None
    assert rules[0].when == Template("{{ outcome.status == 'ok' and not (outcome.result.ready) }}")
    assert (rules[0].then.do, rules[0].then.attempts, rules[0].then.backoff.delay) == ("retry", 7, 5.0)
    assert [rule.then.do for rule in rules] == ["retry", "fail", "continue"]


def test_a_tolerated_error_continues_after_its_retries() -> None:
    text = (
        V1
        + """workflow:
  - {step: start, call: {task: ask}}
workbook:
  - {task: ask, type: http, method: GET, endpoint: "http://a", retry: 2, on_error: continue}
"""
    )
    (node,) = migrated_playbook(text).workbook[0].body
    assert isinstance(node, Task)
    assert node.rules is not None
    assert node.rules[0].when == Template("{{ outcome.status == 'error' and _attempt < 3 }}")
    assert [rule.then.do for rule in node.rules] == ["retry", "continue"]


# --- cases -----------------------------------------------------------------------------------------------


def case(entries: str, rest: str = "") -> str:
    return start(f'    tool: {{kind: http, method: GET, url: "http://a"}}\n{rest}    case:\n{entries}')


def test_an_entry_that_forgets_failures_takes_them_too() -> None:
    found = migrated_playbook(
        case("      - {when: \"{{ event.name == 'call.done' }}\", then: {next: after}}\n")
    )
    assert guards(step(found, "start")) == ["{{ event.name in ['step.done', 'step.failed'] }}"]


def test_a_transition_whose_args_need_the_response_does_not_take_failures() -> None:
    found = migrated_playbook(
        case(
            """      - when: "{{ event.name == 'call.done' }}"
        then: {next: [{step: after, args: {n: "{{ response.n }}"}}]}
"""
        )
    )
    (arc,) = step(found, "start").router.arcs
    assert arc.when is None
    assert arc.targets[0].args == {"n": Template("{{ start.n }}")}


def test_an_earlier_entry_that_does_not_route_keeps_a_later_one_from_routing() -> None:
    found = migrated_playbook(
        case(
            """      - when: "{{ response.a > 1 }}"
        then: {set: {ctx: {seen: true}}}
      - when: "{{ response.b }}"
        then: {next: after}
"""
        )
    )
    assert guards(step(found, "start")) == [
        "{{ event.name == 'step.done' and start.b and not (start.a > 1) }}"
    ]


def test_the_result_of_the_call_stays_the_steps_when_tasks_follow_it() -> None:
    found = migrated_playbook(
        case(
            """      - when: "{{ event.name == 'call.done' and response.a }}"
        then: [{tell: {tool: {kind: python, args: {n: "{{ result.n }}"}, code: "result = n"}}}, {next: after}]
      - when: "{{ event.name == 'call.done' and response.b }}"
        then: [{tell: {tool: {kind: python, args: {n: "{{ this.data.n }}"}, code: "result = n"}}}]
"""
        )
    )
    labels = [node.label for node in step(found, "start").body if isinstance(node, Task)]
    assert labels == ["call", "tell", "keep_result", "tell_2", "keep_result_2"]
    assert task(found, "start", "tell").args == {"n": Template("{{ call.n }}")}
    assert task(found, "start", "tell_2").args == {"n": Template("{{ call.n }}")}
    kept = task(found, "start", "keep_result")
    assert kept.args == {"value": Template("{{ call }}")}
    assert kept.rules is not None
    assert kept.rules[-1].then.do == "break"
    rules = task(found, "start", "call").rules
    assert rules is not None
    assert [(rule.then.do, rule.then.to) for rule in rules] == [
        ("jump", "tell"),
        ("jump", "tell_2"),
        ("fail", None),
        ("break", None),
    ]
    assert guards(step(found, "start")) == ["{{ event.name == 'step.done' and start.a }}"]


def test_a_predicate_of_a_named_task_reads_that_tasks_own_outcome() -> None:
    found = migrated_playbook(
        case(
            """      - when: "{{ event.name == 'call.done' and response is defined }}"
        then:
          - ask:
              tool: {kind: http, method: GET, url: "http://b/{{ result.id }}"}
              retry: {retry_when: "{{ result.busy }}"}
"""
        )
    )
    asked = task(found, "start", "ask")
    assert asked.config["url"] == Template("http://b/{{ call.id }}")
    assert asked.rules is not None
    assert asked.rules[0].when == Template("{{ outcome.status == 'error' and outcome.result.busy }}")


def test_calling_again_keeps_the_first_value_as_the_default() -> None:
    found = migrated_playbook(
        start(
            """    tool:
      kind: http
      method: GET
      url: "http://a"
      params: {page: "{{ workload.first }}", size: 5}
    case:
      - when: "{{ event.name == 'call.done' and response.more }}"
        then: {call: {params: {page: "{{ response.page + 1 }}", size: 5}}}
"""
        )
    )
    call = task(found, "start", "call")
    assert call.config["params"] == {
        "page": Template("{{ iter.page if iter.page is defined else workload.first }}"),
        "size": 5,
    }
    assert call.rules is not None
    assert call.rules[0].then.set_iter == {"page": Template("{{ outcome.result.page + 1 }}")}
    assert (call.rules[0].then.do, call.rules[0].then.to) == ("jump", "call")


def test_labels_that_migration_adds_hide_nothing() -> None:
    found = migrated_playbook(
        start(
            """    tool: {kind: http, method: GET, url: "http://a/{{ call }}"}
    sink: {tool: {kind: http, method: POST, url: "http://b/{{ keep_result }}", body: "{{ result }}"}}
    next: after
"""
        ).replace("workflow:", "workload: {call: 1, keep_result: 2}\nworkflow:")
    )
    labels = [node.label for node in step(found, "start").body if isinstance(node, Task)]
    assert labels == ["call_2", "sink", "keep_result_2"]


def test_a_name_that_stands_in_text_or_behind_a_dot_is_left_alone() -> None:
    found = migrated_playbook(
        case(
            """      - when: "{{ event.name == 'call.done' and response is defined }}"
        then:
          - tell:
              tool:
                kind: http
                method: POST
                url: "http://b/response"
                body: "response {{ workload.response.result ~ 'result' ~ result.response }}"
"""
        )
    )
    assert task(found, "start", "tell").config["body"] == Template(
        "response {{ workload.response.result ~ 'result' ~ call.response }}"
    )


def test_values_that_build_on_each_other_are_kept_one_after_the_other() -> None:
    found = migrated_playbook(
        case(
            """      - when: "{{ response.a }}"
        then:
          - set: {ctx: {rows: [0]}}
          - collect: {from: response.a, into: rows}
"""
        )
    )
    first, second = task(found, "start", "call").rules, task(found, "start", "keep_values").rules
    assert first is not None
    assert second is not None
    assert (first[0].then.to, first[0].then.set_iter) == ("keep_values", {"rows": [0]})
    assert second[0].then.set_iter == {"rows": Template("{{ (iter.rows | default([])) + [call.a] }}")}


def test_a_way_for_failed_calls_does_not_take_good_answers_that_were_repeated_in_vain() -> None:
    text = case(
        """      - when: "{{ response.a }}"
        then: {retry: {max_attempts: 3}}
      - else: {next: after}
"""
    )
    assert constructs(migrate(loaded(text), builtin_kinds())) == {"failure-of-many"}


def test_a_result_is_taken_where_it_is_set() -> None:
    found = migrated_playbook(
        case(
            """      - when: "{{ response.a }}"
        then:
          - result: {from: response.b}
          - tell: {tool: {kind: noop}}
"""
        )
    )
    labels = [node.label for node in step(found, "start").body if isinstance(node, Task)]
    assert labels == ["call", "result_value", "tell", "keep_result"]
    assert task(found, "start", "result_value").args == {"value": Template("{{ call.b }}")}
    assert task(found, "start", "keep_result").args == {"value": Template("{{ result_value }}")}


def test_a_way_that_is_chosen_when_a_loop_is_over_becomes_an_arc_on_its_end() -> None:
    text = start(
        """    loop: {in: [1, 2], iterator: n}
    tool: {kind: noop}
    case:
      - when: "{{ event.name == 'step.exit' and result | length > 1 }}"
        then: {next: [{step: after, args: {all: "{{ result }}"}}]}
"""
    )
    one = step(migrated_playbook(text), "start")
    assert guards(one) == ["{{ event.name == 'loop.done' and start | length > 1 }}"]
