"""The world that executions reach: an HTTP server that keeps every call, and how many were under way at once.

What is answered depends on the request alone, never on how often it came. A call is known by its action and
attempt; the first word of the path after the kind `slow` names a group whose peak is kept. Nothing here knows
the engine.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, NamedTuple

PATIENCE_SECONDS = 30.0


class Call(NamedTuple):
    action: str
    attempt: int
    at: float
    """Seconds since 1970."""
    path: str


class Gate:
    """Those who stand at it are let through in the order in which they came, or all once it is open."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = False
        self._came = 0
        self._may_pass = 0

    def set(self) -> None:
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._is_open, self._may_pass = False, self._came

    def let_one_through(self) -> None:
        with self._changed:
            self._may_pass += 1
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            self._came += 1
            place = self._came
            self._changed.wait_for(lambda: self._is_open or place <= self._may_pass, PATIENCE_SECONDS)


class Outside(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.answer_seconds = 0.01
        """How long every answer takes."""
        self.changed = threading.Condition()
        self.calls: list[Call] = []
        self.under_way: Counter[str] = Counter()
        self.peaks: Counter[str] = Counter()
        self.changes: dict[str, list[tuple[float, int]]] = {}
        """Of each group the moments at which a call began or ended, and how many were under way then."""
        self.gate = Gate()
        """Calls of the kind `gate` are answered once they are through it."""

    def reset(self) -> None:
        with self.changed:
            self.calls, self.peaks, self.changes = [], Counter(), {}
            self.gate.clear()

    def counts(self) -> Counter[tuple[str, int]]:
        with self.changed:
            return Counter((call.action, call.attempt) for call in self.calls)

    def wait_for(self, holds: Callable[[list[Call]], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Waits until the calls that have come are such."""
        with self.changed:
            assert self.changed.wait_for(lambda: holds(self.calls), seconds), f"{len(self.calls)} calls came"

    def wait_for_calls(self, number: int, seconds: float = PATIENCE_SECONDS) -> None:
        self.wait_for(lambda calls: len(calls) >= number, seconds)

    def begin(self, call: Call, group: str) -> None:
        with self.changed:
            self.calls.append(call)
            self.under_way[group] += 1
            self.peaks[group] = max(self.peaks[group], self.under_way[group])
            self._note(group)

    def end(self, group: str) -> None:
        with self.changed:
            self.under_way[group] -= 1
            self._note(group)

    def _note(self, group: str) -> None:
        self.changes.setdefault(group, []).append((time.monotonic(), self.under_way[group]))
        self.changed.notify_all()

    def share_of_time(self, group: str, at_least: int) -> float:
        """For how much of the time between the first call and the last beginning so many were under way."""
        with self.changed:
            changes = list(self.changes[group])
        last = max(place for place in range(1, len(changes)) if changes[place][1] > changes[place - 1][1])
        spans = [
            (after[0] - before[0], before[1] >= at_least) for before, after in pairwise(changes[: last + 1])
        ]
        return sum(span for span, is_so in spans if is_so) / sum(span for span, _ in spans)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed breaks its connection: nothing to tell of."""


@contextmanager
def outside_server() -> Iterator[Outside]:
    server = Outside()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Outside

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        action, attempt = self.headers["Idempotency-Key"], int(self.headers.get("X-Attempt", "1"))
        kind, *words = self.path.strip("/").split("/")
        group = words[0] if kind == "slow" else kind
        self.server.begin(Call(action, attempt, time.time(), self.path), group)
        try:
            if kind == "gate":
                self.server.gate.wait()
            else:
                time.sleep(float(words[1]) / 1000 if kind == "slow" else self.server.answer_seconds)
        finally:
            # Before the answer: once that is out, the caller may make its next call.
            self.server.end(group)
        self._reply(*_answer(kind, words, body, attempt))

    def _reply(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def log_message(self, *arguments: Any) -> None:
        """Says nothing."""


def _answer(kind: str, words: list[str], body: dict[str, Any], attempt: int) -> tuple[int, dict[str, Any]]:
    answer: dict[str, Any] = {"name": words[-1] if words else "", "given": body.get("given")}
    if (kind == "flaky" and attempt <= int(words[0])) or (kind == "refuse" and words[0] == "1"):
        return 503, answer
    if kind == "page":
        answer |= {"name": f"{words[2]}-{words[1]}", "more": int(words[1]) < int(words[0])}
    elif kind == "large":
        answer["text"] = words[1][:1] * int(words[0])
    elif kind == "rows":
        answer["rows"] = ["r" * int(words[1]) for _ in range(int(words[0]))]
    return 200, answer
