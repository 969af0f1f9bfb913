"""A deployment that is disturbed, round by round, and what is asked of it after each.

What a round came to is compared with what the same executions come to when nothing happens to them.
"""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.distributed.disturbances import Disturbances
from tests.distributed.losses import given_up, losses_of, reason_of
from tests.distributed.network import Network, network_to
from tests.distributed.outside import Outside, outside_server
from tests.distributed.processes import Ledger
from tests.distributed.services import Services
from tests.distributed.shapes import Under, register, undisturbed
from tests.distributed.stack import Stack, stack_on
from tests.distributed.verdict import Found

END_SECONDS = 120.0


class Ended(KeyboardInterrupt):
    """Somebody wants it to end."""


class Parts(NamedTuple):
    """What a deployment consists of."""

    servers: int = 2
    workers: int = 4
    lease_seconds: float = 1.5
    through_network: bool = False
    """Workers reach their server by a network that can be made faulty."""


class Ground(NamedTuple):
    """A deployment that runs, and what executions come to on it."""

    stack: Stack
    outside: Outside
    expected: dict[str, dict[str, Any]]
    network: Network | None


class Round:
    """Executions that are begun and disturbed, then judged together."""

    def __init__(self, ground: Ground, seed: int, patience: float = END_SECONDS) -> None:
        """`patience`: within so many seconds every execution ends once nothing is done to it any more."""
        self.ground = ground
        self._patience = patience
        self.stack, self.outside, self.network = ground.stack, ground.outside, ground.network
        self.chance = random.Random(seed)
        self.disturbances = Disturbances(self.stack, self.chance)
        self.told = self.disturbances.told
        self.outside.reset()
        self.under = Under(self.stack, self.outside)

    def judge(self, *others: str) -> Found:
        """Waits for the ends, of some other executions too, and asserts all that must be true of them."""
        died = {part.name: part.said()[-2000:] for part in self.stack.parts() if part.has_died}
        assert not died, f"parts have ended by themselves: {died}"
        self.stack.start()
        self.under.send_signals()
        found = self.under.found(*others, resumed=self.disturbances.resumed, seconds=self._patience)
        losses = losses_of(self.stack, found.logs)
        hits = [*self.disturbances.hits, *(() if self.network is None else self.network.hits)]
        excused = given_up(losses, hits)
        self.told["(leases lost)"] += len(losses)
        self.told["(leases lost for no reason)"] += sum(reason_of(loss, hits) is None for loss in losses)
        self.told["(given up)"] += len(excused)
        for execution_id in tuple(excused):
            above = found.parents[execution_id]
            while above is not None:
                excused.add(above)
                above = found.parents.get(above)
        for execution_id, name in self.under.names.items():
            outcome, expected = found.outcomes[execution_id], self.ground.expected[name]
            assert outcome == expected or execution_id in excused, (
                f"{name} {execution_id} came to {outcome} instead of {expected}"
            )
        return found

    def summary(self) -> str:
        return ", ".join(f"{name} {times}" for name, times in sorted(self.told.items()) if times)


@contextmanager
def ground_on(
    services: Services, ledger: Ledger, logs: Path, outside: Outside, parts: Parts, *shapes: str
) -> Iterator[Ground]:
    """A deployment on services that run. `shapes`: which it knows; by default all."""
    with ExitStack() as closing:
        stack = closing.enter_context(
            stack_on(
                services,
                ledger,
                logs,
                servers=parts.servers,
                workers=0 if parts.through_network else parts.workers,
                lease_seconds=parts.lease_seconds,
            )
        )
        network = None
        if parts.through_network:
            network = closing.enter_context(network_to(stack.url(), parts.lease_seconds, seed=7))
            for number in range(1, parts.workers + 1):
                stack.add_worker(network.url(f"worker-{number}"), "--slots", "8")
            stack.start()
        register(stack, *shapes)
        yield Ground(stack, outside, undisturbed(stack, outside, *shapes), network)


@contextmanager
def ground_of_its_own(parts: Parts) -> Iterator[Ground]:
    """A deployment with services of its own. Logs are kept, and told of, if it ends badly."""
    signal.signal(signal.SIGTERM, _end)
    folder = Path(tempfile.mkdtemp(prefix="noetl-rounds-"))
    (logs := folder / "logs").mkdir()
    with ExitStack() as closing:
        ledger = Ledger(folder)
        closing.callback(ledger.close)
        services = Services(folder, ledger)
        closing.callback(services.stop)
        services.start()
        outside = closing.enter_context(outside_server())
        ground = closing.enter_context(ground_on(services, ledger, logs, outside, parts))
        try:
            yield ground
        except BaseException:
            keep_events(ground.stack)
            print(f"the logs of every process are in {logs}", flush=True)
            raise
    shutil.rmtree(folder, ignore_errors=True)


def keep_events(stack: Stack) -> None:
    """Writes what the database has of the last executions beside the logs of the processes."""
    for row in stack.rows()[-80:]:
        lines = [
            f"{committed:.3f} {msgspec.json.encode(event).decode()}\n"
            for event, committed in stack.log(row.execution_id)
        ]
        (stack.folder / f"{row.execution_id}.events").write_text("".join(lines), encoding="utf-8")


def _end(*_: object) -> None:
    raise Ended
