"""The control plane over HTTP: for workers where work comes from, for others how executions are steered.

It does what `records.protocols.ControlPlane` says by asking a server, and holds no state of its own but
reports on their way. `context` is the type of what a command carries for the interpreter.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.client.connection import BYTES, Connection, path_of
from noetl.client.reports import Reports
from noetl.client.wire import Accepted, CancelRequest, SignalRequest, Started, StartRequest
from noetl.client.wire_work import (
    ChildRequest,
    Claimed,
    HeardList,
    HeardRequest,
    KeychainView,
    Loaded,
    LoadRequest,
    ReportAnswer,
    StopChildRequest,
    Stopped,
    Taken,
    TakeRequest,
    UnderLease,
)
from noetl.records.command import HeldLease
from noetl.records.protocols import ExecutionRequest
from noetl.records.report import (
    AnyCommand,
    Beat,
    BeatReply,
    ChildCall,
    ChildState,
    Claim,
    Heard,
    LoopSoFar,
    Report,
    ReportReply,
    TakenSignal,
)

_ACCEPTED: Final = msgspec.json.Decoder(Accepted)
_BEAT: Final = msgspec.json.Decoder(BeatReply)
_CHILD: Final = msgspec.json.Decoder(ChildState)
_HEARD: Final = msgspec.json.Decoder(HeardList)
_KEYCHAIN: Final = msgspec.json.Decoder(KeychainView)
_LOADED: Final = msgspec.json.Decoder(Loaded)
_LOOP: Final = msgspec.json.Decoder(LoopSoFar)
_STARTED: Final = msgspec.json.Decoder(Started)
_STOPPED: Final = msgspec.json.Decoder(Stopped)
_TAKEN: Final = msgspec.json.Decoder(Taken)


class HttpControl:
    """A control plane on another machine."""

    def __init__(self, connection: Connection, context: Any = Any) -> None:  # noqa: ANN401 - a type
        self.connection = connection
        self._claimed: msgspec.json.Decoder[Claimed[Any]] = msgspec.json.Decoder(Claimed[context])
        self._reported: msgspec.json.Decoder[ReportAnswer[Any]] = msgspec.json.Decoder(ReportAnswer[context])
        self._reports = Reports(self._send_report)

    async def close(self) -> None:
        await self._reports.close()
        await self.connection.close()

    async def leave_loop(self) -> None:
        """Closes what was opened on the running event loop; others go on."""
        await self.connection.close()

    # --- executions -------------------------------------------------------------------------------------

    async def start(self, request: ExecutionRequest) -> str:
        asked = StartRequest(
            path=request.path,
            version=request.version,
            payload=request.payload,
            idempotency_key=request.idempotency_key,
            parent_execution_id=request.parent_execution_id,
            secrets=request.secrets,
        )
        # Without a key a start whose answer was lost would start twice.
        repeatable = request.idempotency_key is not None
        trace = {} if request.trace is None else {"traceparent": request.trace}
        answer = await self.connection.call(
            "POST", "/api/executions", _STARTED, body=asked, headers=trace, repeatable=repeatable
        )
        return answer.execution_id

    async def cancel(self, execution_id: str, reason: str | None = None) -> None:
        await self._steer(execution_id, "cancel", CancelRequest(reason=reason))

    async def pause(self, execution_id: str) -> None:
        await self._steer(execution_id, "pause")

    async def resume(self, execution_id: str) -> None:
        await self._steer(execution_id, "resume")

    async def signal(self, execution_id: str, name: str, data: Any) -> None:  # noqa: ANN401 - plain data
        asked = SignalRequest(name=name, payload=data)
        # A signal that came twice would be taken twice.
        await self._steer(execution_id, "signal", asked, repeatable=False)

    async def _steer(
        self, execution_id: str, action: str, body: object = None, *, repeatable: bool = True
    ) -> None:
        path = path_of("executions", execution_id, action)
        await self.connection.call("POST", path, _ACCEPTED, body=body, repeatable=repeatable)

    # --- work --------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> tuple[AnyCommand, ...]:
        answer = await self.connection.call(
            "POST", "/api/commands/claim", self._claimed, body=claim, wait_seconds=claim.wait_seconds
        )
        return answer.commands

    async def beat(self, beat: Beat) -> BeatReply:
        return await self.connection.call("POST", "/api/commands/heartbeat", _BEAT, body=beat)

    async def report(self, report: Report) -> ReportReply:
        return await self._reports.put(report)

    async def _send_report(self, report: Report) -> ReportReply:
        answer = await self.connection.call("POST", "/api/events/batch", self._reported, body=report)
        return ReportReply(verdicts=answer.verdicts, commands=answer.commands)

    async def playbook_source(self, digest: str) -> bytes:
        return await self.connection.exchange("GET", path_of("catalog", "sources", digest))

    async def keychain(self, lease: HeldLease) -> dict[str, Any]:
        path = _command(lease, "keychain")
        return (await self.connection.call("POST", path, _KEYCHAIN, body=UnderLease(lease=lease))).entries

    async def load_body(self, lease: HeldLease, ref: dict[str, Any]) -> Any:  # noqa: ANN401 - plain data
        path = _command(lease, "bodies", "load")
        asked = LoadRequest(lease=lease, ref=ref)
        return (await self.connection.call("POST", path, _LOADED, body=asked)).result

    async def keep_body(self, lease: HeldLease, key: str, checksum: str, body: bytes) -> None:
        await self.connection.exchange(
            "POST",
            _command(lease, "bodies"),
            content=body,
            media_type=BYTES,
            query={
                "execution_id": lease.execution_id,
                "epoch": lease.epoch,
                "key": key,
                "checksum": checksum,
            },
        )

    async def loop_so_far(self, lease: HeldLease) -> LoopSoFar:
        return await self.connection.call(
            "POST", _command(lease, "loop"), _LOOP, body=UnderLease(lease=lease)
        )

    async def heard(self, lease: HeldLease, after: int, limit: int | None = None) -> tuple[Heard, ...]:
        asked = HeardRequest(lease=lease, after=after, limit=limit)
        return (await self.connection.call("POST", _command(lease, "heard"), _HEARD, body=asked)).events

    async def take_signal(self, lease: HeldLease, name: str, wait_seconds: float) -> TakenSignal | None:
        asked = TakeRequest(lease=lease, name=name, wait_seconds=wait_seconds)
        path = _command(lease, "signal")
        answer = await self.connection.call("POST", path, _TAKEN, body=asked, wait_seconds=wait_seconds)
        return answer.signal

    async def child(self, lease: HeldLease, call: ChildCall, wait_seconds: float) -> ChildState:
        asked = ChildRequest(lease=lease, call=call, wait_seconds=wait_seconds)
        path = _command(lease, "child")
        return await self.connection.call("POST", path, _CHILD, body=asked, wait_seconds=wait_seconds)

    async def stop_child(self, lease: HeldLease, call_id: str) -> None:
        asked = StopChildRequest(lease=lease, call_id=call_id)
        await self.connection.call("POST", _command(lease, "child", "stop"), _STOPPED, body=asked)


def _command(lease: HeldLease, *parts: str) -> str:
    return path_of("commands", lease.command_id, *parts)
