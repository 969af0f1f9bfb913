"""The server itself over HTTP: is it there, can it work, what does it measure, and who works with it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
import structlog
from litestar import Response, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody, PathParameter, QueryParameter

from noetl import __version__
from noetl.client.wire import Answer, Check, Health, Readiness
from noetl.client.wire_work import RuntimeBeat, RuntimeKind, RuntimeKnown, RuntimeRequest
from noetl.errors import NoetlError
from noetl.playbook.load import load
from noetl.records.report import PROTOCOL
from noetl.registry.roles import allows
from noetl.registry.runtime import Registration, Runtime
from noetl.server.auth import check_protocol
from noetl.server.metrics import CONTENT_TYPE, TaskKinds, task_kinds
from noetl.server.parts import Asking, Caller, Given, Parts
from noetl.server.problems import ForbiddenError

CHECK_SECONDS: Final = 3.0

_log = structlog.get_logger("noetl.server")


@get("/api/health", summary="Whether the process answers")
async def health() -> Health:
    return Health(version=__version__, protocol=PROTOCOL)


@get(
    "/api/ready",
    summary="Whether it can work: the store is reachable and its tables are as they should be",
    responses={503: ResponseSpec(data_container=Readiness, description="It cannot work now.")},
)
async def ready(parts: Given, caller: Asking) -> Response[Readiness]:
    store = await _store(parts)
    if not store.ok and not _may_be_told(caller):
        # The words of a driver name hosts, databases and users, and anybody may ask.
        _log.warning("not ready", check=store.name, detail=store.detail)
        store = msgspec.structs.replace(store, detail=None)
    checks = [store, Check(name="running", ok=not parts.stopping.is_set())]
    # Without the bus workers find work by asking, so the server is ready all the same.
    if not parts.control.bus.is_up:
        checks.append(Check(name="bus", ok=True, detail="down: workers poll"))
    is_ready = all(check.ok for check in checks)
    return Response(Readiness(ready=is_ready, checks=tuple(checks)), status_code=200 if is_ready else 503)


def _may_be_told(caller: Caller) -> bool:
    return not caller.is_checked or allows(caller.role, "metrics:read")


async def _store(parts: Parts) -> Check:
    """Reads the queue: that fails on a store that is away and on one whose tables are missing."""
    looking = asyncio.create_task(_look(parts))
    # Not cancelled and waited for: the driver takes ten seconds to give a database up that hangs.
    done, _ = await asyncio.wait({looking}, timeout=CHECK_SECONDS)
    if not done:
        looking.cancel()
        return Check(name="store", ok=False, detail=f"no answer in {CHECK_SECONDS:g} seconds")
    problem = looking.result()
    return Check(name="store", ok=problem is None, detail=problem)


async def _look(parts: Parts) -> str | None:
    """What is wrong with the store."""
    try:
        await parts.store.commands(limit=1)
        await parts.store.next_timer()
    except NoetlError as error:
        return error.message
    return None


@get(
    "/metrics",
    summary="Measurements, as Prometheus reads them",
    responses={200: ResponseSpec(data_container=str, media_type=CONTENT_TYPE)},
)
async def metrics(parts: Given) -> Response[bytes]:
    async def kinds_of(execution_id: str) -> TaskKinds | None:
        row = await parts.store.execution(execution_id)
        entry = None if row is None else await parts.store.catalog_by_digest(row.playbook_digest)
        playbook = None if entry is None else load(entry.source, parts.kinds).playbook
        return None if playbook is None else task_kinds(playbook)

    found = parts.observer.metrics
    await found.settle(kinds_of)
    found.queue(await parts.store.queue(), parts.clock.now())
    return Response(found.page(), media_type=CONTENT_TYPE)


# --- runtimes -------------------------------------------------------------------------------------------


class RuntimeList(Answer, frozen=True, kw_only=True):
    runtimes: tuple[Runtime, ...]


def _named(caller: Caller, kind: RuntimeKind, name: str) -> str:
    """The name under which it is known: a worker's token only speaks for its own workers."""
    if kind == "server" and caller.is_checked and caller.role == "worker":
        raise ForbiddenError("a worker's token cannot speak for a server")
    if kind == "pool" and not caller.may_take_from(name):
        raise ForbiddenError(f"this token is bound to other pools than `{name[:60]}`")
    return caller.worker_id(name) if kind == "worker" else name


@get("/api/runtime", summary="Servers, pools and workers")
async def runtimes(
    parts: Given,
    kind: FromQuery[RuntimeKind | None] = None,
    pool: Annotated[str | None, QueryParameter(min_length=1, max_length=200)] = None,
) -> RuntimeList:
    return RuntimeList(runtimes=tuple(await parts.runtimes.list(kind=kind, pool=pool)))


@post("/api/runtime", summary="Make a runtime known", status_code=200)
async def register(parts: Given, caller: Asking, data: JSONBody[RuntimeRequest]) -> Runtime:
    check_protocol(data.protocol)
    pool = data.name if data.kind == "pool" else data.pool
    if pool is not None and not caller.may_take_from(pool):
        raise ForbiddenError(f"this token is bound to other pools than `{pool[:60]}`")
    name = _named(caller, data.kind, data.name)
    return await parts.runtimes.register(Registration(**msgspec.structs.asdict(data) | {"name": name}))


@post("/api/runtime/heartbeat", summary="Say that a runtime is there", status_code=200)
async def beat(parts: Given, caller: Asking, data: JSONBody[RuntimeBeat]) -> RuntimeKnown:
    return RuntimeKnown(known=await parts.runtimes.beat(data.kind, _named(caller, data.kind, data.name)))


@delete("/api/runtime/{kind:str}/{name:str}", summary="Say that a runtime stops", status_code=200)
async def leave(
    parts: Given,
    caller: Asking,
    kind: FromPath[RuntimeKind],
    name: Annotated[str, PathParameter(min_length=1, max_length=200)],
) -> RuntimeKnown:
    return RuntimeKnown(known=await parts.runtimes.leave(kind, _named(caller, kind, name)))


HANDLERS: Final = (health, ready, metrics, runtimes, register, beat, leave)
