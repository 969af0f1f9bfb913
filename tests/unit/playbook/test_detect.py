"""Which dialect a playbook is written in, and what is said when that is not clear."""

from __future__ import annotations

import pytest

from tests.unit.playbook.reports import HEAD, assert_reports, loaded, marked, only, step

V2_ONLY = {
    "case": "case: [{when: '{{ error is defined }}', then: {next: end}}]",
    "sink": "sink: {tool: {kind: noop}}",
    "retry": "retry: 2",
    "vars": "vars: {a: 1}",
    "args": "args: {a: 1}",
    "next": "next: end",
    "next list": "next: [end]",
    "loop.mode": "loop: {in: [1], iterator: i, mode: parallel}",
    "loop.collection": "loop: {collection: [1], iterator: i}",
    "loop.element": "loop: {in: [1], element: i}",
}
CANONICAL_ONLY = {
    "next.arcs": "next: {‹dialect.mixed›arcs: [{step: end}]}",
    "spec.policy.admit": "spec: {policy: {admit: {rules: [{else: {then: {allow: true}}}]}}}",
    "spec.policy.rules": "tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}",
}


@pytest.mark.parametrize("fields", V2_ONLY.values(), ids=V2_ONLY)
def test_a_key_that_only_v2_has_makes_the_playbook_v2(fields: str) -> None:
    found = loaded(step(f"tool: {{kind: noop}}, {fields}"))
    assert (found.dialect, found.valid) == ("v2", True)


@pytest.mark.parametrize(
    "fields",
    [
        "tool: {kind: noop}",
        "next: {arcs: [{step: end}]}",
        "loop: {in: [1], iterator: i, spec: {mode: parallel}}, tool: {kind: noop}",
    ],
)
def test_without_such_a_key_it_is_canonical(fields: str) -> None:
    found = loaded(step(fields))
    assert (found.dialect, found.diagnostics) == ("canonical", ())


def test_v2_keys_inside_data_and_tasks_decide_nothing() -> None:
    found = loaded(step("tool: {kind: python, code: x, args: {case: 1, sink: 2}}"))
    assert found.dialect == "canonical"


@pytest.mark.parametrize("canonical", CANONICAL_ONLY)
def test_keys_of_both_are_an_error_that_names_a_line_of_each(canonical: str) -> None:
    fields, _ = marked(CANONICAL_ONLY[canonical])
    text = f"{HEAD}workflow:\n  - {{step: start, {fields}}}\n  - step: other\n    vars: {{a: 1}}\n"
    mixed = [one for one in loaded(text).diagnostics if one.code == "dialect.mixed"]
    assert [(one.line, one.column) for one in mixed] == [(7, 5)]
    assert mixed[0].message == f"`vars` (line 7) is v2, but `{canonical}` (line 5) is canonical"
    assert mixed[0].hint is not None
    assert "noetl migrate" in mixed[0].hint


def test_a_labelled_task_with_rules_counts_as_canonical() -> None:
    text = step(
        "‹dialect.mixed›vars: {a: 1}, "
        "tool: [{a: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}}]"
    )
    only(text)


def test_v1_is_v1_whatever_else_is_in_it() -> None:
    text = (
        "apiVersion: noetl.io/v1\nkind: Playbook\nname: a\npath: b\n"
        "workflow:\n  - {step: start, next: [{step: end}]}\n"
    )
    found = loaded(text)
    assert (found.dialect, found.diagnostics) == ("v1", ())


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("noetl.io/v3", "did you mean `noetl.io/v"),
        ("neotl.io/v2", "did you mean `noetl.io/v2`?"),
        ("2", "`noetl.io/v2`, or `noetl.io/v1`"),
        ("[x]", "`noetl.io/v2`, or `noetl.io/v1`"),
        ("", "`noetl.io/v2`, or `noetl.io/v1`"),
    ],
)
def test_an_unknown_version_is_reported_at_its_value(written: str, hint: str) -> None:
    mark = "‹apiVersion.unknown›"
    head = f"apiVersion: {mark}{written}\n" if written else f"apiVersion:{mark}\n"
    found = only(head + step("tool: {kind: noop}").partition("\n")[2])
    assert found.hint is not None
    assert found.hint.startswith(hint)


def test_a_canonical_playbook_may_leave_version_and_kind_out_with_a_warning() -> None:
    found = only("‹apiVersion.missing›metadata: {name: a}\nworkflow: [{step: start, tool: {kind: noop}}]\n")
    assert (found.severity, found.hint) == ("warning", "apiVersion: noetl.io/v2")


@pytest.mark.parametrize(
    ("root", "fields", "named", "version"),
    [
        ("metadata: {name: a}", "tool: {kind: noop}, next: end", "`next` (line 2)", "v2"),
        ("metadata: {name: a}", "tool: {kind: noop}, sink: {tool: {kind: noop}}", "`sink` (line 2)", "v2"),
        ("name: a", "desc: x", "`name` (line 1)", "v1"),
        ("metadata: {name: a}", "call: {task: x}", "`call` (line 2)", "v1"),
        ("metadata: {name: a}", "type: http", "`type` (line 2)", "v1"),
    ],
)
def test_other_dialects_must_say_which_they_are(root: str, fields: str, named: str, version: str) -> None:
    found = loaded(f"{root}\nworkflow: [{{step: start, {fields}}}]\n")
    required = next(one for one in found.diagnostics if one.code == "apiVersion.required")
    assert (required.line, required.column) == (1, 1)
    assert named in required.message
    assert required.hint == f"apiVersion: noetl.io/{version}"
    assert found.dialect == version


@pytest.mark.parametrize(
    "written", ["‹kind.unknown›Workflow", "‹kind.unknown›playbook", "‹kind.unknown›[Playbook]"]
)
def test_another_kind_is_refused(written: str) -> None:
    assert_reports(
        f"apiVersion: noetl.io/v2\nkind: {written}\n" + step("tool: {kind: noop}").split("\n", 2)[2]
    )


def test_with_a_version_the_kind_must_be_there() -> None:
    found = only("‹key.missing›apiVersion: noetl.io/v2\n" + step("tool: {kind: noop}").split("\n", 2)[2])
    assert found.hint == "kind: Playbook"


@pytest.mark.parametrize(
    "workflow", ["5", "text", "{a: 1}", "[5]", "[[1]]", "[null]", "[{loop: 5, next: 5, spec: [1]}]"]
)
def test_detection_survives_any_shape_of_workflow(workflow: str) -> None:
    found = loaded(f"{HEAD}workflow: {workflow}\n")
    assert found.dialect == "canonical"
    assert not found.valid
