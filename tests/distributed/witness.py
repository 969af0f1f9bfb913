"""Who had which lease from when on, as the triggers of `witness.sql` have noted it in a test's database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.distributed.stack import Stack


class Lease(NamedTuple):
    execution_id: str
    command: str
    worker: str
    """By the name it was started with."""
    epoch: int
    at: float
    """Since when, in seconds since 1970."""


def leases_of(stack: Stack, execution_ids: Iterable[str]) -> list[Lease]:
    columns = "execution_id, command_id, worker_id, epoch, at"
    sql = f"SELECT {columns} FROM witness.lease WHERE execution_id = ANY(%s)"
    rows = stack.query(sql, ([int(each) for each in execution_ids],))
    return [
        Lease(str(execution_id), command, worker.rpartition(":")[2], epoch, at)
        for execution_id, command, worker, epoch, at in rows
    ]
