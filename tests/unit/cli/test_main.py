"""The command line itself: verbs, help, exit codes, and streams that misbehave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import noetl
from noetl.cli import GROUPS, VERBS, main
from noetl.cli import validate as validate_verb
from noetl.cli.environment import settings_from_environment
from noetl.errors import UsageError
from noetl.settings import Settings

SCRIPT = Path(sys.executable).with_name("noetl")
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\n"
VALID = HEAD + "workflow:\n  - {step: start, tool: {kind: noop}}\n"


@pytest.fixture
def playbook(tmp_path: Path) -> Path:
    file = tmp_path / "a.yaml"
    file.write_text(VALID)
    return file


def run_script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [SCRIPT, *arguments], capture_output=True, env=os.environ | environment, check=False, timeout=60
    )


def test_help_lists_every_verb_once_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert sorted(verb for _, verbs in GROUPS for verb in verbs) == sorted(VERBS)
    for verb, summary in VERBS.items():
        assert shown.count(f"  {verb:<10} {summary}\n") == 1
    assert "Example:" in shown


def test_nothing_at_all_shows_the_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: noetl VERB" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_own_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    if verb == "migrate":
        pytest.importorskip("noetl.playbook.migrate")
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"usage: noetl {verb}" in shown
    assert "example:\n  noetl" in shown


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"noetl {noetl.__version__}\n"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("validat", "did you mean `validate`?"), ("grpah", "did you mean `graph`?"), ("--hlep", "`--help`?")],
)
def test_a_mistyped_verb_gets_the_nearest_one_as_hint(
    typed: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"`{typed}`" in shown.err
    assert hint in shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate"],
        ["validate", "--nope", "x"],
        ["graph", "x", "--format", "png"],
        ["new"],
        ["explain", "a", "b"],
    ],
)
def test_a_command_line_that_cannot_be_understood_is_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"noetl {arguments[0]}: ")
    assert "usage: " in shown.err


# --- the environment ------------------------------------------------------------------------------


def test_the_environment_fills_the_settings() -> None:
    given = {"NOETL_MAX_PLAYBOOK_BYTES": "2_000_000", "NOETL_MAX_PLAYBOOK_DEPTH": "9", "NO_COLOR": "1"}
    assert settings_from_environment(given) == Settings(
        max_playbook_bytes=2_000_000, max_playbook_depth=9, colour=False
    )
    assert settings_from_environment({"NO_COLOR": "", "NOETL_MAX_PLAYBOOK_NODES": ""}) == Settings()


@pytest.mark.parametrize("value", ["many", "-1", "0", "1.5", "1e9", "٣", "9" * 30])
def test_a_bad_value_in_the_environment_names_its_variable(value: str) -> None:
    with pytest.raises(UsageError, match="NOETL_MAX_PLAYBOOK_NODES must be a whole number"):
        settings_from_environment({"NOETL_MAX_PLAYBOOK_NODES": value})


def test_networks_in_the_environment_are_lists_and_what_is_none_is_named() -> None:
    given = {"NOETL_DENY_ADDRESSES": "10.0.0.0/8, fd00::/8,", "NOETL_ALLOW_ADDRESSES": "10.1.2.3"}
    found = settings_from_environment(given)
    assert (found.deny_addresses, found.allow_addresses) == (("10.0.0.0/8", "fd00::/8"), ("10.1.2.3",))
    with pytest.raises(UsageError, match=r"NOETL_DENY_ADDRESSES is a list .* 'example\.com' is none"):
        settings_from_environment({"NOETL_DENY_ADDRESSES": "10.0.0.0/8,example.com"})


def test_a_bad_value_in_the_environment_is_a_usage_error(
    playbook: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_MAX_PLAYBOOK_DEPTH", "deep")
    assert main(["validate", str(playbook)]) == 2
    assert "NOETL_MAX_PLAYBOOK_DEPTH" in capsys.readouterr().err


def test_limits_from_the_environment_reach_the_reader(
    playbook: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_MAX_PLAYBOOK_BYTES", "10")
    assert main(["validate", str(playbook)]) == 1
    assert "error[yaml.too_large]" in capsys.readouterr().out


# --- interruptions and streams --------------------------------------------------------------------


def test_an_interruption_is_not_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(arguments: list[str], settings: Settings) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(validate_verb, "run", interrupted)
    assert main(["validate", "x"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("arguments", [("--help",), ("schema",)])
def test_a_reader_that_goes_away_is_not_a_traceback(arguments: tuple[str, ...]) -> None:
    with subprocess.Popen([SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""
    assert process.returncode == 141


@pytest.mark.parametrize("arguments", [("--help",), ("schema",)])
def test_output_that_cannot_be_written_is_not_a_traceback(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([SCRIPT, *arguments], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (2, b"noetl: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_good_as_dev_null(closed: str, playbook: Path) -> None:
    command = f'exec "$0" run "$1" --json {closed}'
    done = subprocess.run(
        ["sh", "-c", command, SCRIPT, playbook],
        cwd=playbook.parent,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b'"completed"' in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_a_stream_that_cannot_show_a_character_gets_its_escape(tmp_path: Path) -> None:
    file = tmp_path / "é.yaml"
    file.write_text(VALID.replace("{name: a}", "{name: grün}"), encoding="utf-8")
    shown = run_script("graph", str(file), PYTHONIOENCODING="ascii")
    assert shown.returncode == 0
    assert shown.stderr == b""
    assert b"gr\\xfcn (canonical, 1 step)" in shown.stdout


def test_the_installed_command_gives_the_exit_code(playbook: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("workflow: 3\n")
    assert run_script("validate", str(playbook)).returncode == 0
    assert run_script("validate", str(broken)).returncode == 1
    assert run_script("validate", str(tmp_path / "missing.yaml")).returncode == 2
    assert run_script("run", str(broken)).returncode == 2
    assert run_script("nonsense").returncode == 2
