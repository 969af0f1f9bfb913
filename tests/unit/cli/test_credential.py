"""`noetl credential` on a store: data goes in, and comes out only when it is asked for."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.cli import main
from noetl.cli.credential_lookup import credential_lookup
from noetl.errors import NoetlError
from noetl.secrets.encryption import MasterKey
from noetl.settings import Settings

SECRET = "sesame-street"
DATA = f'{{"host": "db.example.com", "password": "{SECRET}"}}'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NOETL_KEYS", "NOETL_KEY_FILE", "NOETL_SERVER", "NOETL_TOKEN", "NOETL_STORE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["credential", "rotate", "--add-key"]) == 0
    capsys.readouterr()
    return folder / "config" / "noetl" / "keys"


def given(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["credential", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_data_comes_from_standard_input_a_file_or_an_option_and_is_not_repeated(
    keys: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pg.json").write_text(DATA)
    for number, data in enumerate(([], ["--data", "-"], ["--data", "@pg.json"], ["--data", DATA])):
        given(monkeypatch, DATA)
        code, out, err = ran(capsys, "set", f"pg{number}", "--type", "postgres", *data)
        assert (code, out, err) == (0, f"credential pg{number}: version 1\n", "")
        shown = json.loads(ran(capsys, "show", f"pg{number}", "--include-data", "--json")[1])
        assert shown["data"]["password"] == SECRET
    assert SECRET.encode() not in (folder / ".noetl" / "store.db").read_bytes()


def test_show_hides_the_data_and_escapes_what_would_steer_the_terminal(
    keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meant = ["--description", "a\x1b[31mb", "--tag", "shop", "--tag", "prod", "--meta", "port=5432"]
    assert ran(capsys, "set", "pg", "--type", "postgres", "--data", DATA, *meant)[0] == 0
    code, out, _ = ran(capsys, "show", "pg")
    assert code == 0
    assert "data:        (hidden; --include-data shows it)" in out
    assert "tags:        shop, prod" in out
    assert 'meta:        {"port":5432}' in out
    assert "\x1b" not in out
    assert SECRET not in out
    assert SECRET not in ran(capsys, "show", "pg", "--json")[1] + ran(capsys, "list", "--json")[1]
    assert SECRET in ran(capsys, "show", "pg", "--include-data")[1]


def test_the_list_is_filtered_and_says_when_it_is_empty(
    keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no credentials" in ran(capsys, "list")[1]
    ran(capsys, "set", "pg", "--type", "postgres", "--data", DATA)
    ran(
        capsys, "set", "api", "--type", "bearer", "--data", '{"token": "abcdef"}', "--description", "the shop"
    )
    assert [row.split()[0] for row in ran(capsys, "list")[1].splitlines()] == ["NAME", "api", "pg"]
    assert [each["name"] for each in json.loads(ran(capsys, "list", "--type", "bearer", "--json")[1])] == [
        "api"
    ]
    assert [each["name"] for each in json.loads(ran(capsys, "list", "--search", "SHOP", "--json")[1])] == [
        "api"
    ]
    assert len(json.loads(ran(capsys, "list", "--limit", "1", "--json")[1])) == 1


def test_a_deleted_credential_is_gone(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys, "set", "pg", "--type", "postgres", "--data", DATA)
    assert ran(capsys, "delete", "pg")[:2] == (0, "credential pg deleted\n")
    assert ran(capsys, "show", "pg")[0] == 2
    assert ran(capsys, "delete", "pg") == (2, "", "noetl credential: there is no credential `pg`\n")


def test_without_a_master_key_nothing_is_kept_and_the_way_out_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ran(capsys, "set", "pg", "--type", "postgres", "--data", DATA)
    assert (code, out) == (2, "")
    assert "noetl credential rotate --add-key" in err
    assert not (folder / ".noetl").exists()


def test_rotation_makes_a_key_and_the_earlier_one_can_go(
    keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(capsys, "set", "pg", "--type", "postgres", "--data", DATA)
    code, out, err = ran(capsys, "rotate", "--add-key", "--json")
    assert code == 0
    assert json.loads(out)["rewrapped"] == 1
    assert str(keys) in err
    assert keys.stat().st_mode & 0o777 == 0o600
    lines = [line for line in keys.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == 2
    keys.write_text(lines[0] + "\n")
    assert SECRET in ran(capsys, "show", "pg", "--include-data")[1]


def test_what_cannot_be_opened_is_named_by_rotation(
    keys: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(capsys, "set", "pg", "--type", "postgres", "--data", DATA)
    monkeypatch.setenv("NOETL_KEYS", MasterKey.random().text())
    code, _, err = ran(capsys, "rotate")
    assert code == 1
    assert "pg cannot be opened" in err
    assert "not in the key ring" in ran(capsys, "show", "pg", "--include-data")[2]
    code, _, err = ran(capsys, "rotate", "--add-key")
    assert code == 2
    assert "NOETL_KEYS" in err


def test_a_key_in_a_variable_is_used_and_a_wrong_one_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOETL_KEYS", MasterKey.random().text())
    assert ran(capsys, "set", "pg", "--type", "postgres", "--data", DATA)[0] == 0
    monkeypatch.setenv("NOETL_KEYS", "my-password")
    code, _, err = ran(capsys, "show", "pg", "--include-data")
    assert code == 2
    assert "NOETL_KEYS" in err
    assert "my-password" not in err


@pytest.mark.parametrize(
    "wrong",
    [
        ["set", "pg"],
        ["set", "--type", "postgres"],
        ["set", "pg", "--type", "postgres", "--data", "sesame-street"],
        ["set", "pg", "--type", "postgres", "--data", '["sesame-street"]'],
        ["set", "pg", "--type", "postgres", "--data", '{"a": ' + "[" * 150 + "]" * 150 + "}"],
        ["set", "pg", "--type", "postgres", "--data", "@missing.json"],
        ["set", "1", "--type", "postgres", "--data", DATA],
        ["set", "pg", "--type", "postgres", "--data", DATA, "--meta", "x"],
        ["list", "pg"],
        ["list", "--data", DATA],
        ["show"],
        ["show", "pg", "--add-key"],
        ["rotate", "pg"],
        ["delete"],
        ["list", "--server", "ftp://x"],
    ],
)
def test_a_command_that_makes_no_sense_is_refused_without_repeating_secrets(
    keys: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ran(capsys, *wrong)
    assert (code, out) == (2, "")
    assert err.startswith("noetl credential: ")
    assert SECRET not in err


def test_a_keychain_finds_what_the_command_line_stored(
    keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(capsys, "set", "pg", "--type", "postgres", "--data", DATA)
    lookup = credential_lookup(Settings().store, Settings())
    assert asyncio.run(lookup("pg")) == json.loads(DATA)
    with pytest.raises(NoetlError, match="no credential `nobody`"):
        asyncio.run(lookup("nobody"))


def test_a_run_that_names_no_credential_does_not_pay_for_them() -> None:
    code = (
        "import sys; from noetl.cli.credential_lookup import credential_lookup; "
        "from noetl.settings import Settings; "
        "credential_lookup('sqlite:///a.db', Settings()); "
        "print(sorted({'cryptography', 'aiohttp', 'sqlite3'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
