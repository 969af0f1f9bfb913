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
from noetl.registry.tokens import Token
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
from noetl.store.protocol import StoreError

CALLER: Final = "noetl.caller"
"""The key of the caller in the scope of a request."""
NOBODY: Final = Caller("anonymous", "")
LOCAL: Final = Caller("local", "admin", is_checked=False)
PROTOCOL_HEADER: Final = "noetl-protocol"
SCHEME: Final = "bearer "

Connection = ASGIConnection[Any, Any, Any, Any]

_log = structlog.get_logger("noetl.server")


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
        try:
            caller = await self._caller(headers, host)
        except StoreError:
            if policy is None or policy.permission != PUBLIC:
                raise
            caller = NOBODY  # whether the server can work is told all the same
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
        text = bearer_of(headers)
        if text is None:
            return NOBODY
        token = await self._verified(text, host)
        if token is None:
            raise InvalidTokenError("the token is not known, or it has expired or was revoked")
        return Caller(token.name, token.role, pools=token.pools)

    async def _verified(self, text: str, host: str) -> Token | None:
        """The token, where it is one; a wrong one is counted against the address it came from.

        What may be a guess is counted before the database is asked: guessing must not be free, and must not
        keep the database busy. A token in use is no guess, so that nobody who guesses from behind the same
        proxy can lock it out.
        """
        is_met = self._parts.tokens.has_met(text)
        if not is_met:
            self._count(host, NOBODY, for_workers=False)
        try:
            token = await self._parts.tokens.verify(text)
        except StoreError as error:
            if not is_met:
                self._people.give_back(_counted_as(host, NOBODY))
            # Who this is could not be found out, so nothing is told of the database.
            _log.warning("a token could not be looked up", error=error.message)
            raise StoreError("the token cannot be looked up now: the store does not answer") from error
        if token is None and is_met:
            self._count(host, NOBODY, for_workers=False)
        elif token is not None and not is_met:
            self._people.give_back(_counted_as(host, NOBODY))
        return token

    def _count(self, host: str, caller: Caller, *, for_workers: bool) -> None:
        rates = self._workers if for_workers and caller is not NOBODY else self._people
        wait = rates.wait_of(_counted_as(host, caller))
        if wait > 0.0:
            whose = "from this address" if caller is NOBODY else "with this token"
            raise RateExceededError(
                f"too many requests {whose}; slow down",
                headers={"Retry-After": str(max(1, round(wait + 0.5)))},
            )


def _counted_as(host: str, caller: Caller) -> str:
    return f"token {caller.name}" if caller is not NOBODY else f"address {host}"


def bearer_of(headers: Mapping[str, str]) -> str | None:
    """The token that a request was sent with."""
    given = headers.get("authorization")
    if given is None:
        return None
    if not given.lower().startswith(SCHEME):
        raise InvalidTokenError("the Authorization header has no bearer token")
    return given[len(SCHEME) :].strip()


async def is_still_good(parts: Parts, text: str | None) -> bool:
    """Whether a token that was admitted is good yet: for answers that outlast their request by far."""
    if not parts.options.auth:
        return True
    return text is not None and await parts.tokens.verify(text) is not None


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
