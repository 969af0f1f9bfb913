"""Rounds of mixed executions under random faults, for as long as asked: `make chaos SECONDS=… SEED=…`.

Everything random follows from the seed, which is printed: which executions, which faults, after how many
calls. The first round that leaves something untrue ends it, with the round's own seed and the logs of every
process kept. A step that was given up is let pass only where each loss of its worker is one made here.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tests.distributed.disturbances import Disturbances
from tests.distributed.rounds import Ground, Parts, Round, ground_of_its_own
from tests.distributed.shapes import BY_NAME

Fault = Callable[[Disturbances], None]
FAULTS: dict[Fault, int] = {
    Disturbances.kill_worker: 6,
    Disturbances.storm: 2,
    Disturbances.kill_server: 4,
    Disturbances.drain_worker: 1,
    Disturbances.stop_server: 1,
    Disturbances.pause_worker: 3,
    Disturbances.kill_nats: 2,
    Disturbances.crash_postgres: 1,
    Disturbances.kill_connections: 2,
}
"""Each with how often it is chosen among the others."""


def any_fault(each: Round) -> Fault:
    return each.chance.choices(list(FAULTS), list(FAULTS.values()))[0]


def play(each: Round) -> int:
    """One round: begins executions, disturbs them, waits for their ends; how many they were."""
    chance, outside, under = each.chance, each.outside, each.under
    outside.answer_seconds = chance.choice((0.002, 0.01, 0.03))
    for _ in range(chance.randint(3, 10)):
        under.begin(chance.choice(list(BY_NAME)), server=chance.randrange(len(each.stack.servers)))
    place = 0
    for _ in range(chance.randint(2, 6)):
        place += chance.randint(3, 25)
        with suppress(AssertionError):  # they may be nearly through, or wait for signals
            outside.wait_for_calls(place, seconds=2.0)
        any_fault(each)(each.disturbances)
    each.judge()
    return len(under.names)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="no round begins after so long")
    parser.add_argument("--rounds", type=int, default=1_000_000, help="at most so many")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    with ground_of_its_own(Parts(servers=options.servers, workers=options.workers)) as ground:
        _rounds(ground, seed, options)
    return 0


def _rounds(ground: Ground, seed: int, options: argparse.Namespace) -> None:
    until = time.monotonic() + options.seconds
    told: Counter[str] = Counter()
    number = executions = 0
    while number < options.rounds and time.monotonic() < until:
        began = time.monotonic()
        each = Round(ground, seed + number)
        try:
            count = play(each)
        except BaseException:
            print(f"faults: {each.summary()}")
            print(f"round {number + 1} failed; again: make chaos SEED={seed + number} ROUNDS=1", flush=True)
            raise
        number, executions = number + 1, executions + count
        told += each.told
        print(
            f"round {number} seed {seed + number - 1}: {count} executions, "
            f"{len(ground.outside.calls)} calls, {time.monotonic() - began:.1f} s; {each.summary()}",
            flush=True,
        )
    summary = ", ".join(f"{name} {times}" for name, times in sorted(told.items()))
    print(f"{number} rounds passed, {executions} executions; {summary}")


if __name__ == "__main__":
    sys.exit(main())
