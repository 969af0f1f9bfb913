"""The verbs over one playbook: graph, explain, schema, new, migrate, run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noetl.cli import main
from noetl.cli.payload import payload
from noetl.cli.served import ServedStore
from noetl.errors import UsageError
from noetl.playbook.load import load
from noetl.settings import Settings
from noetl.store.protocol import CatalogEntry
from noetl.tools.registry import builtin_kinds
from tests.golden.compare import EXAMPLES, PLAYBOOKS

HELLO = str(EXAMPLES / "hello.yaml")
V1 = str(PLAYBOOKS / "v1_cities.yaml")
BROKEN = (
    "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\nworkflow:\n  - {step: start, tol: 1}\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def broken(tmp_path: Path) -> str:
    (tmp_path / "broken.yaml").write_text(BROKEN)
    return "broken.yaml"


# --- graph and explain ----------------------------------------------------------------------------


def test_text_is_what_graph_draws_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", HELLO]) == 0
    assert capsys.readouterr().out.startswith("hello (canonical, 1 step)\n\n▶ start\n")


@pytest.mark.parametrize(
    ("form", "begins"), [("mermaid", "flowchart TD\n"), ("dot", 'digraph "hello" {\n'), ("svg", "<svg ")]
)
def test_a_drawing_can_be_written_to_a_file(
    form: str, begins: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["graph", HELLO, "--format", form, "-o", "out"]) == 0
    assert capsys.readouterr().out == ""
    assert (folder / "out").read_text(encoding="utf-8").startswith(begins)


@pytest.mark.parametrize("verb", ["graph", "explain"])
def test_an_invalid_playbook_is_reported_instead(
    verb: str, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, broken]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "broken.yaml:5:19: error[key.unknown]" in shown.err


@pytest.mark.parametrize("verb", ["graph", "explain", "run"])
def test_a_missing_file_is_a_usage_error(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "missing.yaml"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"noetl {verb}: cannot read missing.yaml: there is no such file\n"


def test_a_file_that_cannot_be_written_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", HELLO, "-o", "no/such/folder"]) == 2
    assert "cannot write no/such/folder" in capsys.readouterr().err


def test_explain_tells_what_a_playbook_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", HELLO]) == 0
    assert "Runs Python code, given name = workload.name." in capsys.readouterr().out


# --- schema ---------------------------------------------------------------------------------------


def test_the_schema_is_printed_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["$schema"].startswith("https://json-schema.org/")
    assert main(["schema", "-o", "s.json"]) == 0
    assert (folder / "s.json").read_text(encoding="utf-8") == printed


# --- new ------------------------------------------------------------------------------------------


def test_the_starter_playbook_is_valid_and_has_no_warnings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "my_report"]) == 0
    assert "noetl validate my_report.yaml" in capsys.readouterr().out
    loaded = load((folder / "my_report.yaml").read_bytes(), builtin_kinds())
    assert loaded.diagnostics == ()
    assert loaded.dialect == "canonical"
    assert loaded.playbook is not None
    assert loaded.playbook.name == "my_report"
    assert main(["validate", "--strict", "my_report.yaml"]) == 0


def test_the_starter_shows_a_loop_a_retry_and_a_failure_route(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "x"]) == 0
    assert main(["explain", "x.yaml"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "For each `city` in `workload.cities`, up to 2 at once" in shown
    assert "try again, up to 3 attempts in all, waiting 100 ms, 200 ms" in shown
    assert "if the step failed, to `failed`" in shown


def test_a_file_that_is_there_is_not_overwritten_without_force(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.yaml").write_text("mine")
    assert main(["new", "a"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (folder / "a.yaml").read_text() == "mine"
    assert main(["new", "a", "--force"]) == 0
    assert "name: a\n" in (folder / "a.yaml").read_text()


def test_the_starter_goes_where_it_is_sent(folder: Path) -> None:
    (folder / "books").mkdir()
    assert main(["new", "a", "--dir", "books"]) == 0
    assert main(["new", "a", "-o", "other.yml"]) == 0
    assert (folder / "books" / "a.yaml").exists()
    assert (folder / "other.yml").exists()
    assert main(["new", "b", "--dir", "nowhere"]) == 2


@pytest.mark.parametrize("name", ["", "1a", "a b", "../a", "a/b", "a.yaml", "x" * 65, "é"])
def test_a_name_that_cannot_be_one_is_refused(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", name]) == 2
    assert "cannot be the name of a playbook" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


# --- migrate --------------------------------------------------------------------------------------


@pytest.fixture
def migrate() -> None:
    pytest.importorskip("noetl.playbook.migrate")


@pytest.mark.usefixtures("migrate")
def test_a_canonical_file_is_written_out_unchanged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", HELLO, "-o", "out.yaml"]) == 0
    assert "is canonical already" in capsys.readouterr().err
    assert (folder / "out.yaml").read_bytes() == Path(HELLO).read_bytes()
    assert main(["migrate", HELLO, "--check"]) == 0


@pytest.mark.usefixtures("migrate")
def test_a_check_writes_nothing_and_fails_for_another_dialect(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", V1, "--check", "-o", "out.yaml"]) == 1
    assert capsys.readouterr().out == ""
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("migrate")
def test_what_was_migrated_is_a_valid_canonical_playbook(folder: Path) -> None:
    (folder / "old.yaml").write_text(
        "# Kept.\napiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: old}\nworkflow:\n"
        "  - step: start\n    tool: {kind: noop}\n    next: [{step: end}]\n"
    )
    assert main(["migrate", "old.yaml", "-o", "fresh.yaml"]) == 0
    loaded = load((folder / "fresh.yaml").read_bytes(), builtin_kinds())
    assert loaded.valid
    assert loaded.dialect == "canonical"


@pytest.mark.usefixtures("migrate")
def test_an_invalid_playbook_is_not_migrated(broken: str, folder: Path) -> None:
    assert main(["migrate", broken, "-o", "out.yaml"]) == 1
    assert main(["migrate", "missing.yaml", "-o", "out.yaml"]) == 2
    assert not (folder / "out.yaml").exists()


# --- run ------------------------------------------------------------------------------------------


def test_an_invalid_playbook_is_not_run(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", broken]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error[key.unknown]" in shown.err
    assert main(["run", broken, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "invalid"
    assert {found["code"] for found in document["diagnostics"]} >= {"key.unknown"}


def test_a_dry_run_shows_the_first_step_resolved_and_makes_no_store(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", HELLO, "--set", "name=Ada", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "▶ start" in shown
    assert "begins with: start" in shown
    assert '"name": "Ada"' in shown.partition("begins with")[2]
    assert list(folder.iterdir()) == []


FIRST = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: first, path: demo/first}
workload: {names: [ada, bob]}
workflow:
  - step: start
    loop: {in: "{{ workload.names }}", iterator: name}
    tool:
      - greet: {kind: shell, cmds: "echo {{ name }}", stdin: "{{ workload.mising }}"}
      - again: {kind: shell, cmds: "echo {{ greet.stdout }}"}
    next:
      arcs:
        - {step: sorry, when: "{{ event.name == 'step.failed' }}"}
        - {step: end}
  - step: sorry
    tool: {kind: noop}
"""


