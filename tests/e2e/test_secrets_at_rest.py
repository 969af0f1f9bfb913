"""A secret that templates carry into arguments, patches, variables, results and messages is never written."""

from __future__ import annotations

import pytest

from tests.e2e.console import Console

SECRET = "s3cr3t/Tok+envalue=="
HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: carries}
keychain: [{name: API_TOKEN, kind: env}]
"""
CANONICAL = (
    HEAD
    + """\
workflow:
  - step: start
    tool:
      kind: noop
      spec:
        policy:
          rules:
            - else:
                then:
                  do: continue
                  set_ctx: {token: "Bearer {{ keychain.API_TOKEN }}"}
                  set_iter: {token: "{{ keychain.API_TOKEN }}"}
    next: {arcs: [{step: each, args: {token: "{{ keychain.API_TOKEN }}"}}]}
  - step: each
    loop: {in: "{{ [keychain.API_TOKEN] }}", iterator: token}
    tool: {kind: noop}
    next: {arcs: [{step: call}]}
  - step: call
    tool: {kind: playbook, path: child, args: {token: "{{ keychain.API_TOKEN }}"}}
"""
)
V2 = (
    HEAD
    + """\
workflow:
  - step: start
    args: {token: "{{ keychain.API_TOKEN }}"}
    tool: {kind: noop}
    vars: {token: "{{ keychain.API_TOKEN }}"}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then:
          set: {ctx: {token: "{{ keychain.API_TOKEN }}"}}
          result: {from: "{{ [keychain.API_TOKEN] }}"}
          next: [{step: failing, args: {token: "{{ keychain.API_TOKEN }}"}}]
  - step: failing
    tool: {kind: noop}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then: {fail: {message: "refused {{ keychain.API_TOKEN }}"}}
"""
)
CHILD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child}
workload: {token: ""}
workflow:
  - step: start
    tool: {kind: python, args: {token: "{{ workload.token }}"}, code: "result = {'token': token}"}
"""


@pytest.mark.parametrize(("playbook", "exit_code"), [(CANONICAL, 0), (V2, 1)], ids=["canonical", "v2"])
def test_what_templates_make_of_a_secret_is_in_no_file_and_no_output(
    console: Console, playbook: str, exit_code: int
) -> None:
    console.noetl("register", console.write("child.yaml", CHILD))
    arguments = ("run", console.write("carries.yaml", playbook), "--events", "events.jsonl")
    done = console.finished(*arguments, API_TOKEN=SECRET)
    assert done.returncode == exit_code, (done.stdout, done.stderr)
    assert SECRET not in done.stdout + done.stderr
    written = [path for path in console.folder.rglob("*") if path.is_file()]
    assert "***" in (console.folder / "events.jsonl").read_text()
    assert [path.name for path in written if SECRET.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(("playbook", "exit_code"), [(CANONICAL, 0), (V2, 1)], ids=["canonical", "v2"])
def test_what_a_filter_makes_of_a_secret_is_in_no_file_and_no_output(
    console: Console, playbook: str, exit_code: int
) -> None:
    console.noetl("register", console.write("child.yaml", CHILD))
    changed = playbook.replace("keychain.API_TOKEN", "(keychain.API_TOKEN | upper)")
    arguments = ("run", console.write("carries.yaml", changed), "--events", "events.jsonl", "--json")
    done = console.finished(*arguments, API_TOKEN=SECRET)
    assert done.returncode == exit_code, (done.stdout, done.stderr)
    assert SECRET.upper() not in done.stdout + done.stderr
    written = [path for path in console.folder.rglob("*") if path.is_file()]
    assert [path.name for path in written if SECRET.upper().encode() in path.read_bytes()] == []


def test_a_secret_that_is_a_word_of_the_playbook_does_not_change_its_course(console: Console) -> None:
    playbook = CANONICAL.replace("each", "password")
    console.noetl("register", console.write("child.yaml", CHILD))
    done = console.finished("run", console.write("carries.yaml", playbook), "-q", API_TOKEN="password")
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_a_secret_that_is_too_short_is_refused_before_any_step(console: Console) -> None:
    arguments = ("run", console.write("carries.yaml", V2), "--events", "events.jsonl")
    done = console.finished(*arguments, API_TOKEN="q7z1")
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "secret.too_short: keychain.API_TOKEN" in done.stdout + done.stderr
    log = (console.folder / "events.jsonl").read_text()
    assert "step.scheduled" not in log
    assert "q7z1" not in log
