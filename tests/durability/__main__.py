"""The long campaign: every shape killed at every commit, and the console script at hundreds of moments.

    python -m tests.durability [--count 200] [--seed N] [--only commits|relentless|moments]

Ends with exit code 1 at the first execution that did not keep what was promised, and says which it was; the
files of that execution are kept.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.durability.campaign import Campaign, campaign, random_moments
from tests.durability.lives import SHAPES

MOMENTS = ("before", "after")
PARTS = ("commits", "relentless", "moments")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.durability")
    parser.add_argument("--count", type=int, default=200, help="kills at random moments")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="noetl-durability-"))
    print(f"seed {options.seed}, files in {folder}", flush=True)
    began = time.monotonic()
    with campaign(folder) as killing:
        if options.only in (None, "commits"):
            at_commits(killing)
        if options.only in (None, "relentless"):
            relentlessly(killing)
        if options.only in (None, "moments"):
            at_moments(killing, options.seed, options.count)
    print(f"all of it held, after {time.monotonic() - began:.0f} s")
    return 0


def at_commits(killing: Campaign) -> None:
    for name in SHAPES:
        for moment in MOMENTS:
            killed = killing.at_each_commit(name, moment)
            print(f"{name}: killed {moment} each of its {killed} commits, once each", flush=True)


def relentlessly(killing: Campaign) -> None:
    for name in SHAPES:
        for moment in MOMENTS:
            killed = killing.relentlessly(name, moment)
            print(f"{name}: one execution killed {killed} times, {moment} each further commit", flush=True)


def at_moments(killing: Campaign, seed: int, wanted: int) -> None:
    """Goes on until so many kills hit a process that had not ended by then."""
    killed: Counter[str] = Counter()
    late: Counter[str] = Counter()
    for name, parts in random_moments(seed):
        hits = killing.at_moments(name, parts)
        killed[name] += hits
        late[name] += hits == 0
        print(f"{killed.total()}/{wanted} {name}: {', '.join(f'{part:.0%}' for part in parts)}", flush=True)
        if killed.total() >= wanted:
            break
    for name in sorted(killed):
        print(f"{name}: {killed[name]} kills; {late[name]} executions had ended before theirs")


if __name__ == "__main__":
    sys.exit(main())
