"""A server process: listens, and stops gently when it is told to.

On the first signal it stops waiting on behalf of workers and followers, finishes the requests under way and
then the background work; a second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import socket
from types import FrameType
from typing import Final

import structlog
import uvicorn

from noetl.server.app import Api
from noetl.server.http_connections import LimitedConnection, check_paces
from noetl.server.options import check_exposure
from noetl.server.request_log import configure_logs

TICKS: Final = 5
"""The web server's clock ticks ten times a second: how many of them pass between looks at slow requests."""

_log = structlog.get_logger("noetl.server")


class GentleServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: Api) -> None:
        super().__init__(config)
        self._api = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The library would raise the signal again when it has stopped serving, before the rest is closed.
        self.force_exit = self.should_exit
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            now = asyncio.get_running_loop().time()
            check_paces(self.server_state.connections, now, self._api.parts.options.request_seconds)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Before connections are waited for: those that are held open must let go.
        self._api.parts.stopping.set()
        self._api.parts.observer.feed.stop()
        await super().shutdown(sockets)


async def serve(app: Api, *, sockets: list[socket.socket] | None = None) -> None:
    """Serves until a signal comes; UsageError for a server that strangers could use without a token."""
    options = app.parts.options
    check_exposure(options)
    configure_logs(options.log_level)
    if not options.auth:
        _log.warning("nobody is asked for a token", host=options.host, insecure=options.insecure)
    await GentleServer(configured(app), app).serve(sockets=sockets)


def configured(app: Api) -> uvicorn.Config:
    options = app.parts.options
    return uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        lifespan="on",
        http=LimitedConnection,
        ws="none",
        timeout_graceful_shutdown=options.shutdown_seconds,
        timeout_keep_alive=75,
        server_header=False,
        # Whoever asks could name another address each time, and so be counted as another caller each time.
        proxy_headers=False,
    )
