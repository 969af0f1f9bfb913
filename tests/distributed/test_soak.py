"""What a soak takes for growth, on made-up samples: a steady process passes, one that leaks does not."""

from __future__ import annotations

import random

import pytest

from tests.distributed.soak import LEAST_SAMPLES, LOOK_SECONDS, MOST_DESCRIPTORS, Sample, violations

BEGINS_WITH = 100 * 1024
"""KiB."""
MINUTES = 10


def life(
    part: str,
    *,
    minutes: float = MINUTES,
    kib_a_minute: float = 0.0,
    opened_a_minute: float = 0.0,
    first_minute: float = 0.0,
    first_kib: float = 0.0,
    pid: int = 1,
) -> list[Sample]:
    """A process that is looked at as often as a soak does, and uses now a little more, now a little less.

    `first_minute`, `first_kib`: it is so much smaller until then, as one is that warms up.
    """
    chance = random.Random(f"{part} {pid}")
    found = []
    for number in range(int(minutes * 60 / LOOK_SECONDS)):
        at = number * LOOK_SECONDS / 60
        cold = first_kib * max(0.0, first_minute - at) / first_minute if first_minute else 0.0
        kib = BEGINS_WITH + kib_a_minute * at - cold + chance.uniform(-2_000, 2_000)
        found.append(Sample(at, part, pid, int(kib), int(20 + opened_a_minute * at)))
    return found


def test_processes_that_stay_as_they_are_pass() -> None:
    assert violations([*life("server-1"), *life("worker-1"), *life("worker-2")]) == []


def test_what_a_process_takes_while_it_warms_up_is_not_growth() -> None:
    warming = life("server-1", first_minute=1.5, first_kib=40 * 1024)
    assert violations([*warming, *life("worker-1")]) == []


@pytest.mark.parametrize("part", ["server-1", "worker-1"])
def test_a_process_that_keeps_something_of_every_execution_is_told_of(part: str) -> None:
    leaking = life(part, kib_a_minute=3 * 60 * 10)  # three executions a second, 10 KiB of each
    others = [each for name in ("server-1", "worker-1") if name != part for each in life(name)]
    (found,) = violations([*others, *leaking])
    assert found.startswith(f"{part} grew by 1")


def test_a_process_that_leaves_files_open_is_told_of() -> None:
    leaking = life("worker-1", opened_a_minute=2 * MOST_DESCRIPTORS / MINUTES)
    (found,) = violations([*life("server-1"), *leaking])
    assert found.startswith("worker-1 grew by")


def test_a_process_that_was_killed_and_started_again_is_two() -> None:
    lives = [life("worker-2", minutes=5, kib_a_minute=500, pid=pid) for pid in (1, 2)]
    assert violations([*life("server-1"), *life("worker-1"), *lives[0], *lives[1]]) == []


def test_a_process_that_was_started_on_the_way_is_not_judged_for_warming_up() -> None:
    late = [each._replace(minute=each.minute + 40) for each in life("server-2", kib_a_minute=1_500)]
    assert violations([*life("server-1", minutes=60), *life("worker-1", minutes=60), *late]) == []


def test_where_no_server_or_no_worker_lived_long_enough_nothing_is_proven() -> None:
    short = (LEAST_SAMPLES - 1) * LOOK_SECONDS / 60
    found = violations([*life("server-1"), *life("worker-1", minutes=short)])
    assert found == ["no worker lived long enough to be judged: more minutes, or --no-faults"]
    assert violations([]) == ["nothing was measured"]
