"""Redirects to another origin: what the `http` kind takes there, and what stays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.records.outcome import Outcome
from tests.unit.tools.local_context import LocalContext
from tests.unit.tools.test_http_network import app_of, fetch, kind_of, redirecting, told


@pytest.mark.parametrize(
    ("status", "method", "config"),
    [
        (307, "POST", {"body": {"password": "hunter22"}}),
        (308, "POST", {"form": {"password": "hunter22"}}),
        (307, "PUT", {"files": {"f": {"content": "hunter22"}}}),
        (301, "PUT", {"body": "hunter22"}),
        (302, "DELETE", {"body": "hunter22"}),
    ],
)
def test_a_body_does_not_follow_a_redirect_to_another_origin(
    tmp_path: Path, status: int, method: str, config: dict[str, Any]
) -> None:
    async def scenario() -> tuple[Outcome, str, list[str]]:
        asked: list[str] = []

        async def listening(request: web.Request) -> web.Response:
            asked.append((await request.read()).decode())
            return web.Response()

        async with TestServer(app_of(b=listening)) as other:
            target = str(other.make_url("/b")).replace("//", "//eve:pass@") + "?q=hunter22"
            app = app_of(a=redirecting(target, status))
            async with TestServer(app) as server, LocalContext(tmp_path) as context:
                outcome = await fetch(context, server.make_url("/a"), method=method, **config)
            return outcome, f"http://127.0.0.1:{other.port}", asked

    outcome, origin, asked = asyncio.run(scenario())
    assert asked == []
    assert kind_of(outcome) == ("http.redirects", False)
    assert outcome.error is not None
    assert f"to {origin}, another origin" in outcome.error.message
    assert "`url`" in outcome.error.message
    assert "hunter22" not in outcome.error.message
    assert "eve" not in outcome.error.message


@pytest.mark.parametrize(("status", "config"), [(307, {}), (303, {"body": "hunter22"})])
def test_a_redirect_that_takes_no_body_along_is_followed_to_another_origin(
    tmp_path: Path, status: int, config: dict[str, Any]
) -> None:
    async def scenario() -> Outcome:
        async with TestServer(app_of(b=told)) as other:
            app = app_of(a=redirecting(str(other.make_url("/b")), status))
            async with TestServer(app) as server, LocalContext(tmp_path) as context:
                return await fetch(context, server.make_url("/a"), method="POST", **config)

    outcome = asyncio.run(scenario())
    assert (outcome.status, outcome.result["body"]) == ("ok", "")
