"""Who calls, how often, and whether they may: the one guard that stands before every handler.

It reads the table of policies and nothing else about a route. A route without a row is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

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
        method = str(connection.scope.get("method", "GET"))
        policy = policy_of(method, template)
        caller = await self._caller(connection)
        connection.scope[CALLER] = caller  # type: ignore[typeddict-unknown-key]
        structlog.contextvars.bind_contextvars(caller=caller.name)
        if policy is None:
            raise ForbiddenError("nobody may call this: the route has no policy")
        if policy.permission != PUBLIC:
            self._count(connection, caller, for_workers=policy.for_workers)
        check_protocol(connection.headers.get(PROTOCOL_HEADER))
        permission = policy.permission
        if permission == "public" or not caller.is_checked:
            return
        if caller is NOBODY:
            raise MissingTokenError("this needs a token: send it as `Authorization: Bearer …`")
        if permission != "known" and not allows(caller.role, permission):
            raise ForbiddenError(f"a token with the role `{caller.role}` does not have `{permission}`")

    async def _caller(self, connection: Connection) -> Caller:
        if not self._parts.options.auth:
            check_browser(connection.headers, self._parts.options)
            return LOCAL
        given = connection.headers.get("authorization")
        if given is None:
            return NOBODY
        if not given.lower().startswith(SCHEME):
            raise InvalidTokenError("the Authorization header has no bearer token")
        # A wrong token is counted against the address it came from: guessing must not be free.
        token = await self._parts.tokens.verify(given[len(SCHEME) :].strip())
        if token is None:
            self._count(connection, NOBODY, for_workers=False)
            raise InvalidTokenError("the token is not known, or it has expired or was revoked")
        return Caller(token.name, token.role)

    def _count(self, connection: Connection, caller: Caller, *, for_workers: bool) -> None:
        rates = self._workers if for_workers and caller is not NOBODY else self._people
        client = connection.client
        key = f"token {caller.name}" if caller is not NOBODY else f"address {client.host if client else ''}"
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
