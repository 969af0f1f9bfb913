"""Fetches one secret from where it is kept: the keychain, Vault, Google Secret Manager, AWS Secrets Manager.

The managers are asked through their HTTP interfaces, under the same address policy as any HTTP task. The
value is registered as a secret before it leaves this module, and never stands in a message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec
from multidict import CIMultiDict
from yarl import URL

from noetl.errors import NoetlError
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.http_exchange import Fetched, fetch, is_retryable
from noetl.tools.http_request import Request, RequestError, address
from noetl.tools.outcomes import failed, failed_with, ok

AWS_TARGET: Final = "secretsmanager.GetSecretValue"
AWS_OVERLOADED: Final = ("Throttling", "InternalService", "TooManyRequests")


async def fetch_secret(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    config = call.config
    try:
        value = _field(await _value(config, context), config.get("field"))
    except CallFailedError as failure:
        return failed_with(call, started, failure)
    except RequestError as mistake:
        return failed(call, started, "config.invalid", f"the secret manager cannot be asked: {mistake}")
    except NoetlError as error:  # a credential that cannot be had
        return failed(call, started, error.code, error.message)
    context.add_secret(value)
    return ok(call, started, value)


async def _value(config: Mapping[str, Any], context: ToolContext) -> object:
    if ".." in str(config["secret"]).split("/"):
        raise CallFailedError("config.invalid", "`secret` leads out of its path")
    match config.get("provider"):
        case "keychain":
            return dict(await context.credential(str(config["secret"])))
        case "vault":
            return await _from_vault(config, await _login(config, context), context)
        case "google":
            return await _from_google(config, await _login(config, context), context)
        case "aws":
            return await _from_aws(config, await _login(config, context), context)
    raise CallFailedError("config.invalid", "`provider` is none of keychain, vault, google, aws")


async def _login(config: Mapping[str, Any], context: ToolContext) -> Mapping[str, Any]:
    auth = config.get("auth")
    if not auth:
        return {}
    return auth if isinstance(auth, Mapping) else await context.credential(str(auth))


def _field(value: object, field: object) -> object:
    if field is None:
        return value
    if not isinstance(value, Mapping) or field not in value:
        raise CallFailedError("secrets.missing", f"the secret has no field `{field}`")
    return value[field]


async def _from_vault(config: Mapping[str, Any], login: Mapping[str, Any], context: ToolContext) -> object:
    if not config.get("address"):
        raise CallFailedError("config.invalid", "`address` is missing: where the Vault server is")
    mount = str(config.get("mount") or "secret").strip("/")
    url = _at(str(config["address"]), f"v1/{quote(mount)}/data/{quote(str(config['secret']).strip('/'))}")
    if config.get("version") is not None:
        url = url.with_query(version=str(config["version"]))
    headers = CIMultiDict({"X-Vault-Token": _required(login, "token"), "X-Vault-Request": "true"})
    if login.get("namespace"):
        headers["X-Vault-Namespace"] = str(login["namespace"])
    return _inside(await _ask(Request(method="GET", url=url, headers=headers), context), "data", "data")


async def _from_google(config: Mapping[str, Any], login: Mapping[str, Any], context: ToolContext) -> object:
    secret, version = str(config["secret"]), str(config.get("version") or "latest")
    if not secret.startswith("projects/"):
        if not config.get("project"):
            raise CallFailedError("config.invalid", "`project` is missing")
        secret = f"projects/{config['project']}/secrets/{secret}"
    endpoint = str(config.get("address") or "https://secretmanager.googleapis.com")
    url = _at(endpoint, f"v1/{quote(secret)}/versions/{quote(version)}:access")
    headers = CIMultiDict({"Authorization": f"Bearer {_required(login, 'access_token', 'token')}"})
    found = _inside(await _ask(Request(method="GET", url=url, headers=headers), context), "payload", "data")
    try:
        return _structured(base64.b64decode(str(found), validate=True))
    except binascii.Error:
        raise _unreadable() from None


async def _from_aws(config: Mapping[str, Any], login: Mapping[str, Any], context: ToolContext) -> object:
    region = str(config.get("region") or login.get("region") or "")
    if not region:
        raise CallFailedError("config.invalid", "`region` is missing")
    url = _at(str(config.get("address") or f"https://secretsmanager.{region}.amazonaws.com"), "")
    asked = {"SecretId": str(config["secret"])}
    if config.get("version") is not None:
        # Ids of versions are UUIDs; everything else is the label of a stage.
        by_id = len(str(config["version"])) >= 32
        asked["VersionId" if by_id else "VersionStage"] = str(config["version"])
    body = msgspec.json.encode(asked)
    headers = _signed(url, body, region, login, datetime.now(UTC))
    answer = await _ask(Request(method="POST", url=url, headers=headers, body=body), context)
    if answer.get("SecretString") is not None:
        return _structured(str(answer["SecretString"]).encode())
    return _inside(answer, "SecretBinary")


def _signed(url: URL, body: bytes, region: str, login: Mapping[str, Any], now: datetime) -> CIMultiDict[str]:
    """The headers of a request to AWS, signed with its Signature Version 4."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/secretsmanager/aws4_request"
    host = url.authority if url.explicit_port else str(url.host)
    headers = {
        "content-type": "application/x-amz-json-1.1",
        "host": host,
        "x-amz-date": moment,
        "x-amz-target": AWS_TARGET,
    }
    if login.get("session_token"):
        headers["x-amz-security-token"] = str(login["session_token"])
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{_required(login, 'secret_access_key')}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{_required(login, 'access_key_id')}/{scope}"
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    )
    return CIMultiDict(headers)


