"""Requests that are written straight to a connection: the same on the wire, and as patient with servers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.records.outcome import Outcome
from noetl.tools import http
from noetl.tools.http_direct import MAX_BODY, DirectRequests
from tests.unit.tools.local_context import LocalContext, call

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"
BODY = b'{"a":1}'


class Listener:
    """A server that notes what it is sent and answers each request with the next of its texts.

    A text that is empty closes the connection instead.
    """

    def __init__(self, *texts: bytes) -> None:
        self.texts = list(texts)
        self.requests: list[tuple[int, bytes, bytes]] = []
        self.connections = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while self.texts:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].partition(b":")[2])) if length else b""
                self.requests.append((number, head, body))
                text = self.texts.pop(0)
                if not text:
                    break
                for piece in text.split(b"|"):
                    writer.write(piece)
                    await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    async def ask(self, folder: Path, *configs: dict[str, Any], action_id: str = "1/a/b/1") -> list[Outcome]:
        server = await asyncio.start_server(self.talk, "127.0.0.1", 0)
        outcomes = []
        async with server, LocalContext(folder) as context:
            address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x?y=%C3%A9"
            for config in configs:
                made = msgspec.structs.replace(call("http", {"url": address} | config), action_id=action_id)
                outcomes.append(await http.run(made, context))
        return outcomes


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"method": "HEAD"},
        {"method": "OPTIONS", "headers": {"Accept": "text/csv", "X-Two": ["a", "b"]}},
        {"headers": {"Host": "example.org", "User-Agent": "mine"}},
        {"auth": {"token": "t"}, "params": {"page": 2}},
        {"method": "POST", "body": {"text": "é"}},
        {"method": "DELETE", "body": [1]},
    ],
)
def test_a_request_is_the_same_on_the_wire_as_the_client_library_would_send_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    answer = HEAD if config.get("method") == "HEAD" else HEAD + BODY
    heads = []
    for directly in (True, False):
        listener = Listener(answer)
        if not directly:
            monkeypatch.setattr(DirectRequests, "can_send", staticmethod(lambda _: False))
        (outcome,) = asyncio.run(listener.ask(tmp_path, config))
        assert outcome.status == "ok", outcome
        ((_, head, body),) = listener.requests
        first, *lines = head.strip().split(b"\r\n")
        lines = [line for line in lines if not line.lower().startswith(b"host: 127.0.0.1")]
        heads.append((first, sorted(lines), body))
    assert heads[0] == heads[1]


def test_a_read_goes_out_again_where_the_kept_connection_was_closed(tmp_path: Path) -> None:
    listener = Listener(HEAD + BODY, b"", HEAD + BODY)
    outcomes = asyncio.run(listener.ask(tmp_path, {}, {}))
    assert [outcome.status for outcome in outcomes] == ["ok", "ok"]
    assert [number for number, _, _ in listener.requests] == [1, 1, 2]


def test_a_write_does_not_go_out_again_by_itself(tmp_path: Path) -> None:
    listener = Listener(HEAD + BODY, b"", HEAD + BODY)
    _, outcome = asyncio.run(listener.ask(tmp_path, {}, {"method": "POST", "body": {"a": 1}}))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("http.connect", True)
    assert len(listener.requests) == 2


def test_heads_that_only_announce_a_response_are_passed_over(tmp_path: Path) -> None:
    announced = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n|HTTP/1.1 102 Processing\r\n\r\n|"
    (outcome,) = asyncio.run(Listener(announced + HEAD + BODY).ask(tmp_path, {}))
    assert (outcome.result, outcome.groups["http"]["status"]) == ({"a": 1}, 200)


def test_a_response_in_pieces_is_put_together_and_its_connection_kept(tmp_path: Path) -> None:
    listener = Listener(HEAD[:20] + b"|" + HEAD[20:] + b"|" + BODY[:3] + b"|" + BODY[3:], HEAD + BODY)
    outcomes = asyncio.run(listener.ask(tmp_path, {}, {}))
    assert [outcome.result for outcome in outcomes] == [{"a": 1}, {"a": 1}]
    assert listener.connections == 1


def test_what_follows_a_response_unasked_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    listener = Listener(HEAD + BODY + HEAD + b'{"b":2}', HEAD + BODY)
    outcomes = asyncio.run(listener.ask(tmp_path, {}, {}))
    assert [outcome.result for outcome in outcomes] == [{"a": 1}, {"a": 1}]
    assert listener.connections == 2


@pytest.mark.parametrize("size", [10, MAX_BODY - 2, MAX_BODY + 1])
def test_a_json_body_of_any_size_arrives(tmp_path: Path, size: int) -> None:
    listener = Listener(HEAD + BODY)
    (outcome,) = asyncio.run(listener.ask(tmp_path, {"method": "PUT", "body": ["x" * size]}))
    assert outcome.status == "ok"
    assert listener.requests[0][2] == b'["' + b"x" * size + b'"]'


def test_no_value_breaks_out_of_its_header_line(tmp_path: Path) -> None:
    listener = Listener(HEAD + BODY)
    config = {"method": "POST", "body": {"a": 1}}
    (outcome,) = asyncio.run(listener.ask(tmp_path, config, action_id="1\r\nX-Other: 2"))
    assert outcome.error is not None
    assert outcome.error.kind == "config.invalid"
    assert listener.requests == []
