"""`python -m tests.mutants`: plants every bug in a copy of the tree and sees that its tests notice it.

    python -m tests.mutants [NAME…] [--jobs 2] [--list] [--no-baseline]

Before anything is planted the tests that are named must pass. Ends with exit code 1 if a bug goes unnoticed,
or if its patch does not fit the tree any more.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.mutants.planted import (
    PASSED,
    PatchError,
    Planted,
    Verdict,
    all_planted,
    copy_tree,
    judge,
    run_tests,
    uses_the_copy,
)

BASELINE_SECONDS = 1_200.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="bugs tried at once")
    parser.add_argument("--list", action="store_true", help="tell what there is")
    parser.add_argument(
        "--no-baseline", action="store_true", help="take it for granted that the tests pass without a bug"
    )
    chosen = parser.parse_args()
    bugs = [bug for bug in all_planted() if not chosen.names or bug.name in chosen.names]
    if unknown := set(chosen.names) - {bug.name for bug in bugs}:
        parser.error(f"there is no patch called {', '.join(sorted(unknown))}")
    if chosen.list:
        for bug in bugs:
            print(f"{bug.name}: {bug.bug}")
        return 0
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="noetl-mutants-") as folder,
        ThreadPoolExecutor(chosen.jobs) as pool,
    ):
        original = copy_tree(Path(folder))  # what is changed meanwhile makes no difference
        if not chosen.no_baseline and not _passes_without(bugs, original):
            return 1
        verdicts = list(pool.map(partial(_tried, original), bugs))
    unnoticed = [verdict for verdict in verdicts if verdict.problem is not None]
    print(f"{len(verdicts) - len(unnoticed)} of {len(verdicts)} noticed, {time.monotonic() - began:.0f} s")
    return 1 if unnoticed else 0


def _passes_without(bugs: Sequence[Planted], original: Path) -> bool:
    tests = sorted({test for bug in bugs for test in bug.caught_by})
    with tempfile.TemporaryDirectory(prefix="noetl-mutants-") as folder:
        tree = copy_tree(Path(folder), original)
        if not uses_the_copy(tree):
            print("the tests of a copy would run on the installed package", file=sys.stderr)
            return False
        code, told = run_tests(tree, tests, BASELINE_SECONDS)
    if code != PASSED:
        print(f"the tests do not pass without any bug:\n{told}", file=sys.stderr)
    return code == PASSED


def _tried(original: Path, bug: Planted) -> Verdict:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="noetl-mutants-") as folder:
        try:
            verdict = judge(bug, copy_tree(Path(folder), original))
        except PatchError as error:
            verdict = Verdict(bug.name, str(error))
    shown = "noticed" if verdict.problem is None else f"FAILED: {verdict.problem}"
    print(f"{bug.name}: {shown} ({time.monotonic() - began:.1f} s)", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
