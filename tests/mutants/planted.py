"""Bugs that are planted on purpose, each a patch that some tests must notice.

A patch begins with a header of `Name: value` lines, up to the line `---`; the rest is a diff of `src/`. It is
only ever applied to a copy of the tree in a temporary folder, and the tests run there on that copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).parent / "patches"
LEFT_OUT = (".git", ".venv", ".bench", ".noetl", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache")
DEFAULT_SECONDS = 120.0
PASSED, FAILED = 0, 1
"""What pytest ends with; anything else means that the tests could not be run."""


class Planted(NamedTuple):
    """One bug, and what must notice it."""

    name: str
    bug: str
    """What is wrong, in a sentence."""
    caught_by: tuple[str, ...]
    """What pytest is given to run; each of these must fail."""
    is_fast: bool
    """It needs no database and no cluster, and is tried in every run of the tests."""
    seconds: float
    """How long one of its tests may take."""
    diff: str


class Verdict(NamedTuple):
    name: str
    problem: str | None
    """None: every test that must notice the bug did."""


class PatchError(Exception):
    """A patch that cannot be read or does not fit the tree any more."""


def planted(name: str, text: str) -> Planted:
    """The bug that a patch file describes."""
    head, mark, diff = text.partition("\n---\n")
    if not mark or not diff.startswith("--- a/"):
        raise PatchError(f"{name}: a header, a line `---` and a diff are expected")
    values: dict[str, list[str]] = {}
    for line in head.splitlines():
        key, _, value = line.partition(": ")
        values.setdefault(key, []).append(value)
    unknown = values.keys() - {"Bug", "Caught-by", "Fast", "Seconds"}
    if unknown or "Bug" not in values or "Caught-by" not in values:
        raise PatchError(f"{name}: a header has Bug, Caught-by and, if need be, Fast and Seconds")
    return Planted(
        name=name,
        bug=values["Bug"][0],
        caught_by=tuple(values["Caught-by"]),
        is_fast=values.get("Fast") == ["yes"],
        seconds=float(values.get("Seconds", [str(DEFAULT_SECONDS)])[0]),
        diff=diff,
    )


def all_planted() -> list[Planted]:
    return [planted(file.stem, file.read_text("utf-8")) for file in sorted(PATCHES.glob("*.patch"))]


def fits(bug: Planted, tree: Path) -> str | None:
    """Why a patch does not fit a tree; None: it does."""
    return _apply(bug, tree, "--check")


def copy_tree(folder: Path, original: Path = ROOT) -> Path:
    """A copy of the repository; compiled files come along, and stay good because times of files do too."""
    tree = folder / "tree"
    shutil.copytree(original, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    return tree


def plant(bug: Planted, tree: Path) -> None:
    problem = _apply(bug, tree)
    if problem is not None:
        raise PatchError(f"{bug.name}: the patch does not fit the tree any more: {problem}")


def judge(bug: Planted, tree: Path) -> Verdict:
    """Plants a bug in a copy of the tree and runs the tests that must notice it."""
    plant(bug, tree)
    for test in bug.caught_by:
        try:
            code, told = run_tests(tree, [test], bug.seconds)
        except subprocess.TimeoutExpired:
            return Verdict(bug.name, f"`{test}` came to no end within {bug.seconds:g} s")
        if code == PASSED:
            return Verdict(bug.name, f"`{test}` did not notice: {bug.bug}")
        if code != FAILED:
            return Verdict(bug.name, f"`{test}` could not be run:\n{told}")
    return Verdict(bug.name, None)


def run_tests(tree: Path, tests: list[str], seconds: float) -> tuple[int, str]:
    """Runs tests of a copy on the package in it; how pytest ended, and the end of what it said."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", *tests]
    with subprocess.Popen(
        command,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            told, _ = running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
    return running.returncode, "\n".join(told.splitlines()[-25:])


def uses_the_copy(tree: Path) -> bool:
    """Whether what runs in a copy imports the package in it, and not the installed one."""
    asked = subprocess.run(
        [sys.executable, "-c", "import noetl; print(noetl.__file__)"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(asked.stdout.strip()).is_relative_to(tree)


def _apply(bug: Planted, tree: Path, *options: str) -> str | None:
    done = subprocess.run(
        ["git", "apply", "-p1", "-C1", *options, "-"],
        cwd=tree,
        input=bug.diff,
        # Inside a repository paths would be looked up from its root.
        env=os.environ | {"GIT_CEILING_DIRECTORIES": str(tree.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr.strip()
