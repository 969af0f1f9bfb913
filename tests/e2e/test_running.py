"""`noetl run` and its kin through the real command: outcomes, exit codes, documents, looking afterwards."""

from __future__ import annotations

import json

import pytest

from tests.e2e.console import Console

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"
GREET = (
    HEAD
    + """\
metadata: {name: greet, path: demo/greet}
workload: {names: [ada, bob], greeting: hello}
workflow:
  - step: each
    loop: {in: "{{ workload.names }}", iterator: name}
    tool:
      - say:
          kind: python
          args: {name: "{{ name }}", greeting: "{{ workload.greeting }}"}
          code: |
            print("saying", name)
            result = f"{greeting} {name}"
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop}
"""
)
FAILING = (
    HEAD
    + """\
metadata: {name: failing}
workflow:
  - step: start
    tool:
      - boom:
          kind: shell
          cmds: ["echo about to fail >&2; exit 3"]
          spec:
            policy:
              rules:
                - {when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 2}}
                - else: {then: {do: continue}}
"""
)
LARGE = (
    HEAD
    + """\
metadata: {name: large}
workflow:
  - step: start
    tool: {kind: python, code: "result = {'text': 'x' * 200000}"}
"""
)
FIELDS = [
    "execution_id",
    "status",
    "playbook",
    "started_at",
    "finished_at",
    "duration_ms",
    "workload",
    "ctx",
    "vars",
    "steps",
    "result",
    "error",
]


def test_a_run_prints_what_happens_and_its_result(console: Console) -> None:
    shown = console.noetl("run", console.write("greet.yaml", GREET)).splitlines()
    assert shown[0].startswith("greet: execution ")
    assert shown[1] == "each: started"
    assert "each/say | saying ada" in shown
    assert any(line.startswith("each: done in ") and line.endswith(", 2/2") for line in shown)
    assert shown[-1].startswith("✓ greet completed after ")
    assert (console.folder / ".noetl" / "store.db").is_file()


def test_the_document_of_a_run_is_all_that_is_on_standard_output(console: Console) -> None:
    file = console.write("greet.yaml", GREET)
    done = console.finished("run", file, "--json", "--set", "greeting=hi", "--payload", '{"names": ["eve"]}')
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert list(document) == FIELDS
    assert document["playbook"] == {
        "name": "greet",
        "path": "demo/greet",
        "version": 1,
        "dialect": "canonical",
    }
    assert document["workload"] == {"names": ["eve"], "greeting": "hi"}
    assert list(document["steps"]) == ["each", "end"]
    assert list(document["steps"]["each"]) == ["status", "runs", "result", "error", "duration_ms"]
    assert document["steps"]["each"]["result"] == ["hi eve"]
    assert (document["status"], document["result"], document["error"]) == ("completed", None, None)


