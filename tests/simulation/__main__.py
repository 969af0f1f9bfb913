"""`python -m tests.simulation`: many scenarios from numbered seeds, and how often each thing occurred."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.simulation.play import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="executions")
    parser.add_argument("--seed", type=int, default=None, help="only this one, told in full")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    chosen = parser.parse_args()
    tally: Counter[str] = Counter()
    began = time.monotonic()
    seeds = range(chosen.first, chosen.first + chosen.count) if chosen.seed is None else [chosen.seed]
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            problem = simulate(seed, Path(folder), tally, tell=chosen.seed is not None)
            if problem is not None:
                failed.append((seed, problem))
                print(f"seed {seed}: {problem}", file=sys.stderr)
                if len(failed) >= 20:
                    break
    for name, count in sorted(tally.items()):
        print(f"{name:40} {count:>10}")
    print(f"{tally['executions']} executions in {time.monotonic() - began:.1f} s, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
