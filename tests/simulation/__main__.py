"""`python -m tests.simulation`: many scenarios from numbered seeds, and how often each thing occurred.

`--seed` plays one of them and tells it in full. `--coverage` also measures which branches of the engine the
first few thousand seeds take, and fails when these are too few.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

from tests.simulation.many import arguments, branches_taken, play_chosen, run_many

PLAYER = "tests.simulation.play:simulate"
MEASURED = 10_000
"""Seeds that are played under coverage, which slows them down."""
LEAST_SHARE = 0.95
"""Of the engine's branches, what the simulation has to take by itself."""


def main() -> int:
    parser = arguments("python -m tests.simulation", __doc__, 10_000)
    parser.add_argument("--coverage", action="store_true", help="measure the engine's branches")
    chosen = parser.parse_args()
    if not chosen.coverage or chosen.seed is not None:
        return play_chosen(PLAYER, chosen)
    some = min(chosen.count, MEASURED)
    code = measured(argparse.Namespace(**{**vars(chosen), "count": some}))
    if chosen.count > some:
        rest = {"count": chosen.count - some, "first": chosen.first + some}
        code = run_many(PLAYER, argparse.Namespace(**{**vars(chosen), **rest})) or code
    return code


def measured(chosen: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        code = run_many(PLAYER, chosen, measured_in=folder)
        taken, total = branches_taken(folder)
    share = taken / total
    print(f"the simulation took {taken} of the engine's {total} branches: {share:.1%}")
    if share < LEAST_SHARE:
        print(f"that is less than {LEAST_SHARE:.0%}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
