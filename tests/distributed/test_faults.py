"""Every row of the table of faults, with the trials of a short run; `make faults` has the long ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.distributed.outside import Outside
from tests.distributed.processes import Ledger
from tests.distributed.rounds import Ground, Parts, Round, ground_on
from tests.distributed.rows import ROWS, Play, cap, disk
from tests.distributed.services import Services

SEED = 20
PATIENCE_SECONDS = 90.0


@pytest.fixture(scope="module")
def shared(
    services: Services, ledger: Ledger, world: Outside, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """One deployment that all of these are tried on, one after the other."""
    world.reset()
    parts = Parts(servers=3, workers=4, lease_seconds=2.0)
    with ground_on(services, ledger, tmp_path_factory.mktemp("shared"), world, parts) as made:
        yield made


@pytest.mark.parametrize(
    ("row", "trials"),
    [("workers", 30), ("servers", 10), ("postgres", 3), ("nats", 3), ("zombies", 5), ("poison", 3)],
)
def test_executions_come_to_the_same_end_whatever_is_done_to_the_deployment(
    shared: Ground, row: str, trials: int
) -> None:
    _play(shared, ROWS[row].play, trials)


def test_executions_outlive_a_disk_that_is_full_or_read_only_and_a_database_that_is_gone(
    shared: Ground,
) -> None:
    _play(shared, partial(disk, seconds=1.0, gone_seconds=3.0), 1)


def test_a_loop_never_exceeds_its_limit_on_four_workers_and_nearly_always_uses_it(shared: Ground) -> None:
    # So long that what lies between two calls of a lane hardly counts, on a busy machine too.
    _play(shared, partial(cap, items=60, milliseconds=500), 2)


def test_executions_come_to_the_same_end_over_a_network_that_loses_repeats_and_reorders(
    services: Services, ledger: Ledger, outside: Outside, tmp_path_factory: pytest.TempPathFactory
) -> None:
    logs = tmp_path_factory.mktemp("network")
    with ground_on(services, ledger, logs, outside, ROWS["network"].parts) as ground:
        _play(ground, ROWS["network"].play, 50)


def _play(ground: Ground, play: Play, trials: int) -> None:
    """Parts are ready before, and whatever still stands still goes on."""
    ground.stack.start()
    for part in ground.stack.parts():
        part.wait_ready()
    assert play(Round(ground, SEED, PATIENCE_SECONDS), trials) > 0
