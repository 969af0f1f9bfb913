"""The world outside of a security test: a web server that sends back what it was sent, or misbehaves.

What it is asked for says how it answers, so a playbook chooses its own adversary by the path.
"""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

GZIP = zlib.MAX_WBITS | 16
BORDER = 1 << 16
"""Where readers of bodies commonly cut."""


class Outside:
    """A running server; `vault` and `token` are what its secret manager and its token endpoint give.

    `answers` are those to paths below `/said`.
    """

    def __init__(self, host: str) -> None:
        self.answers: dict[str, bytes] = {}
        self.vault: dict[str, str] = {}
        self.token = ""
        self.requests: list[str] = []
        self.over = threading.Event()
        outside = self

        class Handler(_Handler):
            world = outside

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"http://{host}:{self.port}"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def outside_server(host: str = "127.0.0.1") -> Iterator[Outside]:
    world = Outside(host)
    thread = threading.Thread(target=world.serve, name="outside")
    thread.start()
    try:
        yield world
    finally:
        world.stop()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    world: Outside
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.world.requests.append(path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode("utf-8", "replace")
        name = path.strip("/").partition("/")[0]
        answer: Callable[[str, str, str], None] = getattr(self, f"_{name}", self._unknown)
        answer(path, unquote(query), body)

    do_POST = do_GET  # noqa: N815 - the library's name

    def _send(self, body: bytes, kind: str = "application/json", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _sent(self) -> dict[str, str]:
        return {name: self._text(value) for name, value in self.headers.items()}

    @staticmethod
    def _text(value: str) -> str:
        return value.encode("latin-1", "replace").decode("utf-8", "replace")

    def _echo(self, path: str, query: str, body: str) -> None:
        said = {"path": self.path, "query": query, "body": body, "headers": self._sent()}
        self._send(json.dumps(said).encode(), X_Request_Id=self.headers.get("X-Secret", "none"))

    def _fail(self, path: str, query: str, body: str) -> None:
        self._send(f"refused: {self._sent()} {query} {body}".encode(), "text/plain", 500)

    def _slow(self, path: str, query: str, body: str) -> None:
        self.world.over.wait(60)

    def _large(self, path: str, query: str, body: str) -> None:
        """What was sent, again and again, across every border of a piece."""
        said = self._sent()["X-Secret"].encode()
        half = len(said) // 2
        text = b"x" * (BORDER - half) + (said + b"y" * (BORDER - len(said))) * 2 + said
        self._send(text, "text/plain")

    def _broken(self, path: str, query: str, body: str) -> None:
        """Declared as JSON, and cut by whoever shows what it was instead."""
        said = self._sent()["X-Secret"].encode()
        self._send(b"no json " + b"z" * (BORDER - 8 - len(said) + 12) + said + b"z" * 100)

    def _token(self, path: str, query: str, body: str) -> None:
        self._send(json.dumps({"access_token": self.world.token, "expires_in": 600}).encode())

    def _v1(self, path: str, query: str, body: str) -> None:
        self._send(json.dumps({"data": {"data": self.world.vault}}).encode())

    def _gzip(self, path: str, query: str, body: str) -> None:
        self._send(_packed(_size(path), GZIP), "text/plain", Content_Encoding="gzip")

    def _deflate(self, path: str, query: str, body: str) -> None:
        self._send(_packed(_size(path), zlib.MAX_WBITS), "text/plain", Content_Encoding="deflate")

    def _bomb(self, path: str, query: str, body: str) -> None:
        """Zeros packed twice: a few kilobytes that become gigabytes."""
        self._send(gzip.compress(_packed(_size(path), GZIP)), "text/plain", Content_Encoding="gzip, gzip")

    def _deep(self, path: str, query: str, body: str) -> None:
        self._send(b"[" * _size(path))

    def _headers(self, path: str, query: str, body: str) -> None:
        self._send(b"{}", X_Large="h" * _size(path))

    def _redirect(self, path: str, query: str, body: str) -> None:
        self._send(b"", status=302, Location=query)

    def _latest(self, path: str, query: str, body: str) -> None:
        """What a metadata service gives away."""
        self._send(b'{"AccessKeyId": "stolen"}')

    def _brotli(self, path: str, query: str, body: str) -> None:
        self._send(bytes(1000), "text/plain", Content_Encoding="br")

    def _said(self, path: str, query: str, body: str) -> None:
        self._send(self.world.answers[path])

    def _unknown(self, path: str, query: str, body: str) -> None:
        self._send(b"{}", status=404)


@cache
def _packed(size: int, bits: int) -> bytes:
    """So many zeros; they are never all there at once."""
    packer = zlib.compressobj(1, wbits=bits)
    zeros = bytes(1 << 20)
    return b"".join(packer.compress(zeros) for _ in range(size >> 20)) + packer.flush()


def _size(path: str) -> int:
    return int(path.rpartition("/")[2])
