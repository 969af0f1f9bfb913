"""Puts a server together: store, registry, bus, control plane and the HTTP application, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import uvloop

from noetl.bus.in_process import InProcessBus
from noetl.bus.kv import NatsKeyValue
from noetl.bus.nats import NatsBus
from noetl.bus.nats_connection import NatsConnection
from noetl.bus.protocol import Bus
from noetl.cli.collecting import collect_seldom
from noetl.cli.keychains import Keychains
from noetl.control.plane import ControlPlane
from noetl.engine.state import Data
from noetl.ids import NODE_BITS, Snowflakes, SystemClock
from noetl.records.event import Event
from noetl.records.protocols import ResultBodies
from noetl.records.result_ref import ref_from_data
from noetl.registry.auth_cache import AuthCache
from noetl.registry.caller_secrets import CachedCallerSecrets, CallerSecrets, CallerSecretsInMemory
from noetl.registry.credentials import Credentials
from noetl.registry.opening import open_registry
from noetl.registry.runtime import Runtimes
from noetl.registry.sessions import BUCKET, KeyValueSessions, SessionRecords, Sessions, TableSessions
from noetl.registry.tokens import Tokens
from noetl.results.bodies import FileBodies, decoded
from noetl.results.chosen import ChosenBodies
from noetl.results.nats_objects import NatsObjectBodies
from noetl.results.object_urls import place_at
from noetl.secrets.encryption import KeyRing
from noetl.secrets.keychain import FetchToken, Resolver
from noetl.server.app import Api, create_app
from noetl.server.housekeeping import BodyPlace, Chore, Housekeeping
from noetl.server.observer import Observer
from noetl.server.options import ServerOptions
from noetl.server.serving import serve
from noetl.server.tracing import Tracer, otlp_spans
from noetl.store.open import open_any
from noetl.store.protocol import STATEMENT_SECONDS
from noetl.store.registry_protocol import RegistryStore
from noetl.tools.registry import builtin_kinds

POLL_SECONDS: Final = 1.0
"""How often a waiting claim looks into the queue of a store that other servers write, without NATS."""
OWN_VARIABLES: Final = "NOETL_"
"""A playbook's keychain reads the server's environment, but not what the server itself was told there."""


class Wanted(NamedTuple):
    """What `noetl server start` was asked for."""

    options: ServerOptions
    store: str
    nats: str | None
    keys: KeyRing | None
    """The master keys; None: this server keeps no credentials."""
    key_file: Path
    """Where they come from, if from a file: no playbook reads it."""
    folder: Path
    """Where results lie that are kept in files."""
    keychain_folder: Path
    """Below which the files lie that keychains name."""
    environment: dict[str, str]
    node: int | None = None
    lease_seconds: float = 30.0
    statement_seconds: float = STATEMENT_SECONDS
    result_stores: tuple[str, ...] = ()
    fetch_token: FetchToken | None = None
    """None: no keychain of this server asks token endpoints."""
    """URLs under which bodies of results lie that are to go when their executions are forgotten."""


def run_server(wanted: Wanted) -> None:
    """Serves until a signal comes."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(wanted))


async def _serve(wanted: Wanted) -> None:
    async with made(wanted) as app:
        collect_seldom()
        await serve(app)


@contextlib.asynccontextmanager
async def made(wanted: Wanted) -> AsyncIterator[Api]:
    """The application over all its parts, which are closed in the right order afterwards."""
    clock, kinds = SystemClock(), builtin_kinds()
    async with contextlib.AsyncExitStack() as closing:
        store = open_any(wanted.store, statement_seconds=wanted.statement_seconds)
        closing.push_async_callback(store.close)
        registry = await open_registry(wanted.store, statement_seconds=wanted.statement_seconds)
        closing.push_async_callback(registry.close)
        runtimes = Runtimes(registry, clock=clock)
        node = await _free_node(runtimes) if wanted.node is None else wanted.node
        options = msgspec.structs.replace(wanted.options, node=node)
        connection = await _connected(wanted, closing)
        bus, bodies = _bus_and_bodies(wanted, connection, closing)
        ids = Snowflakes(clock, node=node)
        credentials = _credentials(wanted, registry, clock, ids)
        callers = _caller_secrets(credentials, clock)
        resolver = _resolver(wanted, credentials, clock)
        keychains = Keychains(resolver, callers, durable=credentials is not None)
        observer = Observer(_tracer(wanted.options))
        table = TableSessions(registry, clock)
        housekeeping = Housekeeping(
            store,
            clock=clock,
            callers=callers,
            chores=_chores(runtimes, table, credentials),
            retention_days=options.retention_days,
            places=_places(wanted, connection),
        )

        def on_event(event: Event) -> None:
            observer.event(event)
            housekeeping.event(event)

        control = ControlPlane(
            store,
            kinds,
            clock=clock,
            bus=bus,
            prepare=keychains.prepare,
            on_event=on_event,
            on_decided=observer.decided,
            load_stored=loading(bodies),
            lease_seconds=wanted.lease_seconds,
            shared=True,
            distributed=True,
            node=node,
        )
        closing.push_async_callback(control.settle)
        yield create_app(
            control,
            kinds=kinds,
            tokens=Tokens(registry, clock=clock, ids=ids),
            runtimes=runtimes,
            credentials=credentials,
            sessions=Sessions(_session_records(connection, table), clock=clock, ids=ids),
            observer=observer,
            options=options,
            clock=clock,
            background=[control.run_timers, control.run_reaper, *housekeeping.jobs()],
        )


