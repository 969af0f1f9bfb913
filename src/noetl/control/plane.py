"""The control plane over one store: starts executions, hands out their work, takes reports.

It is the only writer of the store. It decides nothing itself: it brings what happened to the engine,
writes what the engine decided, and hands the work that came of it to whoever asks. Any number of processes
may run one over the same store, where that store can be shared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final

from noetl.control.changes import DUE
from noetl.control.leasing import Leasing
from noetl.engine import decide
from noetl.engine.bodies import refuse_references
from noetl.engine.leases import run_and_lease
from noetl.engine.state import State
from noetl.errors import NoetlError
from noetl.records.protocols import ExecutionRequest, LeaseLostError
from noetl.store.protocol import CommandRow, Fence

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0


class StartKeyReusedError(NoetlError):
    """An idempotency key under which something else was started."""

    code = "execution.key_reused"


class ControlPlane(Leasing):
    """Implements `noetl.records.protocols.ControlPlane`."""

    # --- executions -------------------------------------------------------------------------------------

    async def start(self, request: ExecutionRequest) -> str:
        """Starts an execution of a playbook in the catalog; the same one again for the same key."""
        execution_id = None
        if request.idempotency_key is not None:
            # An id like any other, not one made from the key: ids tell the time an execution was asked for.
            execution_id = await self.store.start_key(
                request.idempotency_key, self.next_id(), self.clock.now()
            )
            row = await self.store.execution(execution_id)
            if row is not None:
                if row.path != request.path or request.version not in (None, row.version):
                    raise StartKeyReusedError(
                        f"the idempotency key was used for execution {execution_id} of `{row.path}`, "
                        f"version {row.version}: use another one"
                    )
                return execution_id
        entry = await self.catalog_entry(request.path, request.version)
        return await self.begin(
            entry,
            request.payload,
            execution_id=execution_id,
            parent_execution_id=request.parent_execution_id,
            trace=request.trace,
            secrets=request.secrets,
        )

    async def pause(self, execution_id: str) -> None:
        live = await self.open(execution_id)
        await live.change(decide.pause, fresh=True)

    async def signal(self, execution_id: str, name: str, data: Any) -> None:  # noqa: ANN401 - plain data
        refuse_references(data, "the data of the signal")
        live = await self.with_secrets_known(execution_id)
        await live.change(lambda turn: decide.signal(turn, name, data))

    async def finished(self, execution_id: str) -> State:
        """The state of an execution of this process once it is over."""
        live = await self.open(execution_id)
        await live.over.wait()
        return live.state

    async def state(self, execution_id: str) -> State:
        live = await self.open(execution_id)
        await live.freshen()
        return live.state

    # --- what every process over a shared store does -------------------------------------------------------

    async def run_timers(self) -> None:
        """Wakes executions that have something due, until it is cancelled."""
        while True:
            await self._guarded(self._handle_timers())
            await asyncio.sleep(SWEEP_SECONDS)

    async def _handle_timers(self) -> None:
        for timer in await self.store.timers_due(self.clock.now()):
            wake = self._wake if timer.timer_id == DUE else self._after_end
            await self._guarded(wake(timer.execution_id))

    async def run_reaper(self) -> None:
        """Takes back work whose worker is lost, until it is cancelled."""
        while True:
            await self._guarded(self._reap())
            await asyncio.sleep(SWEEP_SECONDS)

    async def _reap(self) -> None:
        for row in await self.store.expired():
            await self._guarded(self.lose(row))

    async def _guarded(self, work: Awaitable[None]) -> None:
        """What goes wrong with one execution, or while the store is away, keeps nothing else waiting."""
        try:
            await work
        except NoetlError as error:
            logger.warning("%s: %s; it is tried again", error.code, error.message)
        # A bug that one execution brings to light must not keep all others waiting.
        except Exception:
            logger.exception("background work failed; it is tried again")

    async def lose(self, row: CommandRow) -> None:
        """Takes back a lease that has run out."""
        live = await self.open(row.execution_id)
        run_id, lease = run_and_lease(row.command_id)
        await self._with_keychain(live)
        fence = Fence(command_id=row.command_id, epoch=row.epoch, expired=True)
        try:
            await live.change(lambda turn: decide.lose(turn, run_id, lease), fence=fence, fresh=True)
        except LeaseLostError:
            return  # it was renewed, or somebody else has taken it back
