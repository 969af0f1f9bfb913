"""An answer that is neither text nor JSON: kept and given out byte by byte, or refused, never altered."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.e2e.console import SCRIPT, Console

HEAD = 'apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: binary}\nworkload: {url: ""}\nworkflow:\n'
FETCH = HEAD + '  - step: start\n    tool: {kind: http, url: "{{ workload.url }}"}\n'
READ = HEAD + (
    "  - step: start\n"
    "    tool:\n"
    '      - get: {kind: http, url: "{{ workload.url }}"}\n'
    '      - size: {kind: shell, cmds: wc -c, stdin: "{{ get }}"}\n'
)
SENT_ON = HEAD + (
    "  - step: start\n"
    "    tool:\n"
    '      - get: {kind: http, url: "{{ workload.url }}"}\n'
    '      - size: {kind: shell, cmds: "wc -c < {{ get.stored_path }}"}\n'
)
EACH = HEAD + (
    "  - step: start\n"
    "    loop: {in: [1, 2], iterator: n}\n"
    '    tool: {kind: http, url: "{{ workload.url }}"}\n'
)
BODY = bytes(range(256)) * 3


class Bytes(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Says nothing on standard error."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bytes)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def result(console: Console, execution_id: str, stdout: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [SCRIPT, "result", execution_id],
        cwd=console.folder,
        env=console.environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )


def test_the_bytes_go_to_standard_output_as_they_are_but_to_no_terminal(console: Console, url: str) -> None:
    run = console.data("run", console.write("fetch.yaml", FETCH), "--set", f"url={url}")
    execution_id = run["execution_id"]
    assert result(console, execution_id, subprocess.PIPE).stdout == BODY
    assert console.data("result", execution_id) == run["result"]
    assert run["result"]["size"] == len(BODY)
    ours, theirs = pty.openpty()
    try:
        refused = result(console, execution_id, theirs)
    finally:
        os.close(theirs)
        os.close(ours)
    assert refused.returncode == 2
    assert b"(768 bytes of application/octet-stream) is neither text nor JSON" in refused.stderr


def test_bytes_among_other_results_stay_references(console: Console, url: str) -> None:
    run = console.data("run", console.write("each.yaml", EACH), "--set", f"url={url}")
    found = console.data("result", run["execution_id"])
    assert [(each["kind"], each["size"]) for each in found] == [("result_ref", len(BODY))] * 2


def test_a_template_that_reads_bytes_fails_and_one_that_reads_their_place_does_not(
    console: Console, url: str
) -> None:
    failed = console.data("run", console.write("read.yaml", READ), "--set", f"url={url}", exit_code=1)
    assert failed["error"]["kind"] == "result.binary"
    assert "768 bytes" in failed["error"]["message"]
    assert "`.stored_path`" in failed["error"]["message"]
    good = console.data("run", console.write("sent_on.yaml", SENT_ON), "--set", f"url={url}")
    assert good["result"].strip() == "768"
