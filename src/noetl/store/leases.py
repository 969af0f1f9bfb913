"""What happens to a row of the queue: it is leased, freed, held; and when a fence holds.

These are the rules that every store keeps. The one in memory runs on them; databases say the same in SQL,
and the contract suite compares them. Nothing here knows a clock or a database.
"""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.store.protocol import CommandRow, CommandState, Fence

LONGEST_LEASE: Final = 1e9
"""Thirty years: a lease that is to have no end has this one, which every database can add to a time."""


def lease_end(now: float, seconds: float) -> float:
    return now + min(seconds, LONGEST_LEASE)


def begun(row: CommandRow, until: float) -> CommandRow:
    """A row as it is appended: one that has a worker is leased, for the first time."""
    if row.worker_id is None:
        return row if row.lease_until is None else msgspec.structs.replace(row, lease_until=None)
    return msgspec.structs.replace(row, epoch=max(row.epoch, 1), lease_until=until, is_held=False)


def claimed(row: CommandRow, worker_id: str, until: float) -> CommandRow:
    return msgspec.structs.replace(row, worker_id=worker_id, epoch=row.epoch + 1, lease_until=until)


def freed(row: CommandRow) -> CommandRow:
    return msgspec.structs.replace(row, worker_id=None, lease_until=None, is_held=False)


def held(row: CommandRow) -> CommandRow:
    return msgspec.structs.replace(row, worker_id=None, lease_until=None, is_held=True)


def is_over(row: CommandRow, now: float) -> bool:
    """Whether a lease has run out; one that has no end was never beaten for, and is over as well."""
    return row.worker_id is not None and (row.lease_until is None or row.lease_until <= now)


def holds(fence: Fence, row: CommandRow | None, now: float) -> bool:
    """Whether a fence is the lease that the row is under: one that is gone, free or held is under none."""
    if row is None or row.worker_id is None or row.epoch != fence.epoch:
        return False
    return is_over(row, now) if fence.expired else True


def waiting_order(row: CommandRow) -> tuple[str, int, str]:
    """The longest waiting first; ids of one moment in the order they were made."""
    return row.created_at, len(row.command_id), row.command_id


def state_of(row: CommandRow) -> CommandState:
    if row.is_held:
        return "held"
    return "free" if row.worker_id is None else "leased"
