"""What the server answers is what its description says, whatever it is asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.generation.case import Case
from schemathesis.specs.openapi import checks

from noetl.server.options import ServerOptions
from tests.contract.control.replicas import replica, served
from tests.unit.server.test_openapi import DOCUMENT

EXAMPLES = 2
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.missing_required_header,
    checks.unsupported_method,
    checks.ignored_auth,
]
"""All but those that need users' data to make sense: a text is rarely a playbook."""
PLAYBOOK = (
    "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
    "workflow: [{step: start, tool: {kind: noop}}]\n"
)

CONFIG = SchemathesisConfig.from_dict(
    {"phases": {"coverage": {"unexpected-methods": ["PATCH"]}, "examples": {"enabled": False}}}
)
schema = schemathesis.openapi.from_dict(DOCUMENT, config=CONFIG)


class Running(threading.Thread):
    """A server in a thread of its own, until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.url = ""
        self.token = ""
        self.ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    def run(self) -> None:
        asyncio.run(self._served())

    async def _served(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        options = ServerOptions(requests_per_second=0, worker_requests_per_second=0, max_wait_seconds=0)
        async with replica(options) as found, served(found.app) as server:
            await found.register(PLAYBOOK)
            self.token = await found.token("admin")
            self.url = server.url
            self.ready.set()
            await self._ended.wait()

    def stop(self) -> None:
        assert self._loop is not None
        assert self._ended is not None
        self._loop.call_soon_threadsafe(self._ended.set)
        self.join(20)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    server = Running()
    server.start()
    assert server.ready.wait(20)
    yield server
    server.stop()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_api_keeps_to_its_description(case: Case[Any], running: Running) -> None:
    headers = {"Authorization": f"Bearer {running.token}"}
    case.call_and_validate(base_url=running.url, headers=headers, checks=CHECKS)
