"""`python -m tests.simulation`: many scenarios from numbered seeds, and how often each thing occurred.

`--seed` plays one of them and tells it in full.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulation.play import simulate

CHUNK = 50
MOST_SHOWN = 20


def play_some(seeds: list[int], tell: bool = False) -> tuple[Counter[str], list[tuple[int, str]]]:
    tally: Counter[str] = Counter()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            problem = simulate(seed, Path(folder), tally, tell=tell)
            if problem is not None:
                failed.append((seed, problem))
    return tally, failed


def play_all(seeds: list[int], jobs: int, *, tell: bool) -> tuple[Counter[str], list[tuple[int, str]]]:
    if jobs == 1:
        return play_some(seeds, tell)
    tally: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for counted, wrong in pool.map(play_some, chunks):
            tally.update(counted)
            failed.extend(wrong)
    return tally, failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="executions")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, told in full")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    chosen = parser.parse_args()
    one = chosen.seed is not None
    seeds = [chosen.seed] if one else list(range(chosen.first, chosen.first + chosen.count))
    began = time.monotonic()
    tally, failed = play_all(seeds, 1 if one else chosen.jobs, tell=one)
    for name, count in sorted(tally.items()):
        print(f"{name:40} {count:>10}")
    for seed, problem in failed[:MOST_SHOWN]:
        print(f"seed {seed}: {problem}", file=sys.stderr)
    print(f"{tally['executions']} executions in {time.monotonic() - began:.1f} s, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