async def _ask(request: Request, context: ToolContext) -> Mapping[str, Any]:
    fetched = await fetch(request, context)
    if fetched.status != 200:
        raise _refusal(fetched)
    try:
        answer = msgspec.json.decode(fetched.body)
    except msgspec.MsgspecError:
        raise _unreadable() from None
    if not isinstance(answer, Mapping):
        raise _unreadable()
    return answer


def _refusal(fetched: Fetched) -> CallFailedError:
    """What the status says; AWS answers everything with 400 and says it in the body."""
    said = fetched.body[:4096].decode("utf-8", "replace")
    status = fetched.status
    if is_retryable(status) or any(word in said for word in AWS_OVERLOADED):
        return CallFailedError(
            "secrets.unavailable", "the secret manager cannot answer now", retryable=True, status=status
        )
    if status == 404 or "ResourceNotFound" in said:
        return CallFailedError("secrets.missing", "there is no such secret", status=status)
    if status in (401, 403) or "AccessDenied" in said or "UnrecognizedClient" in said:
        return CallFailedError("secrets.denied", "the credential may not read this secret", status=status)
    return CallFailedError("secrets.refused", f"the secret manager answered with {status}", status=status)


def _unreadable() -> CallFailedError:
    return CallFailedError("secrets.refused", "the answer of the secret manager cannot be read")


def _inside(answer: object, *names: str) -> object:
    for name in names:
        if not isinstance(answer, Mapping) or answer.get(name) is None:
            raise CallFailedError("secrets.missing", "the secret has no value")
        answer = answer[name]
    return answer


def _structured(content: bytes) -> object:
    """A secret that is a JSON object has fields; any other is a text."""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError):
        value = None
    return value if isinstance(value, dict) else content.decode("utf-8", "replace")


def _at(endpoint: str, path: str) -> URL:
    """The path below an endpoint; it is encoded already, and stays as it is."""
    return URL(f"{str(address(endpoint)).rstrip('/')}/{path}", encoded=True)


def _required(login: Mapping[str, Any], *names: str) -> str:
    for name in names:
        if login.get(name):
            return str(login[name])
    raise CallFailedError("config.invalid", f"`auth` has no field `{names[0]}`")
