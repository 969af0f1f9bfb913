"""Who asks a bucket, and where: made of `auth` and the fields of a task.

Credentials come from the task alone. A task without `auth` is refused rather than given those of the
machine that the worker runs on; `{}` means that nobody in particular asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from yarl import URL

from noetl.records.protocols import ToolContext
from noetl.tools.addresses import AddressPolicy, AddressRefusedError
from noetl.tools.call_failures import CallFailedError
from noetl.tools.gcs import GcsConfig
from noetl.tools.http_request import RequestError, address
from noetl.tools.object_failures import ADDRESS, CONNECTION
from noetl.tools.object_gate import permitted
from noetl.tools.object_places import invalid
from noetl.tools.objects import ObjectConfig
from noetl.tools.s3 import S3Config

DEFAULT_REGION: Final = "us-east-1"
GOOGLE: Final = "https://storage.googleapis.com"
_REGION: Final = re.compile(r"[a-z0-9-]{1,40}")
_PROJECT: Final = re.compile(r"[a-z0-9:.-]{1,100}")
_ACCOUNT_FIELDS: Final = ("type", "client_email", "private_key", "private_key_id")


class S3Login(msgspec.Struct, frozen=True, kw_only=True):
    """Without a key the requests are not signed."""

    endpoint: str
    region: str
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None


class GcsLogin(msgspec.Struct, frozen=True, kw_only=True):
    """Without an account and a token the requests carry no credential."""

    endpoint: str
    project: str | None = None
    account: str | None = None
    """The key of a service account, as JSON."""
    token: str | None = None


async def login_of(scheme: str, config: ObjectConfig, context: ToolContext) -> S3Login | GcsLogin:
    fields = await _fields(config.auth, context)
    if scheme == "s3":
        return _s3_login(fields, config if isinstance(config, S3Config) else None, context)
    return _gcs_login(fields, config if isinstance(config, GcsConfig) else None, context)


async def check_endpoint(endpoint: str, policy: AddressPolicy, where: str) -> None:
    """Before anything is sent, for a failure that says what is wrong; the gate judges each connection."""
    url = URL(endpoint)
    assert url.host is not None
    assert url.port is not None
    try:
        await permitted(url.host, url.port, policy)
    except AddressRefusedError:
        raise CallFailedError(
            ADDRESS, f"{where}: its endpoint leads to an address that tasks may not connect to"
        ) from None
    except OSError:
        raise CallFailedError(
            CONNECTION, f"{where}: the host name of its endpoint cannot be resolved", retryable=True
        ) from None


async def _fields(auth: object, context: ToolContext) -> Mapping[str, Any]:
    if auth is None or auth == "":
        raise invalid("`auth` is missing: name a credential, or write `auth: {}` for a bucket open to all")
    if isinstance(auth, str) and not auth.lstrip().startswith("{"):
        auth = await context.credential(auth)
    if isinstance(auth, Mapping) and set(auth) == {"value"}:
        auth = auth["value"]  # a keychain entry that is one text
    return _mapping(auth, "`auth`")


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError:
            raise invalid(f"{what} is a text that is not JSON") from None
    if not isinstance(value, Mapping):
        raise invalid(f"{what} has no fields")
    return value


def _s3_login(fields: Mapping[str, Any], config: S3Config | None, context: ToolContext) -> S3Login:
    region = str((config and config.region) or fields.get("region") or DEFAULT_REGION)
    if not _REGION.fullmatch(region):
        raise invalid("`region` is not the name of a region")
    china = ".cn" if region.startswith("cn-") else ""
    aws = f"https://s3.{region}.amazonaws.com{china}"
    endpoint = (config and config.endpoint) or fields.get("endpoint") or aws
    login = S3Login(
        endpoint=_endpoint(endpoint),
        region=region,
        access_key_id=_text(fields, "access_key_id"),
        secret_access_key=_text(fields, "secret_access_key"),
        session_token=_text(fields, "session_token"),
    )
    if set(fields) - {"region", "endpoint"}:
        for name in ("access_key_id", "secret_access_key"):
            if getattr(login, name) is None:
                raise invalid(f"`auth` has no field `{name}`")
    _keep_secret(context, login.secret_access_key, login.session_token)
    return login


def _gcs_login(fields: Mapping[str, Any], config: GcsConfig | None, context: ToolContext) -> GcsLogin:
    project = config.project if config is not None else None
    if project is not None and not _PROJECT.fullmatch(project):
        raise invalid("`project` is not the id of a project")
    written = fields.get("service_account")
    account = _mapping(written, "`auth.service_account`") if written else fields
    token = _text(fields, "access_token") or _text(fields, "token")
    if "private_key" not in account:
        if not token and set(fields) - {"endpoint"}:
            raise invalid("`auth` has neither the fields of a service account's key nor an `access_token`")
        account = {}
    elif not account.get("client_email"):
        raise invalid("`auth` has no field `client_email`")
    _keep_secret(context, account.get("private_key"), token)
    key = {name: str(account.get(name) or "") for name in _ACCOUNT_FIELDS}
    return GcsLogin(
        endpoint=_endpoint(fields.get("endpoint") or GOOGLE),
        project=project,
        account=msgspec.json.encode(key).decode() if account else None,
        token=None if account else token,
    )


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return str(value) if value else None


def _keep_secret(context: ToolContext, *values: object) -> None:
    for value in values:
        if value:
            context.add_secret(value)


def _endpoint(written: object) -> str:
    try:
        url = address(written)
    except RequestError:
        raise invalid("`endpoint` is not the address of a web server") from None
    if url.raw_user is not None or url.raw_password is not None:
        raise invalid("`endpoint` has a login in it, which belongs in `auth`")
    return str(url.with_query(None).with_fragment(None)).rstrip("/")