def _tracer(options: ServerOptions) -> Tracer | None:
    endpoint = options.trace_endpoint
    return None if endpoint is None else Tracer(otlp_spans(endpoint, options.name))


def _chores(runtimes: Runtimes, table: TableSessions, credentials: Credentials | None) -> list[Chore]:
    found = [Chore("runtimes", runtimes.clean_up), Chore("sessions", table.clean_up)]
    if credentials is not None:
        found.append(Chore("what was handed out", credentials.cache.clean_up))
    return found


def _session_records(connection: NatsConnection | None, table: TableSessions) -> SessionRecords:
    return table if connection is None else KeyValueSessions(NatsKeyValue(connection, BUCKET))


async def _connected(wanted: Wanted, closing: contextlib.AsyncExitStack) -> NatsConnection | None:
    if wanted.nats is None:
        return None
    connection = NatsConnection(wanted.nats, name=wanted.options.name)
    closing.push_async_callback(connection.close)
    await connection.open()
    return connection


def _bus_and_bodies(
    wanted: Wanted, connection: NatsConnection | None, closing: contextlib.AsyncExitStack
) -> tuple[Bus, ResultBodies]:
    files = FileBodies(wanted.folder)
    if connection is None:
        return InProcessBus(POLL_SECONDS), ChosenBodies({"file": files})
    bus = NatsBus(connection)
    closing.push_async_callback(bus.close)
    return bus, ChosenBodies({"nats_object": NatsObjectBodies(connection.jetstream), "file": files})


def _places(wanted: Wanted, connection: NatsConnection | None) -> list[BodyPlace]:
    """Where bodies lie outside the store, as far as this server can know."""
    found: list[BodyPlace] = [FileBodies(wanted.folder), *map(place_at, wanted.result_stores)]
    if connection is not None:
        found.append(NatsObjectBodies(connection.jetstream))
    return found


async def _free_node(runtimes: Runtimes) -> int:
    """A number that no other replica has, to keep their ids apart. By chance: two may start at once."""
    servers = await runtimes.list(kind="server")
    taken = {server.labels.get("node") for server in servers if server.is_alive}
    return secrets.choice([node for node in range(1 << NODE_BITS) if str(node) not in taken])


def _credentials(
    wanted: Wanted, registry: RegistryStore, clock: SystemClock, ids: Snowflakes
) -> Credentials | None:
    ring = wanted.keys
    if ring is None:
        return None
    cache = AuthCache(registry, ring, clock, lasts_seconds=wanted.options.credential_cache_seconds)
    return Credentials(registry, ring, clock=clock, ids=ids, cache=cache)


def _caller_secrets(credentials: Credentials | None, clock: SystemClock) -> CallerSecrets:
    return CallerSecretsInMemory(clock) if credentials is None else CachedCallerSecrets(credentials.cache)


def _resolver(wanted: Wanted, credentials: Credentials | None, clock: SystemClock) -> Resolver:
    return Resolver(
        {name: value for name, value in wanted.environment.items() if not name.startswith(OWN_VARIABLES)},
        wanted.keychain_folder,
        clock,
        wanted.fetch_token,
        credentials=None if credentials is None else credentials.lookup,
        confined=True,
        hidden=wanted.key_file,
    )


def loading(bodies: ResultBodies) -> Callable[[Data], Awaitable[Any]]:
    """Loads values that are kept outside the database."""

    async def load_stored(ref: Data) -> Any:  # noqa: ANN401 - plain data
        found = ref_from_data(ref)
        assert found is not None
        return decoded(await bodies.get(found), found)

    return load_stored
