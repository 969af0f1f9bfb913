"""The application: handlers, guard, limits and background work put together over one replica's parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from litestar import Litestar, Request, Router
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp

from noetl.control.plane import ControlPlane
from noetl.errors import NoetlError
from noetl.ids import Clock, SystemClock
from noetl.records.tool import ToolDescription
from noetl.registry.credentials import Credentials
from noetl.registry.runtime import Registration, Runtimes
from noetl.registry.sessions import Sessions
from noetl.registry.tokens import Tokens
from noetl.server import access, commands, event_log, executions, machines, playbooks, stored, variables
from noetl.server.api_description import description_handlers
from noetl.server.auth import Guard, caller_of
from noetl.server.observer import Observer
from noetl.server.options import ServerOptions
from noetl.server.parts import Caller, Given, Parts
from noetl.server.problems import EVERY_HEADERS
from noetl.server.problems import HANDLERS as PROBLEM_HANDLERS
from noetl.server.quick_routes import QuickRoutes
from noetl.server.request_bodies import StrictRequest
from noetl.server.request_log import RequestLog

BEAT_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = 1.0
"""How long after a failure background work is taken up again."""

Background = Callable[[], Awaitable[None]]

_log = structlog.get_logger("noetl.server")


def handlers() -> tuple[BaseRouteHandler, ...]:
    """Every handler but those that describe them."""
    return (
        *machines.HANDLERS,
        *playbooks.HANDLERS,
        *executions.HANDLERS,
        *event_log.HANDLERS,
        *commands.HANDLERS,
        *commands.WORKER_HANDLERS,
        *variables.HANDLERS,
        *stored.HANDLERS,
        *access.HANDLERS,
    )


class Api(Litestar):
    """The application with the parts it was made of."""

    __slots__ = ("parts",)

    parts: Parts


def create_app(
    control: ControlPlane,
    *,
    kinds: Mapping[str, ToolDescription],
    tokens: Tokens,
    runtimes: Runtimes,
    credentials: Credentials | None = None,
    sessions: Sessions | None = None,
    observer: Observer | None = None,
    options: ServerOptions | None = None,
    clock: Clock | None = None,
    background: Sequence[Background] | None = None,
) -> Api:
    """The API over a control plane and a registry.

    `observer` must be the one whose `event` the control plane was given. `background`: what runs as long as
    the application does, by default the timers and the reaper of the control plane.
    """
    parts = Parts(
        control=control,
        kinds=kinds,
        tokens=tokens,
        credentials=credentials,
        sessions=sessions,
        runtimes=runtimes,
        observer=observer or Observer(),
        options=options or ServerOptions(),
        clock=clock or SystemClock(),
        owners=commands.LeaseOwners(),
        stopping=asyncio.Event(),
    )
    jobs = [control.run_timers, control.run_reaper] if background is None else list(background)
    known = handlers()
    large = Router(
        "/",
        route_handlers=list(commands.WORKER_HANDLERS),
        request_max_body_size=parts.options.max_report_bytes,
    )
    others = [each for each in known if each not in commands.WORKER_HANDLERS]
    guard = Guard(parts)
    app = Api(
        route_handlers=[*others, large, *description_handlers(known)],
        guards=[guard],
        dependencies={
            "parts": Provide(lambda: parts, sync_to_thread=False),
            "caller": Provide(_caller, sync_to_thread=False),
        },
        exception_handlers=PROBLEM_HANDLERS,
        request_class=StrictRequest,
        request_max_body_size=parts.options.max_body_bytes,
        response_headers=EVERY_HEADERS,
        openapi_config=None,
        logging_config=None,
        lifespan=[lambda _: _running(parts, jobs)],
    )
    app.parts = parts
    inner: ASGIApp = app.asgi_handler
    quick = QuickRoutes(inner, parts, guard, EVERY_HEADERS)
    app.asgi_handler = RequestLog(quick, parts.observer.metrics)
    return app


def _caller(request: Request[Any, Any, Any], parts: Given) -> Caller:
    """Asks for the parts only to come after them: dependencies that stand side by side get a task each."""
    return caller_of(request.scope)


@asynccontextmanager
async def _running(parts: Parts, jobs: Sequence[Background]) -> AsyncIterator[None]:
    """What a replica does beside answering: timers, leases that ran out, and its place in `runtime`."""
    tasks = [asyncio.create_task(_kept_up(job)) for job in (*jobs, lambda: _present(parts))]
    try:
        yield
    finally:
        parts.stopping.set()
        parts.observer.feed.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await parts.runtimes.leave("server", parts.options.name)
        except NoetlError as error:
            _log.warning("could not say goodbye", error=error.message)
        parts.observer.close()


async def _kept_up(job: Background) -> None:
    """Runs something for ever, again after it failed: the store may be away for a while."""
    while True:
        try:
            await job()
        except NoetlError as error:
            _log.warning("background work failed", code=error.code, error=error.message)
        # A bug in one of them must not silently end what every execution needs.
        except Exception as error:  # noqa: BLE001 - it goes to the log, and the work goes on
            _log.error("background work failed", exc_info=error)
        await asyncio.sleep(AGAIN_SECONDS)


async def _present(parts: Parts) -> None:
    options = parts.options
    registration = Registration(
        kind="server", name=options.name, labels={"host": options.host, "node": str(options.node)}
    )
    await parts.runtimes.register(registration)
    while await parts.runtimes.beat("server", options.name):
        await asyncio.sleep(BEAT_SECONDS)
