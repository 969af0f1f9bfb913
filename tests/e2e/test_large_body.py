"""A large answer goes from a server into DuckDB without ever being in memory as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

MIB = 1024 * 1024
ROWS = 700_000
PADDING = "x" * 90

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: tests/large}
workload: {url: ""}
workflow:
  - step: start
    tool: {kind: http, url: "{{ workload.url }}"}
    next: {arcs: [{step: load}]}
  - step: load
    tool:
      kind: duckdb
      database: large.duckdb
      query: |
        SELECT count(*) AS rows, sum(id) AS total FROM read_csv('{{ start.stored_path }}');
"""


MEASURED = """
import resource, subprocess, sys
ended = subprocess.run(sys.argv[2:], check=False)
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(ended.returncode)
"""
"""Runs a command from a small process: a child of a large one counts its parent's memory as its own."""


class Rows(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/csv")
        self.end_headers()
        self.wfile.write(b"id,text\n")
        for first in range(0, ROWS, 10_000):
            lines = "".join(f"{number},{PADDING}\n" for number in range(first, first + 10_000))
            self.wfile.write(lines.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Says nothing on standard error."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Rows)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_a_large_answer_goes_through_a_playbook_into_duckdb(tmp_path: Path, url: str) -> None:
    (tmp_path / "large.yaml").write_text(PLAYBOOK, encoding="utf-8")
    command = [
        *(str(Path(sys.executable).with_name("noetl")), "run", "large.yaml", "--set", f"url={url}", "--json"),
        *("--store", f"sqlite:///{tmp_path}/store.db", "--events", "log.jsonl"),
    ]
    measured = [sys.executable, "-c", MEASURED, str(tmp_path / "figures.txt"), *command]
    ran = subprocess.run(measured, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(ran.stdout)
    assert shown["result"] == [{"rows": ROWS, "total": ROWS * (ROWS - 1) // 2}]
    stored = shown["steps"]["start"]["result"]
    assert stored["kind"] == "result_ref"
    assert stored["size"] > 60 * MIB
    assert max(len(line) for line in (tmp_path / "log.jsonl").read_bytes().splitlines()) < 64 * 1024
    assert int((tmp_path / "figures.txt").read_text("utf-8")) * 1024 < 450 * MIB
