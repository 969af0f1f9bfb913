"""Requests that mean harm, sent to a real server: each is refused in words, soon, and in little memory."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from noetl.cli.stack.nats_server import free_port
from noetl.cli.stack.probes import is_ready

MOST_SECONDS = 2.0
SLOW_SECONDS = 1.0
"""How long a request may take to arrive, of this server; the default is longer."""
MOST_GROWTH = 150 << 20
"""Of the server's memory, by everything in this file: a body may have ten megabytes, and is held twice."""
HEAD = "POST /api/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
workflow:
  - step: start
    tool: {kind: noop}
"""
"""Registered under the path that the bodies name, so that nothing but their own fault is refused."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    def is_problem(self) -> bool:
        found = json.loads(self.body)
        return (
            self.headers["content-type"] == "application/problem+json"
            and found["status"] == self.status
            and "." in found["code"]
            and "Traceback" not in self.body.decode()
        )


class Victim:
    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.process = process

    def memory(self) -> int:
        """The most it ever had, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10

    def send(self, *pieces: bytes, ends: bool = False) -> Answer:
        """Sends the pieces as they are, and reads until the server has said all of one answer."""
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as wire:
            try:
                for piece in pieces:
                    wire.sendall(piece)
                if ends:
                    wire.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has said what it thinks of the rest already
            return self._read(wire, began)

    def _read(self, wire: socket.socket, began: float) -> Answer:
        said = b""
        while True:
            head, mark, body = said.partition(b"\r\n\r\n")
            if mark:
                lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): text.strip() for name, _, text in (x.partition(":") for x in lines[1:])
                }
                if len(body) >= int(headers.get("content-length", "0")):
                    return Answer(int(lines[0].split()[1]), headers, body, time.monotonic() - began)
            piece = wire.recv(65536)
            assert piece, f"the server hung up after {said!r}"
            said += piece

    def post(self, path: str, body: bytes, *headers: str, content_type: str = "application/json") -> Answer:
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
        if content_type:
            lines.append(f"Content-Type: {content_type}")
        return self.send("\r\n".join([*lines, "", ""]).encode("latin-1"), body)

    def get(self, target: str, *headers: str) -> Answer:
        return self.send(
            "\r\n".join([f"GET {target} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode("latin-1")
        )


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("victim")
    port = free_port()
    words = ["server", "start", "--port", str(port), "--no-auth", "--request-seconds", str(SLOW_SECONDS)]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "noetl", *words, "--store", f"sqlite:///{folder}/store.db"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "NOETL_STATE": str(folder)},
        stderr=log,
    )
    try:
        until = time.monotonic() + 30
        while not is_ready(f"http://127.0.0.1:{port}"):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        made = Victim(port, process)
        source = json.dumps({"source": PLAYBOOK}).encode()
        assert made.post("/api/catalog", source).status == 201
        assert made.post("/api/executions", b'{"path":"p"}').status == 201
        before = made.memory()
        yield made
        assert process.poll() is None
        assert is_ready(f"http://127.0.0.1:{port}")
        assert made.memory() - before < MOST_GROWTH
        # A fault of the server's own would stand in its log, whatever it answered.
        faults = [line for line in (folder / "log").read_text().splitlines() if '"level": "error"' in line]
        assert not faults, faults[0][:2000]
    finally:
        process.kill()
        process.wait()
        log.close()


def refused(answer: Answer, *statuses: int) -> None:
    assert answer.status in (statuses or range(400, 500)), answer
    assert answer.is_problem(), answer
    assert answer.seconds < MOST_SECONDS, answer


def nested(depth: int) -> bytes:
    return b'{"path":"p","payload":{"x":' + b'{"a":' * depth + b"1" + b"}" * (depth + 2)


BODIES: dict[str, bytes] = {
    "deep_lists": b'{"path":"p","payload":{"x":' + b"[" * 4_000_000,
    "deep_mappings": nested(100_000),
    "a_little_too_deep": nested(199),
    "long_number": b'{"path":"p","version":' + b"9" * 1_000_000 + b"}",
    "no_number": b'{"path":"p","version":NaN}',
    "endless_number": b'{"path":"p","version":1e999}',
    "invalid_utf8": b'{"path":"p\xff\xfe"}',
    "overlong_utf8": b'{"path":"\xc0\xaf\xe0\x80\xaf"}',
    "encoded_surrogate": b'{"path":"\xed\xa0\x80"}',
    "lone_surrogate": b'{"path":"\\ud800"}',
    "lone_surrogate_below": b'{"path":"p","payload":{"x":["\\udfff"]}}',
    "nul_in_a_name": b'{"path":"a\\u0000b"}',
    "raw_nul": b'{"path":"a\0b"}',
    "duplicate_keys": b'{"path":"p","path":"q"}',
    "duplicate_keys_below": b'{"path":"p","payload":{"x":[{"a":1,"b":2,"a":3}]}}',
    "two_documents": b'{"path":"p"}{"path":"q"}',
    "a_prefix": b'{"path":',
    "byte_order_mark": b'\xef\xbb\xbf{"path":"p"}',
    "utf16": '{"path":"p"}'.encode("utf-16"),
    "a_list": b"[]",
    "a_text": b'"' + b"a" * 1_000_000 + b'"',
    "nothing": b"",
    "another_field": b'{"path":"p","__class__":"x","payload":{}}',
    "traversal": b'{"path":"../../../../etc/passwd"}',
    "a_long_path": b'{"path":"' + b"a" * 1_000_000 + b'"}',
}
LARGE = b'{"path":"p","payload":{' + b",".join(b'"k%d":{}' % n for n in range(50_000)) + b"}}"


def test_an_honest_body_is_taken(victim: Victim) -> None:
    for body in (nested(198), b'{"path":"p","payload":{"x":"' + b"[{" * 1000 + b'"}}', LARGE):
        answer = victim.post("/api/executions", body)
        assert answer.status == 201, answer
        assert answer.seconds < MOST_SECONDS


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused(victim: Victim, name: str) -> None:
    refused(victim.post("/api/executions", BODIES[name]))


@pytest.mark.parametrize(
    "path",
    ["/api/catalog", "/api/events", "/api/events/batch", "/api/commands/claim", "/api/commands/heartbeat",
     "/api/context/render", "/api/credentials", "/api/runtime", "/api/sessions", "/api/tokens"],
)  # fmt: skip
def test_every_kind_of_body_is_read_with_care(victim: Victim, path: str) -> None:
    for name in ("deep_lists", "invalid_utf8", "lone_surrogate", "two_documents", "a_list", "nothing"):
        refused(victim.post(path, BODIES[name]))
    refused(victim.post(path, b"{}", content_type="text/plain"), 415)
    refused(victim.post(path, b"a" * (1 << 10), "Content-Encoding: gzip"), 415)


def test_a_body_that_is_too_large_is_not_taken_in(victim: Victim) -> None:
    refused(victim.send(f"{HEAD}Content-Length: {1 << 40}\r\n\r\n".encode()), 413)
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    refused(victim.send(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode(), *[piece] * 200), 413)
    report = HEAD.replace("/api/executions", "/api/events/batch")
    refused(victim.send(f"{report}Content-Length: {65 << 20}\r\n\r\n".encode()), 413)


def test_a_compressed_body_is_not_unpacked(victim: Victim) -> None:
    bomb = gzip.compress(b'{"path":"' + b"a" * (20 << 20) + b'"}', 1)
    for coding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "GZIP"):
        refused(victim.post("/api/executions", bomb[:4096], f"Content-Encoding: {coding}"), 415)
    refused(victim.post("/api/executions", bomb, "Content-Encoding: gzip"), 415)


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
     "application/xml", "application/msgpack", "application/json+x", "a" * 1000,
     "application/json, text/plain",
     "*/*", ";", "\xff"],
)  # fmt: skip
def test_what_is_not_said_to_be_json_is_not_read_as_json(victim: Victim, content_type: str) -> None:
    refused(victim.post("/api/executions", b'{"path":"p"}', content_type=content_type), 400, 415)


def test_who_sends_slowly_is_told_so_and_does_not_keep_others_waiting(victim: Victim) -> None:
    began = time.monotonic()
    with (
        socket.create_connection(("127.0.0.1", victim.port), timeout=10) as half_head,
        socket.create_connection(("127.0.0.1", victim.port), timeout=10) as half_body,
        socket.create_connection(("127.0.0.1", victim.port), timeout=10) as half_chunk,
        socket.create_connection(("127.0.0.1", victim.port), timeout=10) as silent,
    ):
        half_head.sendall(b"GET /api/executions HTTP/1.1\r\nHost: localhost\r\nX-A")
        half_body.sendall(f'{HEAD}Content-Length: 100\r\n\r\n{{"pa'.encode())
        half_chunk.sendall(f'{HEAD}Transfer-Encoding: chunked\r\n\r\n4\r\n{{"pa'.encode())
        assert victim.get("/api/health").seconds < 0.5
        for wire in (half_head, half_body, half_chunk):
            answer = victim._read(wire, began)
            refused(answer._replace(seconds=answer.seconds - SLOW_SECONDS), 408)
            assert wire.recv(1) == b""
        assert silent.recv(1) == b""


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\nHost: localhost\r\nX Y: 1\r\n\r\n",
        b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n: 1\r\n\r\n",
        b"GET /api/he\0alth HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/health\r\nX-Injected: 1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/health HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GIVE /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
        b"\xff" * 100,
        HEAD.encode() + b"Content-Length: -1\r\n\r\n",
        HEAD.encode() + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        HEAD.encode() + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n",
    ],
)
def test_what_is_no_request_is_called_so(victim: Victim, raw: bytes) -> None:
    refused(victim.send(raw), 400)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (8 << 20),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 200_000,
    ],
)
def test_heads_without_an_end_are_not_kept(victim: Victim, raw: bytes) -> None:
    refused(victim.send(raw), 431)


def test_nothing_a_caller_sends_becomes_a_header_or_a_line_of_the_answer(victim: Victim) -> None:
    for target in (
        "/api/executions/1%0d%0aX-Injected:%201",
        "/api/%0d%0aX-Injected:%201",
        "/%0aX-Injected: 1",
    ):
        answer = victim.get(target.replace(" ", "%20"))
        refused(answer)
        assert "x-injected" not in answer.headers
    answer = victim.get("/api/health", "X-Request-Id: a%0d%0aX-Injected: 1")
    assert answer.status == 200
    assert "%" not in answer.headers["x-request-id"]
    odd = victim.post("/api/executions", b'{"path":"p"}', "Idempotency-Key: \xff\xfe", "traceparent: \x7f")
    refused(odd)


@pytest.mark.parametrize(
    "target",
    [
        "/api/../../../../etc/passwd",
        "/../../etc/passwd",
        "//etc/passwd",
        "/api/executions/..%2f..%2f..%2fetc%2fpasswd",
        "/api/executions/%2e%2e/%2e%2e/etc/passwd",
        "/api/results/..%2f..%2f..%2fetc%2fpasswd",
        "/api/results/noetl:%2f%2f1%2ffile%2f..%2f..%2f..%2fetc%2fpasswd",
        "/api/results/file:%2f%2f%2fetc%2fpasswd",
        "/api/catalog/sources/..%2f..%2fetc%2fpasswd",
        "/api/catalog/entry?path=..%2f..%2fetc%2fpasswd",
        "/api/catalog/entry?path=%00",
        "/api/vars/1/..%2f..%2fetc%2fpasswd",
        "/api/credentials/..%2f..%2fetc%2fpasswd",
        "/api/executions/%00",
        "/api/executions/1%00",
        "/api/executions/%ff%fe",
        "/api/executions/%ed%a0%80",
        "/api/executions/-1",
        "/api/executions/99999999999999999999",
        "/api/executions/" + "9" * 5000,
        "/api/executions/1'%3b%20DROP%20TABLE%20event%3b--",
        "/api/executions/\xd9\xa1",
        "/api/executions/1/events?after=99999999999999999999",
        "/api/executions/1/graph?format=..%2f..%2fx",
        "/api/executions/1/result?step=%00",
        "/api/executions?limit=99999999999999999999999999999999",
        "/api/executions?limit=-1",
        "/api/executions?limit=1e400",
        "/api/executions?limit=NaN",
        "/api/executions?limit=",
        "/api/executions?limit=0x10",
        "/api/executions?limit=" + "9" * 10_000,
        "/api/executions?since=-99999999999999999",
        "/api/executions?since=%00",
        "/api/executions?cursor=" + "A" * 5000,
        "/api/executions?cursor=%ff",
        "/api/commands?limit=4294967296",
        "/api/commands?execution_id=%00",
        "/api/commands?state=%00",
        "/api/sessions?user_id=9999999999999999999999",
        "/api/sessions?user_id=-1",
        "/api/runtime?kind=%2e%2e",
        "http://169.254.169.254/latest/meta-data",
        "*",
    ],
)  # fmt: skip
def test_a_path_or_a_number_that_makes_no_sense_finds_nothing(victim: Victim, target: str) -> None:
    answer = victim.get(target)
    refused(answer)
    assert b"root:" not in answer.body
