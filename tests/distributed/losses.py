"""Workers that were lost, as the log tells it, against what the tests have done to them.

The log says that a worker was lost, and the database's witness which one had the lease. A step may be given
up only when its workers were really taken from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from noetl.engine.decide import MOST_LOSSES
from noetl.engine.leases import command_id
from tests.distributed.stack import Logged, Stack
from tests.distributed.witness import Lease, leases_of


class Held(NamedTuple):
    """One lease of a command."""

    execution_id: str
    command: str
    epoch: int


class Hit(NamedTuple):
    """Something that tests have done to a deployment."""

    what: str
    at: float
    """Seconds since 1970."""
    until: float
    """From here on it takes no lease away from anybody."""
    workers: frozenset[str]
    """Those that cannot keep their leases meanwhile."""
    leases: frozenset[Held] | None = None
    """Those that nobody can keep, for their worker never heard of them; None: all that its workers had."""


class Loss(NamedTuple):
    """A lease that was taken back."""

    execution_id: str
    command: str
    losses: int
    """In a row, with this one."""
    worker: str
    epoch: int
    leased_at: float
    at: float
    after_progress: bool
    """A task of the step has finished since the loss before it."""


def losses_of(stack: Stack, logs: dict[str, list[Logged]]) -> list[Loss]:
    """Every loss in some logs, with the worker that had the lease."""
    leases: defaultdict[tuple[str, str], list[Lease]] = defaultdict(list)
    for lease in leases_of(stack, logs):
        leases[lease.execution_id, lease.command].append(lease)
    found = []
    for execution_id, log in logs.items():
        finished: set[str] = set()
        for event, committed in log:
            run = str(event.step_run_id)
            if event.event_type == "task.done":
                finished.add(run)
            if event.event_type != "command.expired":
                continue
            command = command_id(run, event.payload["lease"])
            held = [each for each in leases[execution_id, command] if each.at <= committed]
            assert held, f"{command} of {execution_id} was lost, and nobody had it"
            last = max(held, key=lambda each: each.at)
            found.append(
                Loss(
                    execution_id,
                    command,
                    event.payload["losses"],
                    last.worker,
                    last.epoch,
                    last.at,
                    committed,
                    run in finished,
                )
            )
            finished.discard(run)
    return found


def given_up(losses: Sequence[Loss], hits: Sequence[Hit]) -> set[str]:
    """The executions of which a step was given up, each with right.

    With right: the step has lost its worker as often in a row as is allowed, no task of it has finished in
    between, and to each of the workers that had it something was done while it had it.
    """
    rows: defaultdict[tuple[str, str], list[Loss]] = defaultdict(list)
    found = set()
    for loss in losses:
        row = rows[loss.execution_id, loss.command]
        row.append(loss)
        if loss.losses < MOST_LOSSES:
            continue
        last = row[-MOST_LOSSES:]
        assert [each.losses for each in last] == list(range(1, MOST_LOSSES + 1)), f"miscounted: {row}"
        assert not any(each.after_progress for each in last[1:]), f"given up between finished tasks: {row}"
        assert len({each.leased_at for each in last}) == MOST_LOSSES, f"one lease lost twice: {row}"
        left = list(hits)
        for each in last:
            reason = reason_of(each, left)
            assert reason is not None, f"given up, though nothing had happened to {each.worker}: {each}"
            left.remove(reason)
        found.add(loss.execution_id)
    return found


def reason_of(loss: Loss, hits: Iterable[Hit]) -> Hit | None:
    """What was done to the worker that had the lease, while it had it."""
    held = Held(loss.execution_id, loss.command, loss.epoch)
    for hit in hits:
        is_meant = loss.worker in hit.workers if hit.leases is None else held in hit.leases
        if is_meant and hit.at <= loss.at and hit.until >= loss.leased_at:
            return hit
    return None
