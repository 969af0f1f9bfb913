"""Requests to an execution: through the inbox of the process that owns the store, or by our own hand.

One process owns a store and alone writes its executions. Where there is none, the request takes the store
for a moment, carries itself out, and lets go.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Final, Literal, TypeAlias

from noetl.cli.reading import find_execution
from noetl.cli.stores import AnyPlace, Place, ServedPlace
from noetl.control.plane import ControlPlane
from noetl.embedded import carry_out
from noetl.errors import UsageError
from noetl.ids import NODE_BITS, Snowflakes, SystemClock
from noetl.store.protocol import InboxRow
from noetl.store.sqlite import SqliteStore
from noetl.tools.registry import builtin_kinds

RequestKind: TypeAlias = Literal["signal", "cancel", "pause", "resume"]

OVER: Final = {"completed": "has completed", "failed": "has failed", "cancelled": "was cancelled"}
ANSWER_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.02


async def steer(place: AnyPlace, kind: RequestKind, execution_id: str, payload: dict[str, Any]) -> None:
    """Has a request carried out, and returns when it is: UsageError where it cannot be."""
    if isinstance(place, ServedPlace):
        await _on_server(place, kind, execution_id, payload)
        return
    store = place.read()
    try:
        row = await find_execution(store, execution_id)
        if row.status in OVER:
            raise UsageError(f"execution {execution_id} is over: it {OVER[row.status]}")
        if store.owned_by_other():
            if not await ask_owner(store, kind, execution_id, payload):
                raise UsageError(
                    f"the process that owns the store has not answered; it will {kind} it if it can"
                )
            return
    finally:
        await store.close()
    await _by_our_own_hand(place, _request(kind, execution_id, payload))


async def _on_server(
    place: ServedPlace, kind: RequestKind, execution_id: str, payload: dict[str, Any]
) -> None:
    # What talks HTTP is slow to import, and only commands to a server need it.
    from noetl.client.control import HttpControl  # noqa: PLC0415

    served = place.read()
    control = HttpControl(served.api.connection)
    try:
        row = await find_execution(served, execution_id)
        if row.status in OVER:
            raise UsageError(f"execution {execution_id} is over: it {OVER[row.status]}")
        match kind:
            case "signal":
                await control.signal(execution_id, payload["name"], payload.get("data"))
            case "cancel":
                await control.cancel(execution_id, payload.get("reason"))
            case "pause":
                await control.pause(execution_id)
            case "resume":
                await control.resume(execution_id)
    finally:
        await served.close()


async def ask_owner(
    store: SqliteStore, kind: RequestKind, execution_id: str, payload: dict[str, Any]
) -> bool:
    """Puts a request into the inbox; whether it was carried out. A signal is kept there until it is."""
    await store.put_inbox(_request(kind, execution_id, payload))
    if kind == "signal":
        return True
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
        row = await find_execution(store, execution_id)
        if row.status in OVER or _is_carried_out(kind, row.status):
            return True
    return False


def _is_carried_out(kind: RequestKind, status: str) -> bool:
    match kind:
        case "pause":
            return status == "paused"
        case "resume":
            return status != "paused"
    return False


def _request(kind: RequestKind, execution_id: str, payload: dict[str, Any]) -> InboxRow:
    # The process is part of the id: two of them may ask in the same millisecond.
    ids = Snowflakes(SystemClock(), node=os.getpid() % (1 << NODE_BITS))
    return InboxRow(request_id=ids.next(), kind=kind, execution_id=execution_id, payload=payload)


async def _by_our_own_hand(place: Place, request: InboxRow) -> None:
    store = place.own()
    try:
        control = ControlPlane(store, builtin_kinds(), clock=SystemClock())
        await carry_out(control, request)
        await control.settle()  # the children of an execution that is over end after it
    finally:
        await store.close()