def test_the_file_of_events_is_the_log_in_order(console: Console) -> None:
    file = console.write("greet.yaml", GREET)
    for round_number in (1, 2):
        console.noetl("run", file, "-q", "--events", "log")
        lines = (console.folder / "log").read_text("utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        last = [event for event in events if event["execution_id"] == events[-1]["execution_id"]]
        assert [event["seq"] for event in last] == list(range(1, len(last) + 1))
        assert last[-1]["event_type"] == "playbook.processed"
        assert len(events) == round_number * len(last), "a second run is added to the file"
    assert console.data("events", events[-1]["execution_id"]) == last


def test_a_failure_is_told_with_its_place_in_the_playbook(console: Console) -> None:
    shown = console.noetl("run", console.write("f.yaml", FAILING), exit_code=1)
    assert "start/boom: attempt 2\n" in shown
    told = shown[shown.index("✗ failing failed after ") :].splitlines()
    assert told[1] == "  step start, task boom, attempt 2"
    assert told[2].startswith("  shell.exit: ")
    assert told[3] == "  f.yaml:7 |       - boom:"
    command = told[4].partition("look into it with: noetl ")[2].split()
    assert "step.failed" in console.noetl(*command)


def test_quiet_says_only_the_outcome(console: Console) -> None:
    shown = console.noetl("run", console.write("f.yaml", FAILING), "-q", exit_code=1)
    assert shown.startswith("✗ failing failed after ")


def test_a_missing_secret_is_in_the_log_and_nothing_runs(console: Console) -> None:
    text = GREET.replace("workload:", "keychain: [{name: NO_SUCH_TOKEN, kind: env}]\nworkload:")
    document = console.data("run", console.write("k.yaml", text), exit_code=1)
    assert document["error"]["kind"] == "keychain.unresolved"
    assert "NO_SUCH_TOKEN" in document["error"]["message"]
    assert document["steps"] == {}
    types = [event["event_type"] for event in console.data("events", document["execution_id"])]
    assert types == ["playbook.execution.requested", "playbook.request.evaluated", "playbook.processed"]


def test_an_invalid_playbook_is_a_usage_error_and_leaves_no_store(console: Console) -> None:
    file = console.write("bad.yaml", GREET.replace("loop:", "lop:"))
    assert "did you mean `loop`?" in console.refused("run", file)
    document = console.data("run", file, exit_code=2)
    assert list(document) == ["status", "diagnostics"]
    assert not (console.folder / ".noetl").exists()


def test_executions_can_be_looked_at_afterwards(console: Console) -> None:
    greet, failing = console.write("greet.yaml", GREET), console.write("f.yaml", FAILING)
    good = console.data("run", greet)["execution_id"]
    bad = console.data("run", failing, exit_code=1)["execution_id"]
    listed = console.data("list")["executions"]
    assert [row["execution_id"] for row in listed] == [bad, good], "the newest first"
    assert [row["execution_id"] for row in console.data("list", "--status", "failed")["executions"]] == [bad]
    assert [row["execution_id"] for row in console.data("list", "--path", "demo/greet")["executions"]] == [
        good
    ]
    first = console.data("list", "--limit", "1")
    assert first["before"] == bad
    assert [row["execution_id"] for row in console.data("list", "--before", bad)["executions"]] == [good]
    assert f"noetl list --before {bad}" in console.noetl("list", "--limit", "1")
    assert console.data("status", good)["status"] == "completed"
    status = console.noetl("status", bad)
    assert "failed after" in status
    assert "shell.exit" in status
    assert console.noetl("logs", good).splitlines() == [
        "each[0]/say | saying ada",
        "each[1]/say | saying bob",
    ]
    assert json.loads(console.noetl("result", good, "each")) == ["hello ada", "hello bob"]
    assert console.noetl("status", bad, "-f", exit_code=1).splitlines()[0].startswith("failing: execution ")


def test_events_can_be_chosen_and_called_by_their_v2_names(console: Console) -> None:
    good = console.data("run", console.write("greet.yaml", GREET))["execution_id"]
    assert {event["event_type"] for event in console.data("events", good, "--type", "task.done")} == {
        "task.done"
    }
    assert {event["step"] for event in console.data("events", good, "--step", "end")} == {"end"}
    words = [event["event_type"] for event in console.data("events", good, "--vocabulary", "v2")]
    assert "tool.processed" in words
    at = words.index("loop.finished")
    assert words[at + 1] == "step.finished", "a loop's end is the end of its step, too"
    assert not {"task.done", "loop.done", "step.done"} & set(words)
    followed = console.noetl("events", good, "-f", "--json").splitlines()
    assert json.loads(followed[-1])["event_type"] == "playbook.processed"


def test_a_stored_result_is_a_reference_in_the_document_and_whole_on_request(console: Console) -> None:
    document = console.data("run", console.write("large.yaml", LARGE))
    assert document["result"]["kind"] == "result_ref"
    assert document["steps"]["start"]["result"]["kind"] == "result_ref"
    assert json.loads(console.noetl("result", document["execution_id"])) == {"text": "x" * 200000}
    shown = console.noetl("run", "large.yaml", "-q")
    assert "stored; show it with: noetl result " in shown


def test_an_execution_that_failed_has_no_result(console: Console) -> None:
    document = console.data("run", console.write("failing.yaml", FAILING), exit_code=1)
    execution_id = document["execution_id"]
    assert f"execution {execution_id} has no result: it failed" in console.refused("result", execution_id)


def test_registered_playbooks_have_versions_and_run_by_path(console: Console) -> None:
    file = console.write("greet.yaml", GREET)
    assert console.noetl("register", file) == "demo/greet@1\n"
    assert console.noetl("register", file) == "demo/greet@1\n", "the same text keeps its version"
    console.write("greet.yaml", GREET.replace("hello", "good day"))
    assert console.noetl("register", ".") == "demo/greet@2\n"
    assert console.data("exec", "demo/greet")["steps"]["each"]["result"] == ["good day ada", "good day bob"]
    older = console.data("exec", "demo/greet@1")
    assert older["steps"]["each"]["result"] == ["hello ada", "hello bob"]
    assert older["playbook"]["version"] == 1
    assert console.data("run", "demo/greet@2")["playbook"]["version"] == 2
    assert [(row["path"], row["version"]) for row in console.data("catalog", "list")] == [("demo/greet", 2)]
    assert [row["version"] for row in console.data("catalog", "versions", "demo/greet")] == [2, 1]
    assert console.noetl("catalog", "show", "demo/greet@1") == GREET
    assert "has no version 9; the newest is 2" in console.refused("exec", "demo/greet@9")
    assert "no playbook `nobody` is registered" in console.refused("catalog", "show", "nobody")
    assert "there is no such file" in console.refused("run", "nobody")


def test_nothing_is_registered_if_one_playbook_is_invalid(console: Console) -> None:
    console.write("a.yaml", GREET)
    console.write("b.yaml", GREET.replace("loop:", "lop:"))
    done = console.finished("register", "a.yaml", "b.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert not (console.folder / ".noetl").exists()


@pytest.mark.parametrize(
    "command",
    [["status"], ["events"], ["logs"], ["result"], ["resume"], ["cancel"], ["pause"], ["signal", "NAME"]],
)
def test_an_execution_that_is_not_there_is_a_usage_error(console: Console, command: list[str]) -> None:
    verb, *rest = command
    assert "There is no database" in console.refused(verb, "1", *rest)
    console.noetl("run", console.write("greet.yaml", GREET), "-q")
    assert "there is no execution 1 in this store" in console.refused(verb, "1", *rest)


@pytest.mark.parametrize("verb", ["resume", "cancel", "pause"])
def test_an_execution_that_is_over_cannot_be_steered(console: Console, verb: str) -> None:
    done = console.data("run", console.write("greet.yaml", GREET))["execution_id"]
    assert "is over: it has completed" in console.refused(verb, done)


def test_the_store_is_where_the_environment_or_the_option_says(console: Console) -> None:
    file = console.write("greet.yaml", GREET)
    assert console.finished("run", file, NOETL_STORE="sqlite:///a.db").returncode == 0
    console.noetl("run", file, "--store", "sqlite:///b/c.db")
    assert not (console.folder / ".noetl").exists()
    assert len(console.data("list", "--store", "sqlite:///a.db")["executions"]) == 1
    assert len(console.data("list", "--store", "sqlite:///b/c.db")["executions"]) == 1


@pytest.mark.parametrize("levels", [150, 100_000])
def test_data_that_is_nested_too_deeply_is_a_usage_error(console: Console, levels: int) -> None:
    file = console.write("greet.yaml", GREET)
    console.write("deep.json", '{"a":' * levels + "1" + "}" * levels)
    assert "nested more than 100 levels" in console.refused("run", file, "--payload", "@deep.json")
    deep = "[" * min(levels, 50_000) + "]" * min(levels, 50_000)
    assert "nested more than 100 levels" in console.refused("signal", "1", "go", "--data", deep)
