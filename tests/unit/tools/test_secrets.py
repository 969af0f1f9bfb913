"""The `secrets` kind, against servers that speak the managers' interfaces."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from noetl.records.outcome import Outcome
from noetl.tools import secrets
from noetl.tools.secret_managers import _signed
from tests.unit.tools.local_context import LocalContext, call

AWS_LOGIN = {"access_key_id": "AKID", "secret_access_key": "hidden-key", "region": "eu-west-1"}


async def manager(request: web.Request) -> web.Response:
    """Vault below /v1/<mount>/data, Google below /v1/projects, AWS at the root."""
    if request.path == "/":
        return await aws(request)
    if request.path.startswith("/v1/projects/"):
        if request.headers.get("Authorization") != "Bearer t0k":
            return web.json_response({}, status=401)
        found = {"p/secrets/plain/versions/latest": b"hunter22", "p/secrets/many/versions/3": b'{"a": "aa"}'}
        content = found.get(request.path.removeprefix("/v1/projects/").removesuffix(":access"))
        if content is None:
            return web.json_response({}, status=404)
        return web.json_response({"payload": {"data": base64.b64encode(content).decode()}})
    if request.headers.get("X-Vault-Token") != "t0k":
        return web.json_response({"errors": ["permission denied"]}, status=403)
    if request.path == "/v1/secret/data/sealed":
        return web.json_response({"errors": ["sealed"]}, status=503)
    if request.path not in ("/v1/secret/data/tenants/a cme", "/v1/kv/data/x"):
        return web.json_response({"errors": []}, status=404)
    version = request.query.get("version", "latest")
    return web.json_response(
        {"data": {"data": {"token": f"hunter22-{version}", "user": "u"}, "metadata": {}}}
    )


async def aws(request: web.Request) -> web.Response:
    if "Credential=AKID/" not in request.headers["Authorization"]:
        return web.json_response({"__type": "UnrecognizedClientException"}, status=400)
    asked = await request.json()
    answers = {"plain": {"SecretString": "hunter22"}, "many": {"SecretString": '{"a": "aa"}'}}
    if asked["SecretId"] == "busy":
        return web.json_response({"__type": "ThrottlingException"}, status=400)
    if asked["SecretId"] not in answers:
        return web.json_response({"__type": "ResourceNotFoundException"}, status=400)
    return web.json_response(answers[asked["SecretId"]])


def fetch(folder: Path, **config: Any) -> tuple[Outcome, LocalContext]:
    async def scenario() -> tuple[Outcome, LocalContext]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", manager)
        credentials = {
            "login": {"token": "t0k"},
            "aws": AWS_LOGIN,
            "pg": {"host": "h", "password": "hunter22"},
        }
        async with TestServer(app) as server, LocalContext(folder, credentials=credentials) as context:
            fields = {"address": str(server.make_url("/"))} | config
            return await secrets.run(call("secrets", fields), context), context

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ({"provider": "keychain", "secret": "pg"}, {"host": "h", "password": "hunter22"}),
        ({"provider": "keychain", "secret": "pg", "field": "password"}, "hunter22"),
        ({"provider": "vault", "secret": "tenants/a cme", "auth": "login"},
         {"token": "hunter22-latest", "user": "u"}),
        ({"provider": "vault", "secret": "tenants/a cme", "auth": "login", "field": "user"}, "u"),
        ({"provider": "vault", "secret": "x", "mount": "kv", "version": 2, "auth": {"token": "t0k"},
          "field": "token"}, "hunter22-2"),
        ({"provider": "google", "project": "p", "secret": "plain", "auth": "login"}, "hunter22"),
        ({"provider": "google", "secret": "projects/p/secrets/many", "version": 3, "auth": "login"},
         {"a": "aa"}),
        ({"provider": "aws", "secret": "plain", "auth": "aws"}, "hunter22"),
        ({"provider": "aws", "secret": "many", "region": "eu-west-1", "auth": "aws", "field": "a"}, "aa"),
    ],
)  # fmt: skip
def test_a_secret_is_the_result_and_is_registered_as_one(
    tmp_path: Path, config: dict[str, Any], value: object
) -> None:
    outcome, context = fetch(tmp_path, **config)
    assert (outcome.status, outcome.result) == ("ok", value)
    assert context.secrets == [value]


@pytest.mark.parametrize(
    ("config", "kind", "retryable"),
    [
        ({"provider": "keychain", "secret": "none"}, "noetl.error", False),
        ({"provider": "keychain", "secret": "pg", "field": "none"}, "secrets.missing", False),
        ({"provider": "vault", "secret": "none", "auth": "login"}, "secrets.missing", False),
        ({"provider": "vault", "secret": "x", "auth": {"token": "bad"}}, "secrets.denied", False),
        ({"provider": "vault", "secret": "sealed", "auth": "login"}, "secrets.unavailable", True),
        ({"provider": "vault", "secret": "x"}, "config.invalid", False),
        ({"provider": "vault", "secret": "a/../x", "auth": "login"}, "config.invalid", False),
        ({"provider": "vault", "secret": "x", "auth": {"token": "a\nb"}}, "config.invalid", False),
        ({"provider": "vault", "secret": "x", "auth": "login", "address": None}, "config.invalid", False),
        ({"provider": "vault", "secret": "x", "auth": "login", "address": "nowhere"},
         "config.invalid", False),
        ({"provider": "vault", "secret": "x", "auth": "login", "address": "http://127.0.0.1:1"},
         "http.connect", True),
        ({"provider": "google", "project": "p", "secret": "x", "auth": "login"}, "secrets.missing", False),
        ({"provider": "google", "secret": "plain", "auth": "login"}, "config.invalid", False),
        ({"provider": "google", "project": "p", "secret": "plain", "auth": {"token": "x"}},
         "secrets.denied", False),
        ({"provider": "aws", "secret": "none", "auth": "aws"}, "secrets.missing", False),
        ({"provider": "aws", "secret": "busy", "auth": "aws"}, "secrets.unavailable", True),
        ({"provider": "aws", "secret": "plain", "auth": AWS_LOGIN | {"access_key_id": "X"}},
         "secrets.denied", False),
        ({"provider": "paper", "secret": "x"}, "config.invalid", False),
    ],
)  # fmt: skip
def test_a_secret_that_cannot_be_had_is_an_honest_error(
    tmp_path: Path, config: dict[str, Any], kind: str, retryable: bool
) -> None:
    outcome, context = fetch(tmp_path, **config)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == (kind, retryable)
    assert context.secrets == []
    assert "t0k" not in outcome.error.message


def test_a_request_to_aws_is_signed_with_every_header_that_matters() -> None:
    url, now = (
        URL("https://secretsmanager.eu-west-1.amazonaws.com/"),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    login = AWS_LOGIN | {"session_token": "st"}
    headers = _signed(url, b"{}", "eu-west-1", login, now)
    assert headers["Authorization"].startswith(
        "AWS4-HMAC-SHA256 Credential=AKID/20260102/eu-west-1/secretsmanager/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, Signature="
    )
    assert _signed(url, b"{}", "eu-west-1", login, now) == headers
    assert _signed(url, b"[]", "eu-west-1", login, now)["Authorization"] != headers["Authorization"]
