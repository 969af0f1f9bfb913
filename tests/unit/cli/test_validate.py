"""`noetl validate`: files, folders, output for people and for programs."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from noetl.cli import main
from noetl.cli.files import looks_like_a_playbook
from tests.golden.compare import assert_golden

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\n"
VALID = HEAD + "workflow:\n  - {step: start, tool: {kind: noop}}\n"
WARNED = VALID + "  - {step: lost, tool: {kind: noop}}\n"
BROKEN = (
    HEAD
    + "workflow:\n"
    + "  - step: start\n"
    + "    tool: {kind: noop}\n"
    + '    when: "{{ true }}"\n'
    + "    nxet: {arcs: [{step: end}]}\n"
    + "  - step: 東京\n"
    + "    loop: {in: [1, 2], iterator: x, spec: {mode: paralel}}\n"
    + '    tool: {kind: http, method: GET, url: "https://example.com/{{ 1 + }}"}\n'
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return tmp_path


def write(name: str, text: str | bytes) -> str:
    file = Path(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def as_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    return shown


def test_a_valid_file_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", write("a.yaml", VALID)]) == 0
    assert capsys.readouterr().out == "a.yaml: valid (canonical)\n"


def test_problems_are_shown_as_it_was_agreed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", write("a.yaml", VALID), write("b.yaml", BROKEN), write("c.yaml", WARNED)]) == 1
    assert_golden("validate/problems.txt", capsys.readouterr().out)


def test_each_problem_has_its_place_its_line_and_a_caret_under_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", write("a.yaml", VALID + "workbok: []\n")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a.yaml:6:1: error[key.unknown]: ")
    assert lines[1] == "   6 | workbok: []"
    assert lines[2] == "     | ^"
    assert lines[3] == "  hint: did you mean `workbook`?"
    assert lines[-1] == "1 error in 1 file"


def test_warnings_fail_only_when_strict(capsys: pytest.CaptureFixture[str]) -> None:
    write("a.yaml", WARNED)
    assert main(["validate", "a.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "warning[step.unreachable]" in shown
    assert "a.yaml: valid (canonical)\n1 warning in 1 file\n" in shown
    assert main(["validate", "--strict", "a.yaml"]) == 1
    assert "a.yaml: valid" not in capsys.readouterr().out
    assert main(["validate", "--strict", "--json", "a.yaml"]) == 1
    assert as_json(capsys)["valid"] is False
    assert main(["validate", "--json", "a.yaml"]) == 0
    assert as_json(capsys)["valid"] is True


def test_json_is_one_document_of_the_agreed_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--json", write("a.yaml", VALID), write("b.yaml", VALID + "é: 1\n")]) == 1
    document = as_json(capsys)
    assert document["valid"] is False
    assert document["files"][0] == {"file": "a.yaml", "dialect": "canonical", "diagnostics": []}
    (found,) = document["files"][1]["diagnostics"]
    assert list(found) == ["severity", "code", "message", "line", "column", "hint"]
    assert (found["severity"], found["code"], found["line"], found["column"]) == (
        "error",
        "key.unknown",
        6,
        1,
    )
    assert "`é`" in found["message"]


def test_a_file_that_is_no_yaml_has_no_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--json", write("a.yaml", "a: [1\n")]) == 1
    (file,) = as_json(capsys)["files"]
    assert file["dialect"] is None
    assert file["diagnostics"][0]["code"].startswith("yaml.")


# --- what cannot be read --------------------------------------------------------------------------


def test_a_missing_file_is_named_and_the_others_are_still_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "missing.yaml", write("a.yaml", VALID)]) == 2
    shown = capsys.readouterr()
    assert shown.err == "noetl validate: cannot read missing.yaml: there is no such file\n"
    assert "a.yaml: valid" in shown.out
    assert main(["validate", "--json", "missing.yaml", "a.yaml"]) == 2
    document = as_json(capsys)
    assert document["valid"] is False
    assert [(file["file"], file["dialect"]) for file in document["files"]] == [
        ("missing.yaml", None),
        ("a.yaml", "canonical"),
    ]


def test_an_unreadable_file_weighs_more_than_an_invalid_one() -> None:
    assert main(["validate", "missing.yaml", write("b.yaml", "a: 1\n")]) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    write("a.yaml", VALID)
    Path("a.yaml").chmod(0)
    assert main(["validate", "a.yaml"]) == 2
    assert "permission denied" in capsys.readouterr().err


def test_a_path_no_file_can_have_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "a\0b", "x" * 5000]) == 2
    assert capsys.readouterr().err.count("cannot read") == 2


def test_standard_input_is_read_for_a_dash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(VALID.encode())))
    assert main(["validate", "-"]) == 0
    assert capsys.readouterr().out == "<stdin>: valid (canonical)\n"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "yaml.empty"),
        (b"\xff\xfea\0", "yaml.encoding"),
        (b"a: \xe9\n", "yaml.encoding"),
        (b"- 1\n", "yaml.root"),
        (b"a: 1\na: 2\n", "yaml.duplicate_key"),
        (b"a: 1\n---\nb: 1\n", "yaml.documents"),
        (b"a:\n\tb: 1\n", "yaml.tab"),
        (b"[" * 200 + b"]" * 200, "yaml.too_deep"),
        (b"a: " + b"x" * 2_000_000, "yaml.too_large"),
    ],
)
def test_bad_input_is_a_diagnostic_and_never_an_exception(
    data: bytes, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", write("a.yaml", data)]) == 1
    assert f"error[{code}]" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["\ufeff" + VALID, VALID.replace("\n", "\r\n")])
def test_a_byte_order_mark_and_other_line_ends_are_accepted(text: str) -> None:
    assert main(["validate", write("a.yaml", text)]) == 0


# --- folders --------------------------------------------------------------------------------------


def test_a_folder_is_searched_for_playbooks(capsys: pytest.CaptureFixture[str]) -> None:
    write("books/b.yaml", VALID)
    write("books/a.yml", VALID)
    write("books/deep/c.YAML", VALID)
    write("books/.hidden/d.yaml", "broken")
    write("books/compose.yaml", "services: {}\n")
    write("books/notes.txt", VALID)
    assert main(["validate", "books"]) == 0
    shown = capsys.readouterr().out
    assert [line.partition(":")[0] for line in shown.splitlines()] == [
        os.path.join("books", "a.yml"),
        os.path.join("books", "b.yaml"),
        os.path.join("books", "deep", "c.YAML"),
        "3 files, all valid",
    ]


def test_a_pipe_in_a_folder_is_not_waited_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(folder / "pipe.yaml")
    assert main(["validate", "."]) == 2
    assert capsys.readouterr().err == "noetl validate: there is no playbook in .\n"


def test_a_folder_without_playbooks_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    write("books/compose.yaml", "services: {}\n")
    assert main(["validate", "books"]) == 2
    assert capsys.readouterr().err == "noetl validate: there is no playbook in books\n"


def test_a_file_that_is_named_twice_is_checked_once(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(os.path.join("books", "a.yaml"), VALID)
    assert main(["validate", path, "books"]) == 0
    assert capsys.readouterr().out.count("valid") == 1


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (VALID.encode(), True),
        (VALID.encode("utf-16"), True),
        (b"workflow: [\n", True),
        (b'{"kind": "Playbook"}', True),
        (b"apiVersion: noetl.io/v9\n", True),
        (b"# workflow: none\nsteps: []\n", False),
        (b"apiVersion: v1\nkind: Pod\n", False),
    ],
)
def test_what_looks_like_a_playbook(data: bytes, looks: bool) -> None:
    assert looks_like_a_playbook(data) is looks
