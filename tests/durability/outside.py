"""The world outside an execution: an HTTP server that tells what was asked of it, call by call.

A call is known by the action and the attempt it was made for, so that a repetition is seen as one. What
is answered depends on the request alone, never on how often it came: a repeated call gets the same answer.
Tasks that run code write a line into a journal instead. Nothing here knows the engine.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

ANSWER_SECONDS = 0.02
"""How long an answer takes: so long that calls are under way at most moments."""
PATIENCE_SECONDS = 60.0


class Call(NamedTuple):
    action: str
    attempt: int


class Outside:
    """Counts the calls of one life of the process after another."""

    def __init__(self, server: Server, journal: Path) -> None:
        self._server = server
        self._journal = journal
        self._journal.touch()
        self._told = 0
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.journal = str(journal)
        server.calls = []

    def wait_for_calls(self, number: int) -> None:
        """Waits until so many calls have come in this life."""
        with self._server.changed:
            came = self._server.changed.wait_for(lambda: len(self._server.calls) >= number, PATIENCE_SECONDS)
        assert came, f"call {number} was never made"

    def calls_of_this_life(self) -> Counter[Call]:
        """What was called since this was asked last; only to be asked when the caller has ended."""
        self._server.settle()
        calls, self._server.calls = self._server.calls, []
        lines = self._journal.read_text().splitlines()
        new, self._told = lines[self._told :], len(lines)
        for line in new:
            action, attempt = line.split()
            calls.append(Call(action, int(attempt)))
        return Counter(calls)


@contextmanager
def outside_server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls: list[Call] = []
        self.closing = threading.Event()
        self._connections = 0
        self.changed = threading.Condition()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.changed:
            self._connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self.changed:
            self._connections -= 1
            self.changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed breaks its connection: nothing to tell of."""

    def settle(self) -> None:
        """Waits until everything a killed caller had sent is counted: connections are accepted in order."""
        with socket.create_connection(self.server_address[:2]) as last:  # type: ignore[arg-type]
            last.sendall(b"GET /barrier HTTP/1.0\r\n\r\n")
            while last.recv(1024):
                pass
        with self.changed:
            settled = self.changed.wait_for(lambda: self._connections == 0, PATIENCE_SECONDS)
        assert settled, "a connection of the killed process is still open"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._reply(200, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        action, attempt = self.headers["Idempotency-Key"], int(self.headers["X-Attempt"])
        with self.server.changed:
            self.server.calls.append(Call(action, attempt))
            self.server.changed.notify_all()
        self.server.closing.wait(ANSWER_SECONDS)
        kind, *words = self.path.strip("/").split("/")
        answer: dict[str, Any] = {"name": words[-1], "given": body.get("given")}
        status = 200
        if (kind == "flaky" and attempt <= int(words[0])) or (kind == "refuse" and words[0] == "1"):
            status = 503
        elif kind == "page":
            answer = {**answer, "name": f"{words[2]}-{words[1]}", "more": int(words[1]) < int(words[0])}
        elif kind == "large":
            answer["text"] = words[1][:1] * int(words[0])
        elif kind == "rows":
            answer["rows"] = ["r" * int(words[1]) for _ in range(int(words[0]))]
        self._reply(status, answer)

    def _reply(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)
        if self.request_version == "HTTP/1.0":
            self.close_connection = True

    def log_message(self, *arguments: Any) -> None:
        """Says nothing."""
