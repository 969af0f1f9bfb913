"""Where a `nats` task connects to and as whom: read from `auth` and `url`, checked before anything is sent.

The client library hangs on a credentials file that is none and takes a seed for granted, so both are read
here. Nothing here opens a connection, and no message shows what it was given.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from noetl.records.protocols import ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.nats import NatsConfig

PORT: Final = 4222
SCHEMES: Final = ("nats", "tls")
SECRET_FIELDS: Final = ("password", "token", "nkey", "creds", "key")

_SEED_BYTES: Final = 36
"""Two for what kind of key it is, 32 for the key, two for the checksum."""
_CREDS: Final = re.compile(
    r"-+BEGIN NATS USER JWT-+\s+(?P<jwt>\S+)\s.*?-+BEGIN USER NKEY SEED-+\s+(?P<seed>\S+)", re.DOTALL
)


class Server(NamedTuple):
    host: str
    port: int
    tls: bool
    """Nothing is said to it before the connection is encrypted."""

    @property
    def shown(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """All that tells one connection from another."""

    servers: tuple[Server, ...]
    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey: str | None = None
    """A user's seed."""
    creds: str | None = None
    """The text of a credentials file: a user's JWT and seed."""
    tls: dict[str, str] = {}
    """`ca`, `cert` and `key`, as PEM."""


async def read_login(config: NatsConfig, context: ToolContext) -> Login:
    fields = await _fields(config.auth, context)
    url = fields.get("url") or config.url
    if not url:
        raise _invalid("there is no server: give a `url`, here or in the credential")
    servers, user_part = _servers(str(url))
    given = {name: str(fields[name]) for name in ("token", "nkey", "creds") if fields.get(name)}
    user = fields.get("user") or fields.get("username")
    if user or fields.get("password"):
        if not user or not fields.get("password"):
            raise _invalid("a login needs both `user` and `password`")
        given |= {"user": str(user), "password": str(fields["password"])}
    if not given:
        given = user_part
    tls = {name: str(fields[name]) for name in ("ca", "cert", "key") if fields.get(name)}
    for secret in ({**given, **tls}.get(name) for name in SECRET_FIELDS):
        if secret is not None:
            context.add_secret(secret)
    if "creds" in given:
        given["creds"] = _checked_creds(given["creds"])
    if "nkey" in given:
        given["nkey"] = _checked_seed(given["nkey"].strip())
    return Login(servers=servers, tls=tls, **given)


async def _fields(auth: object, context: ToolContext) -> Mapping[str, Any]:
    if not auth:
        return {}
    if isinstance(auth, str):
        auth = {"value": auth} if "://" in auth or _CREDS.search(auth) else await context.credential(auth)
    assert isinstance(auth, Mapping)
    whole = auth.get("value")
    if whole is None:
        return auth
    # A keychain entry that is one text, such as a variable: an address, a credentials file, or a token.
    text = str(whole)
    name = "url" if "://" in text else "creds" if _CREDS.search(text) else "token"
    return {name: text}


def _servers(written: str) -> tuple[tuple[Server, ...], dict[str, str]]:
    """The servers, and the login that stands in their addresses."""
    found: list[Server] = []
    login: dict[str, str] = {}
    for each in (part.strip() for part in written.split(",")):
        try:
            parts = urlsplit(each if "://" in each else f"nats://{each}")
            host, port = parts.hostname, parts.port or PORT
        except ValueError:
            raise _invalid("`url` is not the address of a NATS server") from None
        if parts.scheme not in SCHEMES or not host:
            raise _invalid("`url` is not the address of a NATS server: `nats://host:4222` or `tls://…`")
        found.append(Server(host, port, parts.scheme == "tls"))
        if parts.username and not login:
            user = unquote(parts.username)
            password = parts.password
            login = {"token": user} if password is None else {"user": user, "password": unquote(password)}
    return tuple(found), login


def _checked_creds(text: str) -> str:
    found = _CREDS.search(text)
    if found is None:
        raise _invalid("`creds` is not the text of a credentials file")
    seed = _checked_seed(found["seed"])
    return (
        f"-----BEGIN NATS USER JWT-----\n{found['jwt']}\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def _checked_seed(seed: str) -> str:
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        raw = b""
    checksum = raw[-2:][::-1]
    if (
        len(raw) != _SEED_BYTES
        or not seed.startswith("SU")
        or binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "big") != checksum
    ):
        raise _invalid("the seed in `nkey` or `creds` is not the seed of a user")
    return seed


def _invalid(message: str) -> CallFailedError:
    return CallFailedError("config.invalid", message)
