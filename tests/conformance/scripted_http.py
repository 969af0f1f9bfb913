"""The scripted HTTP server of a case: answers in order, records requests and how many were in flight."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.conformance.matching import matches


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def answer(self):
        url = urlsplit(self.path)
        body = self.read_body()
        request = {
            "method": self.command,
            "path": url.path,
            "query": {key: values[-1] for key, values in parse_qs(url.query, keep_blank_values=True).items()},
            "headers": {key.lower(): value for key, value in self.headers.items()},
            "text": body.decode("utf-8", "replace"),
        }
        with contextlib.suppress(ValueError):
            request["json"] = json.loads(body)
        with self.server.serving(request) as response:
            time.sleep(response.get("delay", 0))
        self.reply(response)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = answer  # noqa: N815 - the names http.server calls

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def reply(self, response):
        if "json" in response:
            body, kind = json.dumps(response["json"]).encode(), "application/json"
        else:
            body, kind = str(response.get("text", "")).encode(), "text/plain; charset=utf-8"
        self.send_response(response.get("status", 200))
        headers = {"Content-Type": kind, **response.get("headers", {}), "Content-Length": len(body)}
        for key, value in headers.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args):
        pass


class ScriptedServer(ThreadingHTTPServer):
    """Answers from a case's script; records the requests and how many were served at one time."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, routes):
        super().__init__(("127.0.0.1", 0), Handler)
        self.routes = routes
        self.used = [0] * len(routes)
        self.requests: list[dict[str, Any]] = []
        self.now = self.most = 0
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @contextlib.contextmanager
    def serving(self, request):
        """Counts the request as in flight until just before its response is written."""
        with self.lock:
            self.requests.append(request)
            self.now += 1
            self.most = max(self.most, self.now)
            response = self.next_response(request)
        try:
            yield response
        finally:
            with self.lock:
                self.now -= 1

    def next_response(self, request):
        for i, route in enumerate(self.routes):
            method = route.get("method", request["method"]).upper()
            query = {key: str(value) for key, value in route.get("query", {}).items()}
            if (route["path"], method) == (request["path"], request["method"]) and matches(
                query, request["query"]
            ):
                script = route.get("respond") or [{}]
                self.used[i] += 1
                return script[min(self.used[i], len(script)) - 1]
        return {"status": 404, "json": {"error": "the case scripts no such request"}}

    def handle_error(self, request, client_address):
        pass  # a client that hung up (timeouts, cancelled calls) is not this server's failure

    def stop(self):
        self.shutdown()
        self.server_close()
