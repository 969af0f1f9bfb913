"""`noetl context`: servers by name, with tokens that stay in a private file."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from noetl.cli import main
from noetl.cli.contexts import Server, chosen_server
from noetl.errors import UsageError
from noetl.settings import Settings

TOKEN = "noetl_hidden"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{TOKEN}\n".encode())))
    return tmp_path / "noetl" / "contexts.json"


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["context", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def chosen(
    folder: Path, given: str | None = None, store: str | None = None, **settings: str
) -> Server | None:
    return chosen_server(given, store, Settings(**settings), {"XDG_CONFIG_HOME": str(folder)})  # type: ignore[arg-type]


def test_a_context_keeps_its_token_to_itself(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, "add", "shop", "--server", "https://noetl.example.com/", "--token", "-")
    assert (code, err) == (0, "")
    said = out + ran(capsys, "list")[1] + ran(capsys, "list", "--json")[1]
    assert TOKEN not in said
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["servers"]["shop"] == {
        "url": "https://noetl.example.com",
        "token": TOKEN,
    }
    assert TOKEN not in repr(chosen(file.parent.parent, "shop"))


def test_the_context_in_use_is_marked_and_local_is_always_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "list")[1].splitlines()[1].split()[:2] == ["*", "local"]
    ran(capsys, "add", "shop", "--server", "http://127.0.0.1:8082")
    assert ran(capsys, "use", "shop")[0] == 0
    shown = ran(capsys, "list")[1].splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["local", "*"]
    assert json.loads(ran(capsys, "list", "--json")[1])["current"] == "shop"
    assert ran(capsys, "use", "local")[0] == 0
    assert json.loads(ran(capsys, "list", "--json")[1])["current"] == "local"


def test_a_command_goes_where_it_is_told_then_to_the_setting_then_to_the_context_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen(tmp_path) is None
    ran(capsys, "add", "shop", "--server", "https://shop.example.com", "--token", "-")
    assert chosen(tmp_path) is None
    ran(capsys, "use", "shop")
    shop = Server(url="https://shop.example.com", token=TOKEN)
    assert chosen(tmp_path) == shop
    assert chosen(tmp_path, store="sqlite:///a.db") is None
    assert chosen(tmp_path, "shop", "sqlite:///a.db") == shop
    assert chosen(tmp_path, "https://shop.example.com/") == shop
    assert chosen(tmp_path, "http://other:1") == Server(url="http://other:1")
    assert chosen(tmp_path, server="http://other:1", token="given") == Server(
        url="http://other:1", token="given"
    )
    assert chosen(tmp_path, "shop", token="given") == Server(url=shop.url, token="given")
    with pytest.raises(UsageError):
        chosen(tmp_path, "nowhere")
    assert chosen_server(None, None, Settings(), {}) is None


def test_a_context_may_have_the_addresses_of_several_replicas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(capsys, "add", "shop", "--server", "http://a:1/, http://b:2", "--token", "-")
    assert chosen(tmp_path, "shop") == Server(url="http://a:1,http://b:2", token=TOKEN)
    assert chosen(tmp_path, "http://a:1,http://c") == Server(url="http://a:1,http://c")
    with pytest.raises(UsageError, match="ftp"):
        chosen(tmp_path, "http://a:1,ftp://b")


@pytest.mark.parametrize(
    "wrong",
    [
        ["add"],
        ["add", "shop"],
        ["add", "local", "--server", "http://a"],
        ["add", "a b", "--server", "http://a"],
        ["add", "shop", "--server", "shop.example.com"],
        ["add", "shop", "--server", "http://a:port"],
        ["add", "shop", "--server", "http://me:hidden@a"],
        ["add", "shop", "--server", "http://a", "--token", TOKEN],
        ["add", "shop", "--server", "http://a", "--token", "@missing"],
        ["use"],
        ["use", "nobody"],
        ["use", "local", "--server", "http://a"],
        ["list", "shop"],
    ],
)
def test_what_makes_no_sense_is_refused_and_writes_nothing(
    file: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ran(capsys, *wrong)
    assert (code, out) == (2, "")
    assert err.startswith("noetl context: ")
    assert not file.exists()


def test_an_empty_token_is_none(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("", "\n", "two words", "é"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert ran(capsys, "add", "shop", "--server", "http://a", "--token", "-")[0] == 2
    assert not file.exists()


def test_a_file_that_others_can_read_or_nobody_can_understand_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(capsys, "add", "shop", "--server", "http://a", "--token", "-")
    file.chmod(0o644)
    code, _, err = ran(capsys, "list")
    assert code == 2
    assert "chmod 600" in err
    file.chmod(0o600)
    file.write_text("{")
    code, _, err = ran(capsys, "list")
    assert code == 2
    assert "cannot be understood" in err
