"""A whole server in the test's own process: control plane, registry and application over stores in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import uvicorn

from noetl.control.plane import ControlPlane
from noetl.engine.state import Data
from noetl.ids import Snowflakes, SystemClock
from noetl.playbook.load import load
from noetl.playbook.model import Playbook
from noetl.records.event import Event
from noetl.registry.credentials import Credentials
from noetl.registry.roles import Role
from noetl.registry.runtime import Runtimes
from noetl.registry.sessions import Sessions, TableSessions
from noetl.registry.tokens import Tokens
from noetl.secrets.encryption import KeyRing, MasterKey
from noetl.server.app import Api, Background, create_app
from noetl.server.observer import Observer
from noetl.server.options import ServerOptions
from noetl.server.serving import GentleServer
from noetl.store.memory import MemoryStore
from noetl.store.protocol import CatalogEntry, Store
from noetl.store.registry_sqlite import open_sqlite_registry
from noetl.tools.registry import builtin_kinds

LEASE_SECONDS = 30.0
KINDS = builtin_kinds()


class Replica(NamedTuple):
    app: Api
    control: ControlPlane
    store: Store
    tokens: Tokens
    credentials: Credentials
    events: list[Event]

    async def token(self, role: Role, name: str | None = None) -> str:
        return (await self.tokens.create(name or role, role)).text

    async def register(self, text: str) -> CatalogEntry:
        loaded = load(text.encode(), KINDS)
        assert loaded.playbook is not None, loaded.diagnostics
        book = loaded.playbook
        return await self.store.register(
            book.path, book.name, book.dialect, text.encode(), "2025-06-15T12:00:00Z"
        )

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        """A client that calls the application directly, without a socket."""
        given = headers if token is None else headers | {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)  # type: ignore[arg-type]
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8082", headers=given)


async def keychain_of(
    playbook: Playbook, payload: Data, origin: object
) -> tuple[dict[str, Any], Data | None]:
    return {name: f"value of {name}" for name in _names(playbook)}, None


def _names(playbook: Playbook) -> list[str]:
    return [entry.name for entry in playbook.keychain]


@asynccontextmanager
async def replica(
    options: ServerOptions | None = None,
    store: Store | None = None,
    background: Sequence[Background] | None = None,
    **about: Any,
) -> AsyncIterator[Replica]:
    clock = SystemClock()
    store = store or MemoryStore()
    registry = open_sqlite_registry("sqlite:///:memory:")
    ids = Snowflakes(clock)
    events: list[Event] = []
    observer = Observer()

    def on_event(event: Event) -> None:
        events.append(event)
        observer.event(event)

    control = ControlPlane(
        store,
        KINDS,
        clock=clock,
        prepare=keychain_of,
        on_event=on_event,
        on_decided=observer.decided,
        lease_seconds=LEASE_SECONDS,
        shared=True,
        **about,
    )
    tokens = Tokens(registry, clock=clock, ids=ids)
    credentials = Credentials(registry, KeyRing([MasterKey.random()]), clock=clock, ids=ids)
    app = create_app(
        control,
        kinds=KINDS,
        tokens=tokens,
        runtimes=Runtimes(registry, clock=clock),
        credentials=credentials,
        sessions=Sessions(TableSessions(registry, clock), clock=clock, ids=ids),
        observer=observer,
        options=options or ServerOptions(auth=False, requests_per_second=0),
        clock=clock,
        background=background,
    )
    try:
        yield Replica(app, control, store, tokens, credentials, events)
    finally:
        await control.settle()
        await registry.close()
        await store.close()


class Served(NamedTuple):
    url: str
    server: uvicorn.Server


@asynccontextmanager
async def served(app: Api) -> AsyncIterator[Served]:
    """The application on a port of its own, with its background work."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=5
    )
    server = GentleServer(config, app)
    # The test's process keeps its own signals.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:
            await asyncio.sleep(0)
            assert not running.done(), "the server did not start"
        yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}", server)
    finally:
        server.should_exit = True
        await running
        listening.close()
