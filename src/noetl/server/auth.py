"""Who calls, how often, and whether they may: the one guard that stands before every handler.

It reads the table of policies and nothing else about a route. A route without a row is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from noetl.records.report import PROTOCOL
from noetl.registry.roles import allows
from noetl.server.browsers import check_browser
from noetl.server.parts import Caller, Parts
from noetl.server.policies import PUBLIC, policy_of
from noetl.server.problems import (
    ForbiddenError,
    InvalidTokenError,
    MissingTokenError,
    ProtocolError,
    RateExceededError,
)
from noetl.server.rates import Rates

CALLER: Final = "noetl.caller"
"""The key of the caller in the scope of a request."""
NOBODY: Final = Caller("anonymous", "")
LOCAL: Final = Caller("local", "admin", is_checked=False)
PROTOCOL_HEADER: Final = "noetl-protocol"
SCHEME: Final = "bearer "

Connection = ASGIConnection[Any, Any, Any, Any]


class Guard:
    def __init__(self, parts: Parts) -> None:
        options = parts.options
        self._parts = parts
        self._people = Rates(options.requests_per_second, options.request_burst, parts.clock)
        self._workers = Rates(options.worker_requests_per_second, options.worker_request_burst, parts.clock)

    async def __call__(self, connection: Connection, handler: BaseRouteHandler) -> None:
        template = str(connection.scope.get("path_template", connection.scope["path"]))
        await self.admit(connection.scope, template, connection.headers)

    async def admit(self, scope: Scope, template: str, headers: Mapping[str, str]) -> Caller:
        """Who calls, if that one may; RequestError otherwise. The names of headers are in small letters."""
        method = str(scope.get("method", "GET"))
        policy = policy_of(method, template)
        address = scope.get("client")
        host = address[0] if address else ""
        caller = await self._caller(headers, host)
        scope[CALLER] = caller  # type: ignore[typeddict-unknown-key]
        structlog.contextvars.bind_contextvars(caller=caller.name)
        if policy is None:
            raise ForbiddenError("nobody may call this: the route has no policy")
        if policy.permission != PUBLIC:
            self._count(host, caller, for_workers=policy.for_workers)
        check_protocol(headers.get(PROTOCOL_HEADER))
        permission = policy.permission
        if permission == "public" or not caller.is_checked:
            return caller
        if caller is NOBODY:
            raise MissingTokenError("this needs a token: send it as `Authorization: Bearer …`")
        if permission != "known" and not allows(caller.role, permission):
            raise ForbiddenError(f"a token with the role `{caller.role}` does not have `{permission}`")
        return caller

    async def _caller(self, headers: Mapping[str, str], host: str) -> Caller:
        if not self._parts.options.auth:
            check_browser(headers, self._parts.options)
            return LOCAL
        given = headers.get("authorization")
        if given is None:
            return NOBODY
        if not given.lower().startswith(SCHEME):
            raise InvalidTokenError("the Authorization header has no bearer token")
        # A wrong token is counted against the address it came from: guessing must not be free.
        token = await self._parts.tokens.verify(given[len(SCHEME) :].strip())
        if token is None:
            self._count(host, NOBODY, for_workers=False)
            raise InvalidTokenError("the token is not known, or it has expired or was revoked")
        return Caller(token.name, token.role, pools=token.pools)

    def _count(self, host: str, caller: Caller, *, for_workers: bool) -> None:
        rates = self._workers if for_workers and caller is not NOBODY else self._people
        key = f"token {caller.name}" if caller is not NOBODY else f"address {host}"
        wait = rates.wait_of(key)
        if wait > 0.0:
            raise RateExceededError(
                "too many requests with this token; slow down",
                headers={"Retry-After": str(max(1, round(wait + 0.5)))},
            )


def caller_of(scope: Mapping[str, object]) -> Caller:
    found = scope.get(CALLER, NOBODY)
    assert isinstance(found, Caller)
    return found


def check_protocol(written: str | int | None) -> None:
    """Refuses those who speak a protocol two versions away; one version is a rolling upgrade."""
    if written is None:
        return
    if isinstance(written, str) and not (written.isascii() and written.isdigit() and len(written) < 10):
        raise ProtocolError(f"`{written[:20]}` is no version of the protocol; this server speaks {PROTOCOL}")
    spoken = int(written)
    if abs(spoken - PROTOCOL) >= 2:
        older = "worker" if spoken < PROTOCOL else "server"
        raise ProtocolError(
            f"the worker speaks version {spoken} of the protocol and this server version {PROTOCOL}: upgrade "
            f"the {older}",
            headers={"Upgrade": f"noetl/{PROTOCOL}"},
        )
