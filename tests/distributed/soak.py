"""A steady mixed load for a long time, with a fault a minute, and what every process uses meanwhile.

`make soak MINUTES=120`. Memory and descriptors are sampled every few seconds and told minute by minute, with
the rows of the queue and the number of files in the processes' folders. Before that, servers and workers are
made to remember as much as they ever will. At the end each server and worker must use about as much memory in
the last fifth of its life as in the second, and every execution must have come to what it comes to
undisturbed. A process that was killed begins anew, so faults spare the first of each kind.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, linear_regression
from typing import NamedTuple

from tests.distributed.chaos import any_fault
from tests.distributed.processes import Process
from tests.distributed.rounds import Ground, Parts, Round, ground_of_its_own
from tests.distributed.shapes import BY_NAME
from tests.distributed.stack import Stack

LOOK_SECONDS = 5.0
MOST_GROWTH = 0.10
"""Of memory, between the second fifth of a life and its last."""
LEAST_SAMPLES = 45
"""A life that is shorter is not judged: it has hardly warmed up."""
WARM_MINUTES = 1.0
"""Who was started later than that was not warmed up, and takes a quarter of an hour for it."""
WARM_UP_SECONDS = 120.0
"""For one round of warming up."""
MOST_DESCRIPTORS = 64
"""So many more than at its first fifth a process may have open."""


class Sample(NamedTuple):
    minute: float
    part: str
    pid: int
    kib: int
    descriptors: int


class Soak:
    def __init__(self, ground: Ground, seed: int, rate: float, *, has_faults: bool) -> None:
        self._ground = ground
        self._stack: Stack = ground.stack
        self._seed = seed
        self._rate = rate
        self._has_faults = has_faults
        self._began = time.monotonic()
        self.samples: list[Sample] = []
        self.executions = 0

    def warm_up(self, executions: int) -> None:
        """Fills what processes remember, up to their limits, as fast as they can."""
        while (known := self._stack.query("SELECT count(*) FROM noetl.execution")[0][0]) < executions:
            each = Round(self._ground, self._seed + known)
            for name in ("chain", "parent", "pages", "large") * 12:
                each.under.begin(name, server=each.chance.randrange(len(self._stack.servers)))
            self._stack.wait_ended(each.under.names, WARM_UP_SECONDS)
        self._began = time.monotonic()

    def run(self, minutes: int) -> None:
        for number in range(minutes):
            each = Round(self._ground, self._seed + number)
            each.disturbances.spares_first = True
            self._play(each, until=60.0 * (number + 1))
            self.executions += len(each.under.names)
            self._tell(number + 1, each)

    def _play(self, each: Round, until: float) -> None:
        """Begins executions at the rate, looks around every few seconds, makes the minute's fault."""
        begun, began, looked = 0, self._seconds(), 0.0
        fault_at = began + each.chance.uniform(5.0, 30.0)
        last = until - 8.0  # what was begun by then ends within the minute, and the next one begins clean
        while self._seconds() < last:
            now = self._seconds()
            if now >= looked + LOOK_SECONDS:
                self._look()
                looked = now
            if self._has_faults and now >= fault_at:
                any_fault(each)(each.disturbances)
                fault_at = until
            if now - began >= begun / self._rate:
                each.under.begin(each.chance.choice(list(BY_NAME)), server=begun % len(self._stack.servers))
                begun += 1
            else:
                time.sleep(0.01)
        each.judge()
        time.sleep(max(0.0, until - self._seconds()))

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _look(self) -> None:
        for part in self._stack.parts():
            if part.is_running:
                self.samples.append(_sample(part, self._seconds() / 60.0))

    def _tell(self, minute: int, each: Round) -> None:
        latest = {sample.part: sample for sample in self.samples}
        used = ", ".join(
            f"{name} {sample.kib / 1024:.0f} MiB {sample.descriptors} fd" for name, sample in latest.items()
        )
        rows = {
            name: self._stack.query(f"SELECT count(*) FROM noetl.{name}")[0][0]
            for name in ("command", "timer", "execution")
        }
        files = sum(1 for found in self._stack.folder.rglob("*") if found.is_file())
        counts = ", ".join(f"{name} {count}" for name, count in rows.items())
        print(
            f"minute {minute}: {used}; rows: {counts}; files {files}; {each.summary() or 'no fault'}",
            flush=True,
        )


def violations(samples: Sequence[Sample]) -> list[str]:
    """Prints what the memory of each process came to; the processes that grew too much."""
    lives: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        lives[sample.part, sample.pid].append(sample)
    long_lives = {
        life: seen
        for life, seen in lives.items()
        if len(seen) >= LEAST_SAMPLES and seen[0].minute <= WARM_MINUTES
    }
    grown = [_growth(part, pid, seen) for (part, pid), seen in long_lives.items()]
    unjudged = {_kind(part) for part, _ in lives} - {_kind(part) for part, _ in long_lives}
    return [
        *(each for each in grown if each is not None),
        *(f"no {kind} lived long enough to be judged: more minutes, or --no-faults" for kind in unjudged),
        *(() if lives else ("nothing was measured",)),
    ]


def _growth(part: str, pid: int, samples: list[Sample]) -> str | None:
    """By how much a process grew, if that is too much."""
    fifth = len(samples) // 5
    early, late, warm = samples[fifth : 2 * fifth], samples[-fifth:], samples[fifth:]
    before, after = (fmean(sample.kib for sample in some) for some in (early, late))
    slope = linear_regression([each.minute for each in warm], [each.kib for each in warm]).slope
    growth = after / before - 1
    opened = max(each.descriptors for each in late) - max(each.descriptors for each in samples[:fifth])
    print(
        f"{part} ({pid}, {samples[-1].minute - samples[0].minute:.1f} min): {before / 1024:.1f} -> "
        f"{after / 1024:.1f} MiB ({growth:+.1%}), slope {slope:+.1f} KiB/min, descriptors {opened:+d}"
    )
    is_too_much = growth > MOST_GROWTH or opened > MOST_DESCRIPTORS
    return f"{part} grew by {growth:.1%} and {opened} descriptors" if is_too_much else None


def _kind(part: str) -> str:
    return part.partition("-")[0]


def _sample(part: Process, minute: float) -> Sample:
    process = Path("/proc") / str(part.pid)
    status = (process / "status").read_text("utf-8")
    kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return Sample(minute, part.name, part.pid, kib, sum(1 for _ in (process / "fd").iterdir()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--rate", type=float, default=3.0, help="executions begun each second")
    parser.add_argument("--servers", type=int, help="by default one, with faults two", default=None)
    parser.add_argument("--workers", type=int, help="by default two, with faults three", default=None)
    parser.add_argument("--seed", type=int, default=None, help="of the first minute; the next ones count on")
    parser.add_argument("--warm-up", type=int, default=2_500, help="executions before anything is measured")
    parser.add_argument("--no-faults", action="store_true", help="only the load")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"soak: {options.minutes} minutes, {options.rate:g} executions/s, seed {seed}", flush=True)
    servers, workers = (1, 2) if options.no_faults else (2, 3)
    parts = Parts(options.servers or servers, options.workers or workers, lease_seconds=3.0)
    with ground_of_its_own(parts) as ground:
        soak = Soak(ground, seed, options.rate, has_faults=not options.no_faults)
        soak.warm_up(options.warm_up)
        print(f"warmed up with {options.warm_up} executions", flush=True)
        soak.run(options.minutes)
        found = violations(soak.samples)
    print(f"{options.minutes} minutes, {soak.executions} executions, {len(found)} violations, seed {seed}")
    for violation in found:
        print(f"  {violation}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
