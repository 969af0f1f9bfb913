"""`python -m tests.mutants.operators`: small random changes of the code, and how many the tests notice.

    python -m tests.mutants.operators [--count 60] [--seed N] [--part engine --part control] [--least 0.85]

A change is one comparison, one `and`, one number or one answer that is another. Each is made in a copy of the
tree, and tests run there until the first that fails: unit tests, then slower ones. What goes unnoticed is
listed: some of it makes no difference, some shows what no test looks at.
"""

from __future__ import annotations

import argparse
import ast
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.gates.source import parsed
from tests.mutants.planted import PASSED, ROOT, copy_tree, run_tests

PACKAGE = Path("src") / "noetl"
STAGES = (
    ["tests/unit/engine", "tests/unit/control", "tests/unit/worker"],
    ["tests/contract/control", "tests/simulation", "tests/e2e/test_retry.py", "tests/e2e/test_running.py"],
)
"""What the first tests do not notice is left to slower ones."""
SECONDS = 900.0
WORDS = {0: "noticed", 1: "noticed late", None: "UNNOTICED"}
COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}


class Change(NamedTuple):
    """A piece of a source that is replaced by another."""

    line: int
    column: int
    before: str
    after: str

    def applied(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        end = self.column + len(self.before.encode())
        assert line[self.column : end].decode() == self.before
        lines[self.line - 1] = (line[: self.column] + self.after.encode() + line[end:]).decode()
        return "".join(lines)

    def __str__(self) -> str:
        return f"{self.line}:{self.column + 1}: `{self.before}` to `{self.after}`"


def changes(source: str) -> Iterator[Change]:
    """Every change that can be made in a source; assertions and annotations are left alone."""
    lines = [line.encode() for line in source.splitlines()]
    for node in _code(parsed(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            before, after = COMPARISONS[type(node.ops[0])]
            yield from _between(lines, node.left, node.comparators[0], before, after)
        elif isinstance(node, ast.BoolOp):
            words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            yield from _between(lines, node.values[0], node.values[1], *words)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            if isinstance(node.right, ast.Constant) and node.right.value == 1:
                signs = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
                yield from _between(lines, node.left, node.right, *signs)
        elif isinstance(node, ast.Return) and node.value is not None:
            text = ast.get_source_segment(source, node.value)
            if text is not None and "\n" not in text and text != "None":
                yield Change(node.value.lineno, node.value.col_offset, text, "None")


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Assert | ast.arguments | ast.AnnAssign):
            continue
        yield node
        yield from _code(node)


def _between(
    lines: list[bytes], left: ast.expr, right: ast.expr, before: str, after: str
) -> Iterator[Change]:
    """The change of the operator that stands between two expressions of one line."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    place = lines[right.lineno - 1].find(f" {before} ".encode(), left.end_col_offset, right.col_offset)
    if place >= 0:
        yield Change(right.lineno, place + 1, before, after)


class Tried(NamedTuple):
    where: str
    stage: int | None
    """Which of the stages noticed; None: none."""


def tried(original: Path, place: tuple[Path, Change]) -> Tried:
    """Makes a change in a copy of the tree and runs the tests there."""
    file, change = place
    where = f"{file}:{change}"
    with tempfile.TemporaryDirectory(prefix="noetl-mutants-") as folder:
        tree = copy_tree(Path(folder), original)
        (tree / file).write_text(change.applied((tree / file).read_text("utf-8")), "utf-8")
        for number, tests in enumerate(STAGES):
            try:
                code, _ = run_tests(tree, tests, SECONDS)
            except subprocess.TimeoutExpired:
                return Tried(where, number)  # it waits for ever: whoever runs the tests notices
            if code != PASSED:
                return Tried(where, number)
    return Tried(where, None)


def drawn(parts: list[str], count: int, seed: int, tree: Path = ROOT) -> list[tuple[Path, Change]]:
    files = sorted(file for part in parts for file in (tree / PACKAGE / part).glob("*.py"))
    found = [
        (file.relative_to(tree), change) for file in files for change in changes(file.read_text("utf-8"))
    ]
    return random.Random(seed).sample(found, min(count, len(found)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.operators", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="how many changes are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", action="append", help="which packages are changed (engine and control)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.0, help="the share that must be noticed")
    chosen = parser.parse_args()
    verdicts = []
    with (
        tempfile.TemporaryDirectory(prefix="noetl-mutants-") as folder,
        ThreadPoolExecutor(chosen.jobs) as pool,
    ):
        original = copy_tree(Path(folder))  # what is changed meanwhile makes no difference
        wanted = drawn(chosen.part or ["engine", "control"], chosen.count, chosen.seed, original)
        for verdict in pool.map(partial(tried, original), wanted):
            verdicts.append(verdict)
            print(f"{WORDS[verdict.stage]:<16}{verdict.where}", flush=True)
    noticed = [verdict.stage for verdict in verdicts if verdict.stage is not None]
    share = len(noticed) / len(verdicts)
    first = noticed.count(0) / len(verdicts)
    print(f"{len(noticed)} of {len(verdicts)} noticed ({share:.0%}; {first:.0%} by unit tests alone)")
    return 0 if share >= chosen.least else 1


if __name__ == "__main__":
    sys.exit(main())
