"""A PostgreSQL that stands still: servers say so, give up in time, and go on when it is back."""

from __future__ import annotations

import time
import urllib.error

import pytest

from tests.distributed.conftest import MakeStack
from tests.distributed.outside import Outside
from tests.distributed.services import Services
from tests.distributed.shapes import Under, register, undisturbed


def test_a_server_says_that_postgres_hangs_and_executions_go_on_when_it_is_back(
    make_stack: MakeStack, services: Services, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_STATEMENT_SECONDS", "1")
    stack = make_stack(servers=1, workers=1)
    register(stack, "chain")
    expected = undisturbed(stack, outside, "chain")
    under = Under(stack, outside)
    under.begin("chain")
    with services.hanging_postgres():
        began = time.monotonic()
        with pytest.raises(urllib.error.HTTPError) as refused:
            stack.call("GET", "/api/ready")
        refused.value.close()
        assert refused.value.code == 503
        assert time.monotonic() - began < 5
        assert stack.call("GET", "/api/health")["status"] == "ok"
    assert under.outcomes() == {"chain": [expected["chain"]]}
    assert stack.ask("GET", "/api/ready")["ready"] is True
