"""Runs again from a step of an execution that is over, as a new execution."""

from __future__ import annotations

from collections.abc import Mapping

from noetl.control.plane import ControlPlane
from noetl.engine.reuse import CannotRepeatError, reuse_from
from noetl.engine.state import Data
from noetl.playbook.layering import merge
from noetl.store.protocol import CatalogEntry


async def repeat(
    control: ControlPlane,
    execution_id: str,
    changes: Data,
    *,
    entry: CatalogEntry | None = None,
    step: str | None = None,
    failed_items: bool = False,
    secrets: Mapping[str, str] | None = None,
) -> str:
    """The id of the execution that does it, on the playbook of the earlier one or on an edited one.

    `step` is by default the one that failed; `changes` are workload keys.
    """
    earlier = await control.open(execution_id)
    await earlier.freshen()
    if not earlier.state.is_over:
        raise CannotRepeatError(f"execution {execution_id} is not over; resume it instead")
    entry = entry or earlier.entry
    log = await control.store.events(execution_id)
    reuse = reuse_from(control.plan(entry), execution_id, log, step, failed_items=failed_items)
    payload = merge(await control.payload_of(earlier), changes)
    return await control.begin(entry, payload, reuse=reuse, secrets=secrets)
