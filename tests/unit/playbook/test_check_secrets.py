"""Keychain values on their way into what the log keeps."""

from __future__ import annotations

import pytest

from tests.unit.playbook.reports import HEAD, assert_reports

SECRET = "{{ ‹secret.kept›keychain.key }}"
KEYCHAIN = f"{HEAD}keychain: [{{name: key, kind: env}}]\nworkflow:\n  - "


@pytest.mark.parametrize(
    "fields",
    [
        'tool: {kind: noop}, next: {arcs: [{step: end, args: {a: "SECRET"}}]}',
        'tool: {kind: noop, RULES {do: continue, set_ctx: {a: "x-SECRET"}}}}]}}}',
        'tool: {kind: noop, RULES {do: continue, set_iter: {a: ["SECRET"]}}}}]}}}',
        'tool: {kind: playbook, path: p, args: {a: "SECRET"}}',
        'tool: {kind: noop}, loop: {in: ["SECRET"], iterator: n}',
        'tool: [{b: {loop: {in: "{{ [‹secret.kept›keychain.key] }}", iterator: n}, tool: {kind: noop}}}]',
        'tool: {kind: noop}, args: {a: "SECRET"}, next: end',
        'tool: {kind: noop}, vars: {a: "SECRET"}',
        'tool: {kind: noop}, CASE [{set: {ctx: {a: "SECRET"}}}]}]',
        'tool: {kind: noop}, CASE [{result: {from: "SECRET"}}]}]',
    ],
)
def test_a_keychain_value_that_the_log_would_keep_is_reported(fields: str) -> None:
    words = {
        "SECRET": SECRET,
        "RULES": "spec: {policy: {rules: [{else: {then:",
        "CASE": "case: [{when: \"{{ event.name == 'call.done' }}\", then:",
    }
    for word, stands_for in words.items():
        fields = fields.replace(word, stands_for)
    assert_reports(KEYCHAIN + "{step: start, " + fields + "}\n")


@pytest.mark.parametrize(
    "fields",
    [
        'tool: {kind: http, url: "https://e.com", headers: {a: "{{ keychain.key }}"}}',
        'tool: {kind: python, code: pass, args: {a: "{{ keychain.key }}"}}',
        'tool: {kind: noop}, next: {arcs: [{step: end, args: {a: "{{ keychain.key is defined }}"}}]}',
        "tool: {kind: noop}, next: {arcs: [{step: end, args: {a: \"{{ keychain.key == 'x' }}\"}}]}",
        "tool: {kind: noop}, next: {arcs: [{step: end, when: \"{{ keychain.key == 'x' }}\"}]}",
    ],
)
def test_a_keychain_value_that_only_a_task_reads_is_not(fields: str) -> None:
    assert_reports(KEYCHAIN + "{step: start, " + fields + "}\n")
