"""A stand-in for the services that the playbooks beside it call, for trying them and for tests.

`python examples/generations/service.py 8080` answers on that port until it is interrupted. It keeps nothing,
needs nothing but Python, and is deterministic: some addresses refuse their first requests, always the same
ones, so that what the playbooks do about it can be seen.
"""

from __future__ import annotations

import json
import sys
import threading
from base64 import b64encode
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

WARMEST = {"London": 19, "Seville": 38, "Athens": 31, "51.51": 19, "37.39": 38, "37.98": 31}
ROWS = {"users": 5, "orders": 7, "assets": 3}
OFFERS = [("BA", 89.5), ("IB", 112.0), ("VY", 74.25), ("U2", 61.0), ("FR", 45.99)]
CLIENT = ("demo-client", "demo-secret-of-the-client")
TOKEN = "token-of-the-demo-client"  # opens nothing but this stand-in


class RefusedError(Exception):
    def __init__(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers or {}


class Service(ThreadingHTTPServer):
    """The server, and what it was asked, in the order in which it was asked."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.asked: list[str] = []
        self._times: Counter[str] = Counter()
        self._lock = threading.Lock()

    def heard(self, line: str, path: str) -> int:
        """Keeps a request; how many there have been for its path, this one included."""
        with self._lock:
            self.asked.append(line)
            self._times[path] += 1
            return self._times[path]

    def answer(self, path: str, query: dict[str, str], authorization: str, times: int) -> dict[str, Any]:
        """The body of the answer to a request."""
        name = path.strip("/")
        if name in ROWS:
            if name == "orders" and times == 1:
                raise RefusedError(503, {"error": "busy"})
            return page_of(ROWS[name], int(query.get("page", 1)), int(query.get("pageSize", 3)))
        if name == "forecast":
            place = query.get("city") or query["latitude"]
            return {"place": place, "temperatures": [10, WARMEST[place], 12]}
        if name == "v1/security/oauth2/token":
            return token_for(authorization)
        if name == "v2/shopping/flight-offers":
            return offers(query, authorization, times)
        if name == "data":
            if query.get("as") == "missing":
                raise RefusedError(404, {"error": "there is no such data"})
            return {"rows": [1, 2, 3]}
        if name == "status":
            return {"status": "ready" if times > 2 else "pending", "asked": times}
        if name == "busy" and times < 3:
            raise RefusedError(503, {"error": "busy"})
        if name == "broken":
            raise RefusedError(500, {"error": "broken"})
        return {"accepted": True, "id": times}


def page_of(total: int, page: int, size: int) -> dict[str, Any]:
    ids = list(range(1, total + 1))[(page - 1) * size : page * size]
    return {
        "data": [{"id": each} for each in ids],
        "paging": {"page": page, "pageSize": size, "hasMore": page * size < total},
    }


def token_for(authorization: str) -> dict[str, Any]:
    if authorization != "Basic " + b64encode(":".join(CLIENT).encode()).decode():
        raise RefusedError(401, {"error": "invalid_client"})
    return {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 1799}


def offers(query: dict[str, str], authorization: str, times: int) -> dict[str, Any]:
    """Flight offers page by page; the second request comes too soon."""
    if authorization != f"Bearer {TOKEN}":
        raise RefusedError(401, {"errors": [{"status": 401, "title": "Invalid access token"}]})
    if times == 2:
        errors = [{"status": 429, "title": "Too many requests"}]
        raise RefusedError(429, {"errors": errors, "retry_after": 0.05}, {"Retry-After": "1"})
    offset, limit = int(query["page[offset]"]), int(query["page[limit]"])
    shown = [
        {"id": str(number), "carrier": carrier, "price": {"total": f"{total:.2f}", "currency": "EUR"}}
        for number, (carrier, total) in enumerate(OFFERS, start=1)
    ][offset : offset + limit]
    return {"meta": {"count": len(OFFERS), "offset": offset}, "data": shown}


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        is_json = self.headers.get("Content-Type", "").startswith("application/json")
        body = json.loads(text) if is_json and text else text
        words = [self.command, parts.path]
        words += [json.dumps(each, sort_keys=True) for each in (query, body) if each]
        times = self.server.heard(" ".join(words), parts.path)
        status, headers = 200, {}
        try:
            given = self.server.answer(parts.path, query, self.headers.get("Authorization", ""), times)
        except RefusedError as refused:
            given, status, headers = refused.body, refused.status, refused.headers
        self._send(status, given, headers)

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def _send(self, status: int, given: object, headers: dict[str, str]) -> None:
        answer = json.dumps(given).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        """Nothing is printed: `asked` has it."""


if __name__ == "__main__":
    Service(int(sys.argv[1]) if len(sys.argv) > 1 else 8080).serve_forever()
