"""The queue over HTTP: what workers ask and report, and what people see of it.

A worker reaches only the commands it holds: every lease a request names is compared with who was given it,
each one in a batch by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, get, post
from litestar.params import JSONBody, PathParameter, QueryParameter
from litestar.types import Receive

from noetl.client.wire_work import (
    ChildRequest,
    Claimed,
    CommandState,
    HeardList,
    HeardRequest,
    Kept,
    KeychainView,
    Loaded,
    LoadRequest,
    QueueView,
    StopChildRequest,
    Stopped,
    Taken,
    TakeRequest,
    UnderLease,
)
from noetl.records.command import HeldLease
from noetl.records.protocols import LeaseLostError
from noetl.records.report import (
    AnyCommand,
    Beat,
    BeatReply,
    ChildState,
    Claim,
    LoopSoFar,
    Report,
    ReportReply,
    Verdict,
)
from noetl.server.auth import check_protocol
from noetl.server.parts import Asking, Caller, Given, Parts
from noetl.server.problems import ForbiddenError, RequestError
from noetl.server.views import queue_row

MOST_REMEMBERED: Final = 20_000
WAIT_SLICE: Final = 1.0
"""Waiting is done in pieces of this many seconds, so that a server that stops does not keep workers."""
CLOSED_SECONDS: Final = 0.1
OVER: Final = "the lease is over, or another worker has it"

CommandPath = Annotated[str, PathParameter(min_length=1, max_length=200, description="The id of a command.")]


class LeaseOwners:
    """Which worker was given a lease. That never changes, so what was seen once need not be read again."""

    def __init__(self) -> None:
        self._known: OrderedDict[HeldLease, str] = OrderedDict()

    def note(self, worker_id: str, commands: Iterable[AnyCommand]) -> None:
        for command in commands:
            self._known[command.lease] = worker_id
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    async def holds(self, parts: Parts, caller: Caller, lease: HeldLease) -> bool:
        """Whether the lease was given to one of the caller's workers."""
        if not caller.is_checked:
            return True
        worker_id = self._known.get(lease)
        if worker_id is None:
            row = await parts.store.command(lease.execution_id, lease.command_id)
            if row is None or row.epoch != lease.epoch or row.worker_id is None:
                return False
            worker_id = self._known[lease] = row.worker_id
        return caller.owns(worker_id)


async def _checked(parts: Parts, caller: Caller, command_id: str, lease: HeldLease) -> HeldLease:
    if lease.command_id != command_id:
        raise RequestError("the lease is not one of the command that the address names")
    if not await parts.owners.holds(parts, caller, lease):
        raise LeaseLostError(OVER)
    return lease


# --- claims, beats, reports -----------------------------------------------------------------------------


@post("/api/commands/claim", summary="Lease work, waiting a while for it", status_code=200)
async def claim(
    request: Request[Any, Any, Any], parts: Given, caller: Asking, data: JSONBody[Claim]
) -> Claimed[Any]:
    return await claimed(parts, caller, data, request.receive)


async def claimed(parts: Parts, caller: Caller, data: Claim, receive: Receive) -> Claimed[Any]:
    """`receive` tells when the caller breaks the connection off."""
    check_protocol(data.protocol)
    if not caller.may_take_from(data.pool):
        raise ForbiddenError(f"this token is bound to other pools than `{data.pool[:60]}`")
    asked = msgspec.structs.replace(
        data, worker_id=caller.worker_id(data.worker_id), limit=max(1, min(data.limit, 1_000))
    )
    asked = msgspec.structs.replace(asked, wait_seconds=0.0)
    loop = asyncio.get_running_loop()
    until = loop.time() + max(0.0, min(data.wait_seconds, parts.options.max_wait_seconds))
    gone = asyncio.create_task(_left(receive))
    try:
        await asyncio.sleep(0)  # a caller that has gone already is noticed before anything is leased to it
        # Work for a worker that has gone would only wait for its lease to run out.
        while not gone.done():
            found = await parts.control.claim(asked)
            left = until - loop.time()
            if found or left <= 0 or parts.stopping.is_set():
                parts.owners.note(asked.worker_id, found)
                return Claimed(commands=found)
            await _something_may_be_there(parts, asked, min(left, WAIT_SLICE), gone)
        return Claimed(commands=())
    finally:
        gone.cancel()


