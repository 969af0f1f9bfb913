"""`python -m tests.mutants.operators`: small random changes of the code, and how many the tests notice.

    python -m tests.mutants.operators [--count 300 | --all] [--seed 1] [--part engine --part control]
                                      [--only FILE[:FUNCTION]] [--least 0.85] [--jobs 2] [--whole-runs]

Changes are drawn of those in `changes.py`. Each is made in a process of its own in a copy of the tree, where
the tests that reach it run until the first that fails (`forked.py`); what they do not notice can be left to
a few whole runs of the command. What goes unnoticed then is listed, with the reason that `survivors.md`
gives, if it gives one: it counts as unnoticed all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.changes import Change, changes, on_one_line
from tests.mutants.planted import PASSED, ROOT, copy_tree, run_tests

PACKAGE = Path("src") / "noetl"
PARTS = ["engine", "control"]
SURVIVORS = Path(__file__).parent / "survivors.md"
STAGES = [
    ["tests/unit/engine", "tests/unit/control", "tests/unit/worker"],
    [
        "tests/contract/control",
        "tests/simulation",
        "tests/unit/test_testing.py",
        "tests/unit/server/test_executions.py",
        "tests/unit/server/test_streams.py",
    ],
]
"""What the first tests do not notice is left to slower ones."""
LEFT_OUT = ["PostgreSQL"]
"""A process that ends in the middle of a test would leave a database server behind."""
WHOLE_RUNS = ["tests/e2e/test_running.py", "tests/e2e/test_retry.py"]
"""Tests of other processes, which see the change only in the file."""
SECONDS = 900.0
FRESH = "left to a fresh process"
"""Of a change whose function cannot be changed where it is in use."""


class Key(NamedTuple):
    """What a change is known by when lines have moved."""

    file: str
    function: str
    statement: str
    change: str


class Tried(NamedTuple):
    file: Path
    change: Change
    by: str | None
    """The test that noticed; None: none did."""
    note: str = ""


def drawn(
    parts: Sequence[str], count: int | None, seed: int, tree: Path = ROOT, only: str = ""
) -> list[tuple[Path, Change]]:
    """So many of the changes of some packages, in the order of chance; None: all of them."""
    files = sorted(file for part in parts for file in (tree / PACKAGE / part).glob("*.py"))
    name, _, function = only.partition(":")
    found = [
        (file.relative_to(tree), change)
        for file in files
        if file.as_posix().endswith(name)
        for change in changes(file.read_text("utf-8"))
        if not function or change.function == function
    ]
    random.Random(seed).shuffle(found)  # a larger count goes on where a smaller one ends
    return found[:count]


def key_of(tree: Path, file: Path, change: Change) -> Key:
    lines = (tree / file).read_text("utf-8").splitlines()[change.lines[0] - 1 : change.lines[1]]
    return Key(
        file.relative_to(PACKAGE).as_posix(),
        change.function,
        on_one_line("\n".join(lines))[:160],
        f"{on_one_line(change.before)[:80]} → {on_one_line(change.after)[:80]}",
    )


def reasons(text: str) -> dict[Key, str]:
    """Why changes go unnoticed: the rows of a table of file, function, statement, change and reason."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in line.replace("\\|", "\0").split("|")[1:-1]]
        cells = [cell.replace("\0", "|").strip("`").strip() for cell in cells]
        if len(cells) == 5 and cells[0].endswith(".py"):
            found[Key(*cells[:4])] = cells[4]
    return found


def row(key: Key, reason: str) -> str:
    file, function, *texts = key
    shown = [f"`` {text} ``" if "`" in text else f"`{text}`" for text in (file, function, *texts)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (*shown, reason)) + " |"


def tried(tree: Path, wanted: Sequence[tuple[Path, Change]], jobs: int) -> Iterator[Tried]:
    """What becomes of each change, as it turns out."""
    told_by, told_to = os.pipe()
    request = {
        "jobs": jobs,
        "stages": STAGES,
        "left_out": LEFT_OUT,
        "changes": [(str(f), c) for f, c in wanted],
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mutants.forked", str(told_to)],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[told_to],
        text=True,
    ) as running:
        os.close(told_to)
        assert running.stdin is not None
        running.stdin.write(json.dumps(request))
        running.stdin.close()
        with os.fdopen(told_by) as answers:
            for line in answers:
                yield from _verdict(wanted, json.loads(line))
        assert running.stdout is not None
        if running.wait() not in (PASSED, 5):  # 5: no test of its own was run
            raise SystemExit(running.stdout.read())


