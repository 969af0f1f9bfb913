"""`noetl credential --server`: each action is one request of the credential API, with the context's token."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from noetl.cli import main

TOKEN = "noetl_hidden"
CREDENTIAL: dict[str, Any] = {
    "id": "7",
    "name": "pg",
    "type": "postgres",
    "version": 3,
    "description": "",
    "tags": [],
    "meta": {},
    "key_id": "k1",
    "created_at": "2026-01-01T00:00:00.000000Z",
    "updated_at": "2026-01-01T00:00:00.000000Z",
}


class Api(ThreadingHTTPServer):
    """Answers everything with what it was told to, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: object = CREDENTIAL
        self.status = 200
        self.asked: list[tuple[str, str | None, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Api

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((f"{self.command} {self.path}", self.headers["Authorization"], body))
        content = json.dumps(self.server.answer).encode()
        self.send_response(self.server.status)
        kind = "application/json" if self.server.status < 400 else "application/problem+json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the library's words

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's word
        pass


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("NOETL_KEYS", "NOETL_KEY_FILE", "NOETL_SERVER", "NOETL_TOKEN", "NOETL_STORE"):
        monkeypatch.delenv(name, raising=False)
    server = Api()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TOKEN.encode())))
    assert main(["context", "add", "shop", "--server", server.url, "--token", "-"]) == 0
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("arguments", "answer", "asked"),
    [
        (
            ["set", "pg", "--type", "postgres", "--data", '{"password": "abcdef"}', "--tag", "a"],
            CREDENTIAL,
            (
                "POST /api/credentials",
                {
                    "name": "pg",
                    "type": "postgres",
                    "data": {"password": "abcdef"},
                    "description": "",
                    "tags": ["a"],
                    "meta": {},
                },
            ),
        ),
        (["show", "pg"], CREDENTIAL, ("GET /api/credentials/pg", None)),
        (
            ["show", "pg", "--include-data"],
            CREDENTIAL | {"data": {"password": "abcdef"}},
            ("GET /api/credentials/pg?include_data=true", None),
        ),
        (
            ["list", "--type", "postgres", "--search", "a b", "--limit", "5"],
            {"credentials": [CREDENTIAL], "after": None},
            ("GET /api/credentials?type=postgres&text=a+b&limit=5", None),
        ),
        (["delete", "pg"], CREDENTIAL, ("DELETE /api/credentials/pg", None)),
        (["rotate"], {"key_id": "k1", "rewrapped": 2}, ("POST /api/credentials/rotate", None)),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_each_action_is_one_request_with_the_token_of_the_context(
    api: Api, arguments: list[str], answer: object, asked: tuple[str, Any], tmp_path: Path
) -> None:
    api.answer = answer
    for place in (["--server", "shop"], ["--server", api.url]):
        assert main(["credential", *arguments, *place]) == 0
    assert main(["context", "use", "shop"]) == 0
    assert main(["credential", *arguments]) == 0
    assert api.asked == [(asked[0], f"Bearer {TOKEN}", asked[1])] * 3
    assert not (tmp_path / ".noetl").exists()


def test_what_the_server_refuses_is_told_in_its_words(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.status = 404
    api.answer = {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "code": "credential.unknown",
        "detail": "there is no credential `pg`",
    }
    assert main(["credential", "show", "pg", "--server", "shop"]) == 2
    assert "there is no credential `pg`" in capsys.readouterr().err


def test_a_key_is_not_made_here_for_a_server(api: Api, tmp_path: Path) -> None:
    assert main(["credential", "rotate", "--add-key", "--server", "shop"]) == 2
    assert api.asked == []
    assert not (tmp_path / "noetl" / "keys").exists()
