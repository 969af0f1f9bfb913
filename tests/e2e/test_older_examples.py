"""The examples in versions 1 and 2 of the language, run by the real command against a local HTTP server."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from noetl.testing import play
from tests.e2e.console import Console

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "generations"
WARMEST = {"51.51": 19, "37.39": 38, "37.98": 31}
ROWS = {"users": 5, "orders": 7}
PAGE = 3


class Service(BaseHTTPRequestHandler):
    """Forecasts by latitude, and rows page by page; the first request for rows is refused as too much."""

    asked: Counter[str]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        name = parts.path.strip("/")
        self.asked[name] += 1
        if name in ROWS and self.asked[name] == 1:
            self._answer(503, {"error": "busy"})
        elif name in ROWS:
            self._answer(200, page_of(ROWS[name], int(query["page"])))
        else:
            self._answer(200, {"temperatures": [10, WARMEST[query["latitude"]], 12]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked[f"{body['template']} to {body['to']}"] += 1
        self._answer(202, {"queued": True})

    def _answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: Any) -> None:
        """A test says what went wrong itself."""


def page_of(total: int, page: int) -> dict[str, Any]:
    ids = list(range(total))[(page - 1) * PAGE : page * PAGE]
    paging = {"page": page, "hasMore": page * PAGE < total}
    return {"data": [{"id": each} for each in ids], "paging": paging}


@pytest.fixture
def service() -> Iterator[tuple[str, Counter[str]]]:
    asked: Counter[str] = Counter()
    handler = type("Asked", (Service,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_weather_of_each_city_is_checked_and_joined(
    console: Console, service: tuple[str, Counter[str]]
) -> None:
    url, asked = service
    told = console.noetl("run", str(EXAMPLES / "weather_loop.yaml"), "--set", f"base_url={url}", "--json")
    assert json.loads(told)["result"] == {"alerts": ["Seville", "Athens"]}
    assert asked == {"forecast": 3}


def test_every_endpoint_is_read_page_by_page(console: Console, service: tuple[str, Counter[str]]) -> None:
    url, asked = service
    told = console.noetl(
        "run", str(EXAMPLES / "paginated_endpoints.yaml"), "--set", f"api_url={url}", "--json"
    )
    assert json.loads(told)["result"] == ROWS
    assert asked == {"users": 1 + 2, "orders": 1 + 3}


def test_a_user_is_looked_up_and_welcomed(console: Console, service: tuple[str, Counter[str]]) -> None:
    url, asked = service
    told = console.noetl("run", str(EXAMPLES / "user_onboarding.yaml"), "--set", f"api_url={url}", "--json")
    assert json.loads(told)["result"] == {"status": "completed", "message": "Bob is on board"}
    assert asked == {"welcome to bob@example.com": 1}


def test_an_approval_is_waited_for_and_missed_after_a_day() -> None:
    async def approve(engine: Any, execution_id: str) -> None:
        await engine.control.signal(execution_id, "message.received", {"type": "approval", "by": "ann"})

    answered = {"process_approved": lambda call: call.args, "handle_timeout": "nobody"}
    run = play(EXAMPLES / "approval.yaml", tools=answered, at={3600: approve})
    assert (run.result, run.elapsed) == ({"amount": 1200, "by": "ann"}, 3600)
    run = play(EXAMPLES / "approval.yaml", tools=answered)
    assert (run.result, run.elapsed) == ("nobody", 86_400)