def _verdict(wanted: Sequence[tuple[Path, Change]], told: dict[str, Any]) -> Iterator[Tried]:
    if "problem" in told:
        raise SystemExit(told["problem"])
    if "tests" in told:
        print(f"{told['tests']} tests pass in {told['seconds']:.0f} s", flush=True)
        return
    file, change = wanted[told["number"]]
    if told.get("cannot"):
        yield Tried(file, change, None, FRESH)
    elif told["by"] is None:
        yield Tried(file, change, None, "" if told["reached"] else "no test comes here")
    else:
        yield Tried(file, change, told["by"], "no end" if told["timeout"] else f"stage {told['stage']}")


def in_fresh_process(original: Path, verdict: Tried) -> Tried:
    """Writes a change that went unnoticed into the file of a copy, and tries the command there."""
    with tempfile.TemporaryDirectory(prefix="noetl-mutants-") as folder:
        tree = copy_tree(Path(folder), original)
        file = tree / verdict.file
        file.write_text(verdict.change.applied(file.read_text("utf-8")), "utf-8")
        tests = [*(STAGES[0] if verdict.note == FRESH else []), *WHOLE_RUNS]
        try:
            code, _ = run_tests(tree, tests, SECONDS)
        except subprocess.TimeoutExpired:
            code = -1  # it waits for ever: whoever runs the tests notices
    return verdict if code == PASSED else verdict._replace(by="whole runs", note="whole runs")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.operators", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many changes are drawn")
    parser.add_argument("--all", action="store_true", help="every change there is")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", action="append", help="which packages are changed (engine and control)")
    parser.add_argument("--only", default="", help="only those of one FILE, or FILE:FUNCTION")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.0, help="the share that must be noticed")
    parser.add_argument("--whole-runs", action="store_true", help="try what is left on the command too")
    chosen = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="noetl-mutants-") as folder:
        tree = copy_tree(Path(folder))  # what is changed meanwhile makes no difference
        wanted = drawn(
            chosen.part or PARTS,
            None if chosen.all else chosen.count,
            chosen.seed,
            tree,
            chosen.only,
        )
        verdicts = []
        for verdict in tried(tree, wanted, chosen.jobs):
            verdicts.append(verdict)
            print(_line(verdict), flush=True)
        noticed = [verdict for verdict in verdicts if verdict.by is not None]
        left = [verdict for verdict in verdicts if verdict.by is None]
        with ThreadPoolExecutor(chosen.jobs) as pool:
            again = [each for each in left if chosen.whole_runs or each.note == FRESH]
            found = list(pool.map(partial(in_fresh_process, tree), again))
        noticed += [verdict for verdict in found if verdict.by is not None]
        unnoticed = [verdict for verdict in left if verdict not in again]
        unnoticed += [verdict for verdict in found if verdict.by is None]
        _tell_unnoticed(tree, unnoticed)
    share = len(noticed) / len(verdicts)
    first = sum(verdict.note == "stage 0" for verdict in noticed) / len(verdicts)
    print(
        f"{len(noticed)} of {len(verdicts)} noticed ({share:.1%}; {first:.0%} by unit tests alone),"
        f" seed {chosen.seed}, {time.monotonic() - began:.0f} s"
    )
    return 0 if share >= chosen.least else 1


def _line(verdict: Tried) -> str:
    word = f"UNNOTICED ({verdict.note})" if verdict.by is None else f"noticed ({verdict.note})"
    return f"{word:<20} {verdict.file}:{verdict.change}" + (f" by {verdict.by}" if verdict.by else "")


def _tell_unnoticed(tree: Path, unnoticed: Sequence[Tried]) -> None:
    known = reasons(SURVIVORS.read_text("utf-8"))
    keys = {key_of(tree, verdict.file, verdict.change): verdict for verdict in unnoticed}
    print("\n| file | function | statement | change | reason |\n|---|---|---|---|---|")
    for key in sorted(keys):
        print(row(key, known.get(key, f"? line {keys[key].change.line} {keys[key].note}")))
    print(f"\n{len(keys)} unnoticed, {len(keys.keys() - known.keys())} of them without a reason", flush=True)


if __name__ == "__main__":
    sys.exit(main())
