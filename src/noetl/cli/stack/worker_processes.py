"""Workers on this machine as detached processes: starting the next one, and having as many as wanted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from noetl.cli.stack.cluster import noetl, stop_all
from noetl.cli.stack.detached import Detached, recorded

KIND: Final = "worker"
READY: Final = "worker ready"
"""What a worker prints once its server knows of it."""
READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 60.0
SERVERS_ALONE: Final = ("NOETL_STORE", "NOETL_KEY_FILE", "NOETL_KEYS")
"""What a worker does not need, so that its tasks cannot find it in the environment of whoever started it."""


class WorkerOptions(NamedTuple):
    """How workers are started; None: as `noetl worker start` does by itself."""

    pool: str | None = None
    slots: int | None = None
    grace: float | None = None
    server: str | None = None
    environment: Mapping[str, str] = MappingProxyType({})

    def arguments(self) -> list[str]:
        given = {"--pool": self.pool, "--slots": self.slots, "--grace": self.grace, "--server": self.server}
        return [word for name, value in given.items() if value is not None for word in (name, str(value))]


def running_workers(folder: Path) -> list[Detached]:
    return [worker for worker in recorded(folder, KIND) if worker.running() is not None]


def start_worker(folder: Path, options: WorkerOptions) -> Detached:
    """Starts one more, under the first number that is free."""
    taken = {worker.name for worker in running_workers(folder)}
    number = next(number for number in range(1, len(taken) + 2) if f"{KIND}-{number}" not in taken)
    worker = Detached(folder, f"{KIND}-{number}")
    worker.start(
        [*noetl(), "worker", "start", "--name", worker.name, *options.arguments()],
        environment=options.environment,
        at=f"pool {options.pool or 'default'}",
        without=SERVERS_ALONE,
    )
    return worker


def scale(folder: Path, wanted: int, options: WorkerOptions) -> tuple[list[Detached], list[Detached]]:
    """Starts or drains workers until there are as many; those started, and those that ended."""
    running = running_workers(folder)
    leaving = running[wanted:]
    stop_all(leaving, STOP_SECONDS)
    started = [start_worker(folder, options) for _ in range(wanted - len(running))]
    for worker in started:
        worker.wait_until(partial(worker.says, READY), READY_SECONDS)
    return started, leaving
