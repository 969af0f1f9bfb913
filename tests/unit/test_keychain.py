"""How a playbook's keychain is resolved before its workflow starts."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from noetl.cli.outgoing import token_fetcher
from noetl.playbook.model import KeychainEntry
from noetl.secrets.keychain import KeychainError, Resolver
from noetl.secrets.redaction import MASK, Redactor, SecretTooShortError
from noetl.settings import Settings
from noetl.template import Template


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class TokenEndpoint(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), TokenHandler)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.status = 200
        self.body: object = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"


class TokenHandler(BaseHTTPRequestHandler):
    server: TokenEndpoint

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append((self.headers.get("Authorization", ""), form))
        answer = self.server.body or {"access_token": f"token-{len(self.server.asked)}", "expires_in": 120}
        body = json.dumps(answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the server's own word
        pass


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    server = TokenEndpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def entry(name, kind, **fields):
    return KeychainEntry(name=name, kind=kind, fields=fields)


def resolve(tmp_path, *entries, environment=None, workload=None, clock=None, settings=None):
    resolver = Resolver(environment or {}, tmp_path, clock or Clock(), token_fetcher(settings or Settings()))
    return asyncio.run(resolver.resolve(entries, workload or {}))


def test_a_variable_is_named_by_the_entry_or_by_var(tmp_path):
    environment = {"TOKEN": "from-token", "OTHER": "from-other"}
    found = resolve(tmp_path, entry("TOKEN", "env"), entry("x", "env", var="OTHER"), environment=environment)
    assert found == {"TOKEN": "from-token", "x": "from-other"}


def test_a_missing_variable_is_named_in_the_error(tmp_path):
    with pytest.raises(KeychainError, match="`TOKEN`"):
        resolve(tmp_path, entry("TOKEN", "env"))


def test_a_file_is_read_without_its_line_end(tmp_path):
    (tmp_path / "secret.txt").write_text("hidden-value\n")
    assert resolve(tmp_path, entry("s", "file", path="secret.txt")) == {"s": "hidden-value"}
    with pytest.raises(KeychainError, match="`gone`"):
        resolve(tmp_path, entry("gone", "file"))


def test_a_server_reads_files_below_its_folder_only(tmp_path):
    inside, outside, keys = tmp_path / "files", tmp_path / "outside", tmp_path / "files" / "keys"
    inside.mkdir()
    (inside / "password").write_text("correct horse\n")
    outside.write_text("not for playbooks")
    keys.write_text("the master keys")
    (inside / "link").symlink_to(outside)
    (inside / "hard").hardlink_to(keys)
    resolver = Resolver({}, inside, Clock(), confined=True, hidden=keys)

    def read(path):
        entries = (KeychainEntry(name="secret", kind="file", fields={"path": str(path)}),)
        return asyncio.run(resolver.resolve(entries, {}))["secret"]

    assert read("password") == read(inside / "password") == "correct horse"
    for path in ("../outside", outside, "link", "a/../../outside"):
        with pytest.raises(KeychainError, match=r"`secret`: .* is not below the folder"):
            read(path)
    for path in ("keys", "hard", keys):
        with pytest.raises(KeychainError, match="the file of the master keys is nobody's"):
            read(path)
    for path in ("gone", "nul\0", "."):
        with pytest.raises(KeychainError, match="its file cannot be read"):
            read(path)


def test_a_bearer_may_be_made_from_an_earlier_entry(tmp_path):
    made = entry("api", "bearer", token=Template("{{ keychain.TOKEN }}"))
    assert resolve(tmp_path, entry("TOKEN", "env"), made, environment={"TOKEN": "abcdef"})["api"] == "abcdef"


def oauth(endpoint, **fields):
    return entry(
        "api",
        "oauth2",
        token_url=endpoint.url,
        client_id="me",
        client_secret="hidden",
        scope="read",
        **fields,
    )


def test_a_token_is_asked_for_by_client_credentials(tmp_path, endpoint):
    assert resolve(tmp_path, oauth(endpoint)) == {"api": "token-1"}
    authorization, form = endpoint.asked[0]
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me:hidden"
    assert form == {"grant_type": ["client_credentials"], "scope": ["read"]}


def test_the_client_may_identify_itself_in_the_body(tmp_path, endpoint):
    resolve(tmp_path, oauth(endpoint, client_auth="body"))
    authorization, form = endpoint.asked[0]
    assert authorization == ""
    assert form["client_secret"] == ["hidden"]


def test_a_token_is_kept_until_shortly_before_it_expires(tmp_path, endpoint):
    clock = Clock()
    resolver = Resolver({}, tmp_path, clock, token_fetcher(Settings()))

    async def ask() -> list[str]:
        found = []
        for passed in (0, 60, 60):
            clock.at += passed
            found.append((await resolver.resolve((oauth(endpoint),), {}))["api"])
        return found

    assert asyncio.run(ask()) == ["token-1", "token-1", "token-2"]


@pytest.mark.parametrize(
    ("status", "body", "told"), [(401, {}, "401"), (200, {"token": "x"}, "access_token")]
)
def test_an_endpoint_that_gives_no_token_fails_the_entry_by_name(tmp_path, endpoint, status, body, told):
    endpoint.status, endpoint.body = status, body or {"error": "no"}
    with pytest.raises(KeychainError, match=f"`api`.*{told}"):
        resolve(tmp_path, oauth(endpoint))


def test_an_endpoint_that_cannot_be_reached_fails_without_showing_the_secret(tmp_path):
    unreachable = entry(
        "api",
        "oauth2",
        token_url="http://127.0.0.1:9/token?key=hidden",
        client_id="me",
        client_secret="hidden",
    )
    with pytest.raises(KeychainError, match="cannot be asked") as caught:
        resolve(tmp_path, unreachable)
    assert "hidden" not in caught.value.message


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:169.254.169.254]", "0.0.0.0"])
def test_no_keychain_asks_an_address_that_tasks_may_not_connect_to(tmp_path, host):
    metadata = entry(
        "api", "oauth2", token_url=f"http://{host}/token", client_id="me", client_secret="hidden"
    )
    with pytest.raises(KeychainError, match=r"`api`: .* an address that tasks may not connect to"):
        resolve(tmp_path, metadata)


def test_an_operator_says_which_addresses_keychains_may_ask(tmp_path, endpoint):
    closed = Settings(deny_addresses=("127.0.0.0/8",))
    with pytest.raises(KeychainError, match="an address that tasks may not connect to"):
        resolve(tmp_path, oauth(endpoint), settings=closed)
    assert endpoint.asked == []
    opened = closed._replace(allow_addresses=("127.0.0.1/32",))
    assert resolve(tmp_path, oauth(endpoint), settings=opened) == {"api": "token-1"}


def test_an_endpoint_that_answers_without_an_end_is_given_up(tmp_path, endpoint):
    endpoint.body = {"access_token": "x" * (2 << 20)}
    with pytest.raises(KeychainError, match=r"`api`: .* more than 1048576 bytes"):
        resolve(tmp_path, oauth(endpoint))


SECRET = "s3cret/zebra+417"


@pytest.mark.parametrize(
    "text",
    [
        f"plain {SECRET} text",
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(b"user:" + SECRET.encode() + b":rest").decode(),
        base64.urlsafe_b64encode(b"x" + SECRET.encode()).decode(),
        "https://host/?q=s3cret%2Fzebra%2B417",
    ],
)
def test_a_secret_is_taken_out_plain_and_encoded(text):
    redactor = Redactor()
    redactor.register(SECRET)
    redacted = redactor.text(text)
    assert MASK in redacted
    assert "zebra" not in redacted
    for shift in range(3):
        inner = base64.b64encode(b"\0" * shift + SECRET.encode()).decode()[4:-4]
        assert inner not in redacted


def test_a_secret_inside_data_is_taken_out_of_keys_and_values():
    redactor = Redactor()
    redactor.register({"password": SECRET, "list": ["another-secret"]})
    assert redactor.data({SECRET: ["another-secret", 5, None]}) == {MASK: [MASK, 5, None]}


def test_a_secret_that_is_too_short_is_refused_by_name():
    with pytest.raises(SecretTooShortError, match=r"keychain\.pin"):
        Redactor().register("1234", "keychain.pin")
