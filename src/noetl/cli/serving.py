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
from noetl.bus.nats import NatsBus
from noetl.bus.nats_connection import NatsConnection
from noetl.bus.protocol import Bus
from noetl.control.executions import Prepare
from noetl.control.plane import ControlPlane
from noetl.engine.state import Data
from noetl.engine.turn import error_data
from noetl.engine.workload import materialise
from noetl.errors import NoetlError
from noetl.ids import NODE_BITS, Snowflakes, SystemClock
from noetl.playbook.model import Playbook
from noetl.records.protocols import ResultBodies
from noetl.records.result_ref import ref_from_data
from noetl.registry.auth_cache import AuthCache
from noetl.registry.credentials import Credentials
from noetl.registry.opening import open_registry
from noetl.registry.runtime import Runtimes
from noetl.registry.tokens import Tokens
from noetl.results.bodies import FileBodies, decoded
from noetl.results.chosen import ChosenBodies
from noetl.results.nats_objects import NatsObjectBodies
from noetl.secrets.encryption import KeyRing
from noetl.secrets.keychain import Resolver
from noetl.secrets.oauth2 import fetch_token
from noetl.secrets.redaction import Redactor
from noetl.server.app import Api, create_app
from noetl.server.observer import Observer
from noetl.server.options import ServerOptions
from noetl.server.serving import serve
from noetl.server.tracing import Tracer, otlp_spans
from noetl.store.open import open_any
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
    folder: Path
    """Where results lie that are kept in files, and where paths in keychains begin."""
    environment: dict[str, str]
    node: int | None = None
    lease_seconds: float = 30.0


def run_server(wanted: Wanted) -> None:
    """Serves until a signal comes."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(wanted))


async def _serve(wanted: Wanted) -> None:
    async with made(wanted) as app:
        await serve(app)


@contextlib.asynccontextmanager
async def made(wanted: Wanted) -> AsyncIterator[Api]:
    """The application over all its parts, which are closed in the right order afterwards."""
    clock, kinds = SystemClock(), builtin_kinds()
    async with contextlib.AsyncExitStack() as closing:
        store = open_any(wanted.store)
        closing.push_async_callback(store.close)
        registry = await open_registry(wanted.store)
        closing.push_async_callback(registry.close)
        runtimes = Runtimes(registry, clock=clock)
        node = await _free_node(runtimes) if wanted.node is None else wanted.node
        options = msgspec.structs.replace(wanted.options, node=node)
        bus, bodies = await _bus_and_bodies(wanted, closing)
        ids = Snowflakes(clock, node=node)
        credentials = _credentials(wanted, registry, clock, ids)
        resolver = Resolver(
            {name: value for name, value in wanted.environment.items() if not name.startswith(OWN_VARIABLES)},
            wanted.folder,
            clock,
            fetch_token,
            credentials=None if credentials is None else credentials.lookup,
        )
        endpoint = wanted.options.trace_endpoint
        observer = Observer(None if endpoint is None else Tracer(otlp_spans(endpoint, wanted.options.name)))
        control = ControlPlane(
            store,
            kinds,
            clock=clock,
            bus=bus,
            prepare=preparing(resolver),
            on_event=observer.event,
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
            observer=observer,
            options=options,
            clock=clock,
        )


async def _bus_and_bodies(wanted: Wanted, closing: contextlib.AsyncExitStack) -> tuple[Bus, ResultBodies]:
    files = FileBodies(wanted.folder)
    if wanted.nats is None:
        return InProcessBus(POLL_SECONDS), ChosenBodies({"file": files})
    connection = NatsConnection(wanted.nats, name=wanted.options.name)
    closing.push_async_callback(connection.close)
    await connection.open()
    bus = NatsBus(connection)
    closing.push_async_callback(bus.close)
    return bus, ChosenBodies({"nats_object": NatsObjectBodies(connection.jetstream), "file": files})


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


def preparing(resolver: Resolver) -> Prepare:
    """Resolves the keychain of a playbook that is to be started, or says what keeps it from that."""

    async def prepare(playbook: Playbook, payload: Data) -> tuple[dict[str, Any], Data | None]:
        if not playbook.keychain:
            return {}, None
        try:
            workload = materialise(playbook.workload, payload, "")
            found = await resolver.resolve(playbook.keychain, workload)
            Redactor().register_keychain(found)  # raises for a secret that could not be kept out of the log
            return found, None
        except NoetlError as error:
            return {}, error_data(error.code, error.message)

    return prepare


def loading(bodies: ResultBodies) -> Callable[[Data], Awaitable[Any]]:
    """Loads values that are kept outside the database."""

    async def load_stored(ref: Data) -> Any:  # noqa: ANN401 - plain data
        found = ref_from_data(ref)
        assert found is not None
        return decoded(await bodies.get(found))

    return load_stored