async def _left(receive: Receive) -> None:
    """Waits until the caller breaks the connection off."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _something_may_be_there(
    parts: Parts, asked: Claim, seconds: float, gone: asyncio.Task[None]
) -> None:
    """Returns when it is time to look into the queue again, or the caller has gone."""
    woken = asyncio.ensure_future(parts.control.bus.wait(asked.pool, seconds, asked.limit))
    try:
        await asyncio.wait({woken, gone}, return_when=asyncio.FIRST_COMPLETED)
        if woken.done() and not woken.result():
            # A bus that is closed answers at once; asking in a circle would be no waiting.
            await asyncio.sleep(0 if parts.control.bus.is_up else min(seconds, CLOSED_SECONDS))
    finally:
        woken.cancel()
        await asyncio.gather(woken, return_exceptions=True)


@post("/api/commands/heartbeat", summary="Renew leases", status_code=200)
async def heartbeat(parts: Given, caller: Asking, data: JSONBody[Beat]) -> BeatReply:
    return await parts.control.beat(msgspec.structs.replace(data, worker_id=caller.worker_id(data.worker_id)))


@post("/api/events/batch", summary="Report what happened under leases", status_code=200)
async def report(parts: Given, caller: Asking, data: JSONBody[Report]) -> ReportReply:
    """Each lease gets its verdict; one that is over does not hinder the others."""
    return await reported(parts, caller, data)


async def reported(parts: Parts, caller: Caller, data: Report) -> ReportReply:
    check_protocol(data.protocol)
    held, refused = [], []
    for each in data.leases:
        if await parts.owners.holds(parts, caller, each.lease):
            held.append(each)
        else:
            refused.append(
                Verdict(command_id=each.lease.command_id, verdict="refused", stop=True, reason=OVER)
            )
    worker_id = caller.worker_id(data.worker_id)
    # What was done under a lease counts; only the work that would come along with the answer is held back.
    slots = data.free_slots if caller.may_take_from(data.pool) else 0
    reply = await parts.control.report(
        msgspec.structs.replace(data, worker_id=worker_id, leases=tuple(held), free_slots=slots)
    )
    parts.owners.note(worker_id, reply.commands)
    return msgspec.structs.replace(reply, verdicts=(*reply.verdicts, *refused)) if refused else reply


# --- what a leased command needs ------------------------------------------------------------------------


@post("/api/commands/{command_id:str}/keychain", summary="The keychain of its playbook", status_code=200)
async def keychain(
    parts: Given, caller: Asking, command_id: CommandPath, data: JSONBody[UnderLease]
) -> KeychainView:
    lease = await _checked(parts, caller, command_id, data.lease)
    return KeychainView(entries=await parts.control.keychain(lease))


@post("/api/commands/{command_id:str}/loop", summary="What its loop has come to so far", status_code=200)
async def loop(
    parts: Given, caller: Asking, command_id: CommandPath, data: JSONBody[UnderLease]
) -> LoopSoFar:
    return await parts.control.loop_so_far(await _checked(parts, caller, command_id, data.lease))


@post("/api/commands/{command_id:str}/heard", summary="Events a waiting step may look for", status_code=200)
async def heard(
    parts: Given, caller: Asking, command_id: CommandPath, data: JSONBody[HeardRequest]
) -> HeardList:
    lease = await _checked(parts, caller, command_id, data.lease)
    return HeardList(events=await parts.control.heard(lease, data.after, data.limit))


@post("/api/commands/{command_id:str}/signal", summary="Take a signal, waiting a while", status_code=200)
async def take_signal(
    parts: Given, caller: Asking, command_id: CommandPath, data: JSONBody[TakeRequest]
) -> Taken:
    lease = await _checked(parts, caller, command_id, data.lease)
    left = min(data.wait_seconds, parts.options.max_wait_seconds)
    while True:
        piece = min(left, WAIT_SLICE)
        found = await parts.control.take_signal(lease, data.name, piece)
        left -= piece
        if found is not None or left <= 0 or parts.stopping.is_set():
            return Taken(signal=found)


@post("/api/commands/{command_id:str}/child", summary="Start or find a child execution", status_code=200)
async def child(
    parts: Given, caller: Asking, command_id: CommandPath, data: JSONBody[ChildRequest]
) -> ChildState:
    lease = await _checked(parts, caller, command_id, data.lease)
    left = min(data.wait_seconds, parts.options.max_wait_seconds)
    while True:
        piece = min(left, WAIT_SLICE)
        found = await parts.control.child(lease, data.call, piece)
        left -= piece
        if found.is_over or left <= 0 or parts.stopping.is_set():
            return found


@post("/api/commands/{command_id:str}/child/stop", summary="Cancel a child execution", status_code=200)
async def stop_child(
    parts: Given, caller: Asking, command_id: CommandPath, data: JSONBody[StopChildRequest]
) -> Stopped:
    lease = await _checked(parts, caller, command_id, data.lease)
    await parts.control.stop_child(lease, data.call_id)
    return Stopped(call_id=data.call_id)


@post("/api/commands/{command_id:str}/bodies/load", summary="The value of a reference", status_code=200)
async def load_body(
    parts: Given, caller: Asking, command_id: CommandPath, data: JSONBody[LoadRequest]
) -> Loaded:
    lease = await _checked(parts, caller, command_id, data.lease)
    return Loaded(result=await parts.control.load_body(lease, data.ref))


@post("/api/commands/{command_id:str}/bodies", summary="Store a result body", status_code=200)
async def keep_body(
    request: Request[Any, Any, Any],
    parts: Given,
    caller: Asking,
    command_id: CommandPath,
    execution_id: Annotated[str, QueryParameter(pattern="^[0-9]{1,20}$")],
    epoch: Annotated[int, QueryParameter(ge=0, le=2_147_483_647)],
    key: Annotated[str, QueryParameter(min_length=1, max_length=500)],
    checksum: Annotated[str, QueryParameter(pattern="^[0-9a-f]{64}$")],
) -> Kept:
    """The body of the request is the body of the result."""
    held = HeldLease(command_id=command_id, execution_id=execution_id, epoch=epoch)
    lease = await _checked(parts, caller, command_id, held)
    # The execution's own key, made from the body: a worker must not write over what is there already.
    if key != f"noetl://{execution_id}/{checksum[:32]}":
        raise RequestError("the key is not the one of this body in the lease's execution")
    body = await request.body()
    if hashlib.sha256(body).hexdigest() != checksum:
        raise RequestError("the body does not have its checksum")
    await parts.control.keep_body(lease, key, checksum, body)
    return Kept(key=key)


# --- the queue, for people ------------------------------------------------------------------------------


@get("/api/commands", summary="The queue")
async def queue(
    parts: Given,
    execution_id: Annotated[str | None, QueryParameter(pattern="^[0-9]{1,20}$")] = None,
    pool: Annotated[str | None, QueryParameter(min_length=1, max_length=200)] = None,
    condition: Annotated[CommandState | None, QueryParameter(name="state")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=1_000)] = 100,
) -> QueueView:
    rows = await parts.store.commands(execution_id=execution_id, pool=pool, state=condition, limit=limit)
    counted = [
        each
        for each in await parts.store.queue(execution_id=execution_id)
        if pool in (None, each.pool) and condition in (None, each.state)
    ]
    oldest = min((each.oldest for each in counted if each.oldest is not None), default=None)
    return QueueView(
        commands=tuple(map(queue_row, rows)),
        depth=sum(each.depth for each in counted),
        oldest_seconds=None if oldest is None else max(0.0, parts.clock.now() - oldest),
    )


WORKER_HANDLERS: Final = (report, keep_body)
"""Those whose requests may be large."""
HANDLERS: Final = (
    claim,
    heartbeat,
    keychain,
    loop,
    heard,
    take_signal,
    child,
    stop_child,
    load_body,
    queue,
)