def test_a_dry_run_with_json_is_one_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "first.yaml").write_text(FIRST)
    assert main(["run", "first.yaml", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "status": "dry_run",
        "playbook": {"name": "first", "path": "demo/first", "dialect": "canonical"},
        "entry": "start",
        "workload": {"names": ["ada", "bob"]},
        "steps": [
            {
                "step": "start",
                "arcs": [
                    {"step": "sorry", "route": "failure", "label": "on failure"},
                    {"step": "end", "route": "always", "label": "otherwise"},
                ],
            },
            {"step": "sorry", "arcs": []},
        ],
        "first_step": {
            "step": "start",
            "loop": {"iterator": "name", "in": ["ada", "bob"]},
            "tasks": [
                {
                    "label": "greet",
                    "kind": "shell",
                    "fields": {"cmds": "echo ada", "stdin": "{{ workload.mising }}"},
                },
                {"label": "again", "kind": "shell", "fields": {"cmds": "echo {{ greet.stdout }}"}},
            ],
        },
        "problems": [{"template": "{{ workload.mising }}", "message": "`workload.mising` is not defined"}],
    }


def test_a_dry_run_of_a_request_that_would_fail_says_so_in_its_document(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FIRST.replace("[ada, bob]", '"{{ workload.nobody }}"')
    (folder / "first.yaml").write_text(text)
    assert main(["run", "first.yaml", "--dry-run", "--json"]) == 1
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert (document["workload"], document["first_step"], shown.err) == (None, None, "")
    assert "nobody" in document["problems"][0]["message"]


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_a_dry_run_starts_nothing_on_a_server(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def entry(_store: ServedStore, path: str, version: int | None = None) -> CatalogEntry:
        return CatalogEntry(
            path=path,
            version=version or 1,
            name="first",
            dialect="canonical",
            digest="d",
            registered_at="2025-01-01T00:00:00Z",
            source=FIRST.encode(),
        )

    monkeypatch.setattr(ServedStore, "catalog_entry", entry)
    assert main([verb, "demo/first", "--dry-run", "--json", "--server", "http://127.0.0.1:1"]) == 0
    assert json.loads(capsys.readouterr().out)["entry"] == "start"


def test_a_version_that_is_not_registered_is_told_apart_from_a_missing_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["register", HELLO]) == 0
    capsys.readouterr()
    for verb in ("run", "exec"):
        assert main([verb, "hello@99"]) == 2
        assert capsys.readouterr().err == f"noetl {verb}: `hello` has no version 99; the newest is 1\n"


@pytest.mark.parametrize("verb", ["run", "resume", "list", "catalog"])
def test_a_server_that_is_not_there_is_named(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.cli.served.RETRY_SECONDS", 0.0)
    what = {"run": [HELLO], "resume": ["1"], "list": [], "catalog": ["list"]}[verb]
    assert main([verb, *what, "--server", "http://127.0.0.1:1"]) == 2
    assert "no server at http://127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["status", "1"],
        ["events", "1"],
        ["logs", "1"],
        ["result", "1"],
        ["cancel", "1"],
        ["catalog", "list"],
        ["register", HELLO],
        ["run", HELLO],
    ],
)
def test_a_store_on_postgresql_is_reached_through_its_server(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--store", "postgresql://noetl:a-secret@db/noetl"]) == 2
    told = capsys.readouterr()
    assert "through its server: name that with --server URL" in told.err
    assert "a-secret" not in told.err + told.out


def test_an_address_that_is_no_store_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", HELLO, "--store", "sqlite://"]) == 2
    assert "is no address of a SQLite database" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--set", "name"],
        ["--set", "=1"],
        ["--set", "a..b=1"],
        ["--set", "a=1", "--set", "a.b=2"],
        ["--payload", "{"],
        ["--payload", "[1]"],
        ["--payload", "@missing.json"],
    ],
)
def test_inputs_that_cannot_be_read_are_usage_errors(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", HELLO, *options]) == 2
    assert capsys.readouterr().err.startswith("noetl run: ")
    with pytest.raises(UsageError):
        payload(["name"], None, Settings())


def test_inputs_are_merged_in_the_order_they_are_given(folder: Path) -> None:
    (folder / "in.json").write_text('{"a": {"b": 1}, "c": "x"}')
    given = payload(["a.d=[1, 2]", "c=plain text", "e=true", "f==="], "@in.json", Settings())
    assert given == {"a": {"b": 1, "d": [1, 2]}, "c": "plain text", "e": True, "f": "=="}
