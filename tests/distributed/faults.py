"""One fault, tried as often as asked: `python -m tests.distributed.faults ROW --trials N [--seed S]`.

Executions of every shape are kept under way meanwhile on a real PostgreSQL and NATS, and after each round of
trials all of them must have come to what they come to undisturbed, with a dense log, no call made again after
its end was committed, and no step given up that did not lose its workers by what was done here. The first
violation ends the run; its seed and number of trials repeat the round.

Of every row a bug is planted that its short test must notice: `tests/mutants/patches`, by `make mutants`. A
late report that has the same content as the one in time changes nothing, so a missing check of epochs is for
`test_reports.py` and `test_zombies.py` to notice, not for the row of zombies.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from tests.distributed.rounds import Ground, Round, ground_of_its_own
from tests.distributed.rows import ROWS, Row


def main() -> int:
    about = "\n".join(f"  {name:9} {row.about} ({row.trials})" for name, row in ROWS.items())
    parser = argparse.ArgumentParser(
        prog="faults",
        description=__doc__,
        epilog=f"rows, with the trials of a long run:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("row", choices=list(ROWS))
    parser.add_argument("--trials", type=int, default=None, help="how many; by default those of a long run")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on")
    options = parser.parse_args()
    row = ROWS[options.row]
    trials = options.trials if options.trials is not None else row.trials
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"{options.row}: {row.about}; {trials} trials, seed {seed}", flush=True)
    with ground_of_its_own(row.parts) as ground:
        _rounds(options.row, row, ground, trials, seed)
    return 0


def _rounds(name: str, row: Row, ground: Ground, trials: int, seed: int) -> None:
    began = time.monotonic()
    told: Counter[str] = Counter()
    made = number = executions = 0
    while made < trials:
        count = min(row.together, trials - made)
        each = Round(ground, seed + number)
        try:
            executions += row.play(each, count)
        except BaseException:
            seconds = time.monotonic() - began
            print(f"round {number + 1}: {each.summary()}")
            print(
                f"{name}: {made} trials, {executions} executions, 1 violation, {seconds:.0f} s, seed {seed}; "
                f"again: make faults ROW={name} TRIALS={count} SEED={seed + number}",
                flush=True,
            )
            raise
        made, number, told = made + count, number + 1, told + each.told
        print(f"  {made} trials, {time.monotonic() - began:.0f} s: {each.summary()}", flush=True)
    seconds = time.monotonic() - began
    summary = ", ".join(f"{what} {times}" for what, times in sorted(told.items()))
    print(f"{name}: {trials} trials, {executions} executions, 0 violations, {seconds:.0f} s, seed {seed}")
    print(f"  {summary}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
