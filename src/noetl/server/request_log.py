"""One line of log for each request, with an id that its answer and every line in between has too.

It stands outside the application, so that requests no route knows are logged as well. What workers and load
balancers ask all the time is said at the level `debug`, unless it fails.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
import time
from typing import Any, Final, TextIO

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from noetl.server.metrics import Metrics
from noetl.server.policies import policy_of
from noetl.server.problems import REQUEST_ID

HEADER: Final = "X-Request-Id"
GIVEN: Final = re.compile(rb"^[A-Za-z0-9._-]{1,64}$")

_log = structlog.get_logger("noetl.request")


class RequestLog:
    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope[REQUEST_ID] = request_id  # type: ignore[typeddict-unknown-key]
        status = 500
        began = time.perf_counter()

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        bound = structlog.contextvars.bind_contextvars(request_id=request_id, **_about(scope))
        try:
            await self._app(scope, receive, told)
        finally:
            seconds = time.perf_counter() - began
            route = str(scope.get("path_template") or "unknown")
            self._metrics.request(scope["method"], route, status, seconds)
            log = _log.debug if _is_routine(scope["method"], route) and status < 400 else _log.info
            log(
                "request",
                method=scope["method"],
                path=scope["path"],
                status=status,
                ms=round(seconds * 1000, 3),
            )
            structlog.contextvars.reset_contextvars(**bound)


def _request_id(scope: Scope) -> str:
    """The caller's own id if it has a sensible form."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and GIVEN.match(value):
            return value.decode()
    return secrets.token_hex(8)


def _is_routine(method: str, route: str) -> bool:
    policy = policy_of(method, route)
    return policy is not None and (policy.for_workers or policy.permission in ("public", "metrics:read"))


def _about(scope: Scope) -> dict[str, str]:
    """The execution that the path names."""
    parts = scope["path"].split("/")
    named = len(parts) > 3 and parts[2] in ("executions", "vars") and parts[3].isdigit()
    return {"execution_id": parts[3]} if named else {}


class Lines:
    """What a logger of the server writes to: whole lines, one write for each."""

    __slots__ = ("_write", "name")

    def __init__(self, stream: TextIO, name: str) -> None:
        self._write = stream.write
        self.name = name

    def line(self, written: str) -> None:
        self._write(written + "\n")

    debug = info = warning = error = critical = line


def configure_logs(level: str) -> None:
    """JSON lines on standard error, those of the web server's own logger included."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering: list[Any] = [
        # Without the local variables: tokens, payloads and whole requests are among them.
        structlog.processors.ExceptionRenderer(
            structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        ),
        structlog.processors.JSONRenderer(),
    ]
    stream = sys.stderr
    # Our own lines do not go through the standard library: every execution has some of them.
    structlog.configure(
        processors=[*shared, *rendering],
        logger_factory=lambda name: Lines(stream, name),
        # One that is not wanted costs no more than a call that returns.
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
