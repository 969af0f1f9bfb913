"""Keychain values on their way into what the log keeps."""

from __future__ import annotations

import pytest

from tests.unit.playbook.reports import HEAD, assert_reports, loaded, marked, only, reports

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


SHOWN = "{{ ‹secret.shown›keychain.key }}"
CHOSEN = "{{ 1 if keychain.key is undefined else ‹secret.shown›keychain.key }}"
SCRIPT = "kind: script, source: a.py"
WAITED = "case: [{when: \"{{ event.name == 'call.done' }}\", then:"


@pytest.mark.parametrize(
    "fields",
    [
        f'tool: {{{SCRIPT}, arguments: ["{SHOWN}"]}}',
        f'tool: {{{SCRIPT}, arguments: [-u, "--password={SHOWN}"]}}',
        f'tool: {{{SCRIPT}, arguments: "{{{{ [‹secret.shown›keychain.key] }}}}"}}',
        f'tool: {{{SCRIPT}, interpreter: [python3, "{SHOWN}"]}}',
        f"tool: {{{SCRIPT}, arguments: [\"{{{{ ‹secret.shown›keychain.key | default('') }}}}\"]}}",
        f'tool: {{{SCRIPT}, arguments: ["{CHOSEN}"]}}',
        f'tool: [{{b: {{loop: {{in: [1], iterator: n}}, tool: {{{SCRIPT}, arguments: ["{SHOWN}"]}}}}}}]',
        f'tool: {{kind: wait, signal: "paid-{SHOWN}"}}',
        f'tool: {{{SCRIPT}}}, {WAITED} [{{call: {{arguments: ["{SHOWN}"]}}}}]}}]',
        f'tool: {{{SCRIPT}, env: {{A: "{{{{ ‹secret.environment›keychain.key }}}}"}}}}',
        'tool: {kind: shell, cmds: env, env: {A: "{{ ‹secret.environment›keychain.key }}"}}',
    ],
)
def test_a_keychain_value_that_others_on_the_machine_could_read_is_reported(fields: str) -> None:
    assert_reports(KEYCHAIN + "{step: start, " + fields + "}\n")


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: noetl.io/v1\nkind: Playbook\nname: demo\npath: p\n"
        "keychain: [{name: key, kind: env}]\nworkflow: [{step: start, call: {task: t}}]\n"
        f'workbook: [{{task: t, type: script, source: a.py, arguments: ["{SHOWN}"]}}]\n',
        "metadata: {name: demo}\nkeychain: [{name: key, kind: env}]\nworkflow:\n"
        f'  - {{step: start, tool: {{{SCRIPT}, arguments: ["{SHOWN}"]}}}}\n',
    ],
    ids=["v1", "canonical"],
)
def test_what_others_could_read_is_found_in_every_dialect(text: str) -> None:
    clean, expected = marked(text)
    found = [each for each in reports(loaded(clean).diagnostics) if each[0] == "secret.shown"]
    assert found == expected


def test_a_hint_says_how_a_secret_reaches_a_script() -> None:
    found = only(f'{KEYCHAIN}{{step: start, tool: {{{SCRIPT}, arguments: ["{SHOWN}"]}}}}\n')
    assert found.severity == "error"
    assert "`keychain.key` goes into the command line of a program" in found.message
    assert "`auth`" in (found.hint or "")
    assert "NOETL_AUTH" in (found.hint or "")


@pytest.mark.parametrize(
    "fields",
    [
        f'tool: {{{SCRIPT}, auth: "{{{{ keychain.key }}}}", args: {{a: "{{{{ keychain.key }}}}"}}}}',
        f'tool: {{{SCRIPT}, stdin: "{{{{ keychain.key }}}}"}}',
        f'tool: {{{SCRIPT}, arguments: ["{{{{ keychain.key is defined }}}}"]}}',
        f"tool: {{{SCRIPT}, arguments: [\"{{{{ '-v' if keychain.key is defined else '-q' }}}}\"]}}",
    ],
)
def test_a_keychain_value_that_reaches_a_script_unseen_is_not_reported(fields: str) -> None:
    assert_reports(KEYCHAIN + "{step: start, " + fields + "}\n")
